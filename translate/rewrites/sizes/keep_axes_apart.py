"""Sinking: move a view that merges height and width after the ops that keep these axes apart.

Vision transformers flatten an image `[N, C, H, W]` to rows `[N, H·W, C]`, and unflatten it before
the next convolution. Where height and width are symbolic, XNNPACK can merge them (it infers one
size of a reshape) but cannot split them again. If the merging view moves after norms, linear
layers, permutations and elementwise ops, it meets the splitting view, and both are removed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.ir import SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.families import NORMS
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.axes.maps import Flat, axis_map
from stepwell.ir.declared.bounds import roundings
from stepwell.ir.declared.families import families_of, ops_of
from stepwell.ir.rewriting.rewrite import Rewriter
from stepwell.ir.rewriting.rewriter import remade
from stepwell.ir.sizes.size import Size
from stepwell.ir.types import Dim, dims, tensor
from stepwell.translate.decompositions.values import Value
from stepwell.translate.lowerings.lowering import Out, lowerings_of, lowers
from stepwell.translate.rewrites.building import axis, emit, is_known, permute_op


@dataclass(frozen=True)
class Merged:
    """A view of `source` that merges `count` of its axes, from axis `at` on."""

    source: SSAValue
    at: int
    count: int

    @property
    def apart(self) -> tuple[Dim, ...]:
        """Return the sizes of the axes that are merged."""
        return dims(self.source.type)[self.at : self.at + self.count]


def merged_axes(value: SSAValue) -> Merged | None:
    """Return the merge that a view does, if it merges one group of axes with symbolic sizes."""
    if not isinstance(value.owner, aten.ViewDefault):
        return None
    source = value.owner.operands[0]
    source_dims, value_dims = dims(source.type), dims(value.type)
    count = len(source_dims) - len(value_dims) + 1
    if not is_known((*source_dims, *value_dims)):
        return None
    for at in range(len(value_dims)):
        if (
            source_dims[:at] == value_dims[:at]
            and source_dims[at + count :] == value_dims[at + 1 :]
        ):
            found = Merged(source, at, count)
            symbolic = [size for size in found.apart if isinstance(size, Size)]
            return found if len(symbolic) > 1 else None
    return None


@lowers(
    "aten.permute.default",
    "aten.linear.default",
    *NORMS,
    *(name for name in ops_of("elementwise", "aten") if len(families_of(name)) == 1),
    to="aten",
    bound=roundings("a batched GEMM may sum in another order"),
    sample="""
    %w = stepwell.weight <"w"> "parameter" : tensor<5x4xf32>
    %r = aten.view.default(%x, [1, -1, 4]) : (tensor<1x?x?x4xf32, #stepwell.shape<[1, "h", "w", 4]>>) -> tensor<1x?x4xf32, #stepwell.shape<[1, "h*w", 4]>>
    %y = aten.linear.default(%r, %w) : (tensor<1x?x4xf32, #stepwell.shape<[1, "h*w", 4]>>, tensor<5x4xf32>) -> tensor<1x?x5xf32, #stepwell.shape<[1, "h*w", 5]>>
    """,
)
def keep_axes_apart(*, op: SchemaOp, out: Out, b: Rewriter) -> Value | None:
    """Write `op(merge(x))` as `merge(op(x))`."""
    merges = [merged_axes(operand) for operand in op.operands]
    merged = next((each for each in merges if each is not None), None)
    at = None if merged is None else kept_axis(op, merges)
    if merged is None or at is None or len(op.results) != 1:
        return None
    if isinstance(op, aten.PermuteDefault):
        new = permute_op(merged.source, spread(op.arg("dims"), merged.at, merged.count))
    else:
        values = [
            operand if each is None else each.source
            for operand, each in zip(op.operands, merges, strict=True)
        ]
        shape = [*out.shape[:at], *merged.apart, *out.shape[at + 1 :]]
        new = remade(op, values, [tensor(shape, out.dtype)])
    return Value(emit(b, new), b).view(*out.shape)


def kept_axis(op: SchemaOp, merges: Sequence[Merged | None]) -> int | None:
    """Return the result axis of the merged axes, if an op treats each index along it alike.

    Operands without a merge have no such axis; all others merge the same sizes.
    """
    axes, kept = axis_map(op), set[int | None]()
    if axes is None or len({each.apart for each in merges if each is not None}) > 1:
        return None
    for index, each in enumerate(merges):
        if each is not None:
            kept.add(axes.after(index, each.at))
    at = kept.pop()
    for index, links in enumerate(axes.links):
        if merges[index] is None and (
            links is None or any(isinstance(link, Flat) or link.axis == at for link in links)
        ):
            return None
    return None if kept else at


def spread(order: Sequence[int], at: int, count: int) -> list[int]:
    """Return a permutation in which the axis at `at` is replaced by `count` adjacent axes."""
    made: list[int] = []
    for each in (axis(number, len(order)) for number in order):
        first = each + count - 1 if each > at else each
        made += range(first, first + count) if each == at else [first]
    return made


RULES = lowerings_of(__name__)
