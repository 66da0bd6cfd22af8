"""Canonical forms of products, convolutions and reductions, which every target reads."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from string import ascii_letters
from typing import Any

from xdsl.ir import SSAValue

import stepwell.translate.rewrites.constants.recipes  # noqa: F401  # pyright: ignore[reportUnusedImport]
from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.declared.bounds import roundings
from stepwell.ir.dtypes import dtype_name, f32, i64, is_float
from stepwell.ir.sizes.size import UNKNOWN, Dim, number_of
from stepwell.ir.types import dims
from stepwell.translate.decompositions.values import Value, broadcast, needs_static, no_refusal
from stepwell.translate.lowerings.lowering import Out, lowerings_of, lowers, refuse
from stepwell.translate.rewrites.building import axes, axis, cannot_be_viewed_as, kept, same_type

REORDERED = roundings("the product may be summed in another order")


@lowers(
    "aten.addmm.default",
    "aten.mm.default",
    "aten.matmul.default",
    to="aten",
    bound=REORDERED,
    sample="""
    %b = stepwell.weight <"b"> "parameter" : tensor<4xf32>
    %v = stepwell.weight <"v"> "parameter" : tensor<3x4xf32>
    %p = aten.addmm.default(%b, %x, %v) : (tensor<4xf32>, tensor<2x3xf32>, tensor<3x4xf32>) -> tensor<2x4xf32>
    """,
)
def matmul_to_linear(*, op: Any, out: Out, b: Any) -> Value | None:
    """Rewrite a product with a transposed matrix or a weight as `aten.linear.default`.

    `addmm(b, x, wᵀ)`, `mm(x, wᵀ)` and `matmul(x, w)` with a matrix on the right are decompositions
    of a linear layer. If the right side is a weight that is not transposed, its transpose is a
    derived weight: a recipe, no copy. A bias of one row becomes the bias of the linear layer; any
    other bias is added after it.
    """
    *first, x, right = (Value(value, b) for value in op.operands[:3])
    if right.rank != 2:
        return None
    (added,) = first or (None,)
    if added is not None and (op.arg("alpha") != 1 or op.arg("beta") != 1):
        refuse("alpha or beta is not 1")
    held = transposed(right.ssa)
    if held is None and right.key is None:
        return None
    weight = right.derived("transpose", order=[1, 0]) if held is None else held
    is_bias = added is not None and added.shape == right.shape[1:]
    y = x.call(aten.LinearDefault, weight, added if is_bias else None, shape=out.shape)
    return y if added is None or is_bias else y.call(aten.AddTensor, added)


@lowers(
    "aten.linear.default",
    to="aten",
    bound=REORDERED,
    sample="""
    %v = stepwell.weight <"v"> "parameter" : tensor<4xf32>
    %y = aten.linear.default(%x, %v) : (tensor<2x3x4xf32>, tensor<4xf32>) -> tensor<2x3xf32>
    """,
)
def linear_by_vector(x: Value, weight: Value, bias: Value | None, *, out: Out) -> Value | None:
    """Rewrite a linear layer with a vector as weight to one with a single output row.

    The runtime's kernel refuses such a weight: operand and result must have equal ranks.
    """
    if weight.rank != 1:
        return None
    row = weight.view(1, *weight.shape)
    y = x.call(aten.LinearDefault, row, shape=(*out.shape, 1)).view(*out.shape)
    return y if bias is None else y.call(aten.AddTensor, bias)


def transposed(value: SSAValue) -> SSAValue | None:
    """Return the operand of a value that is a matrix transpose (`permute` by `[1, 0]`), or None."""
    owner = value.owner
    if isinstance(owner, aten.PermuteDefault) and owner.arg("dims") == [1, 0]:
        return owner.operands[0]
    return None


@lowers(
    "aten.matmul.default",
    "aten.mm.default",
    "aten.mv.default",
    "aten.dot.default",
    "aten.baddbmm.default",
    to="aten",
    bound=REORDERED,
    sample=("2x5x3x4xf32", "5x4x6xf32"),
)
def matmul_to_bmm(*, op: Any, out: Out, b: Any) -> Value | None:
    """Rewrite every other matrix product as `aten.bmm.default` on batches of matrices.

    Vectors get an axis of 1; batch axes are broadcast to each other and flattened to one. A single
    matrix on the right is not repeated: the rows of all batches form one matrix. `baddbmm` becomes
    a product and a sum.
    """
    *first, left, right = (Value(value, b) for value in op.operands)
    (added,) = first or (None,)
    if right.rank == 2 and (right.key is not None or transposed(right.ssa) is not None):
        return None
    needs_static(left, right, what="the shapes are symbolic")
    if added is not None and (op.arg("alpha") != 1 or op.arg("beta") != 1):
        refuse("alpha or beta is not 1")
    k, n = left.shape[-1], right.shape[-1] if right.rank > 1 else 1
    if right.rank <= 2 and left.rank > 1:
        batch, m = (), prod(left.shape[:-1])
    else:
        batch = tuple(map(number_of, broadcast(left.shape[:-2], right.shape[:-2])))
        m = left.shape[-2:-1]
        m = m[0] if m else 1
    one, other = _batches(left, batch, (m, k)), _batches(right, batch, (k, n))
    y = one.call(aten.BmmDefault, other, shape=(prod(batch), m, n)).view(*out.shape)
    return y if added is None else y.call(aten.AddTensor, added)


def _batches(value: Value, batch: Sequence[int], matrix: tuple[int, int]) -> Value:
    if batch:
        own = value.shape[:-2] if value.rank >= 2 else ()
        own = (*[1] * (len(batch) - len(own)), *own)
        value = value.view(*own, *matrix).expand(*batch, *matrix)
    return value.view(prod(batch), *matrix)


@lowers(
    "aten.einsum.default",
    to="aten",
    bound=REORDERED,
    sample=("bik,jbk->bji", ["2x3x4xf32", "5x2x4xf32"]),
)
def einsum_to_bmm(equation: str, operands: list[Value], *, out: Out) -> Value:
    """Rewrite a two-tensor `einsum` as permutes, views and `aten.bmm.default` (dynamic: `matmul`).

    A letter is in both operands and the result (batch), in both operands only (summed), or in one
    operand and the result (free). Each operand is permuted to [batch, free, summed] and flattened
    to three axes. A letter that is in only one operand and not in the result is refused.
    """
    letters, result = _spelled_out(equation.replace(" ", ""), [len(x.shape) for x in operands])
    if len(letters) != 2:
        refuse(f"the equation multiplies {len(letters)} tensors; bmm multiplies two")
    if any(len(set(part)) != len(part) for part in (*letters, result)):
        refuse("a letter occurs twice in one term (a diagonal)")
    if any(value.dtype != out.dtype for value in operands):
        refuse("the operands have several dtypes")
    sizes: dict[str, Any] = {}
    for part, value in zip(letters, operands, strict=True):
        for letter, size in zip(part, value.shape, strict=True):
            if sizes.setdefault(letter, size) != size:
                refuse("an axis of size 1 is broadcast")
    one, other = (set(part) for part in letters)
    if (one ^ other) - set(result):
        refuse("a letter is summed that occurs in one operand only")
    batch = "".join(letter for letter in letters[0] if letter in other and letter in result)
    summed = "".join(letter for letter in letters[0] if letter in other and letter not in result)
    left = "".join(letter for letter in letters[0] if letter not in other)
    right = "".join(letter for letter in letters[1] if letter not in one)

    if not all(value.is_static for value in operands):
        return _product_of_axes(letters, operands, (batch, left, summed, right), result, sizes)

    def size(group: str) -> int:
        return prod(sizes[letter] for letter in group)

    def ordered(value: Value, held: str, *groups: str) -> Value:
        order = [held.index(letter) for letter in "".join(groups)]
        return value.permute(order).view(*map(size, groups))

    first = ordered(operands[0], letters[0], batch, left, summed)
    second = ordered(operands[1], letters[1], batch, summed, right)
    y = first.call(aten.BmmDefault, second, shape=(size(batch), size(left), size(right)))
    made = batch + left + right
    y = y.view(*(sizes[letter] for letter in made))
    return y.permute([made.index(letter) for letter in result])


def _spelled_out(equation: str, ranks: list[int]) -> tuple[list[str], str]:
    """Return the operands' terms and the result's, with letters for ellipses and an implied
    result.
    """
    terms, arrow, result = equation.partition("->")
    parts = terms.split(",")
    counts = [
        rank - len(part) + 3 if "..." in part else 0
        for rank, part in zip(ranks, parts, strict=True)
    ]
    others = [letter for letter in ascii_letters if letter not in equation]
    dots = "".join(others[: max(counts)])
    letters = [
        part.replace("...", dots[len(dots) - count :])
        for part, count in zip(parts, counts, strict=True)
    ]
    once = sorted(x for x in set(terms) - {",", "."} if terms.count(x) == 1)
    return letters, result.replace("...", dots) if arrow else dots + "".join(once)


def _product_of_axes(
    letters: list[str],
    operands: list[Value],
    groups: tuple[str, str, str, str],
    result: str,
    sizes: dict[str, Any],
) -> Value:
    """Rewrite `einsum` with symbolic sizes as `aten.matmul.default` with separate batch axes.

    Without batch letters, the free axes of the operand with more of them also stay separate; the
    other operand is a matrix.
    """
    batch, left, summed, right = groups
    if not summed:
        refuse("the shapes are symbolic, and no letter is summed")
    if not batch and len(left) < len(right):
        letters, operands, left, right = letters[::-1], operands[::-1], right, left
    apart = "" if batch else left

    def ordered(value: Value, held: str, *merged: str) -> Value:
        turned = value.permute([held.index(letter) for letter in batch + "".join(merged)])
        if all(len(group) == 1 for group in merged):
            return turned
        kept = (sizes[letter] for letter in batch)
        return turned.view(*kept, *(prod(sizes[letter] for letter in group) for group in merged))

    first = ordered(operands[0], letters[0], *(apart or (left,)), summed)
    second = ordered(operands[1], letters[1], summed, right)
    shape = [*first.shape[:-1], second.shape[-1]]
    y = first.call(aten.MatmulDefault, second, shape=shape)
    made = batch + left + right
    y = y.view(*(sizes[letter] for letter in made))
    return y.permute([made.index(letter) for letter in result])


CONVOLUTIONS = (
    "aten.conv2d.padding",
    "aten.conv1d.default",
    "aten.conv2d.default",
    "aten.conv3d.default",
    "aten.conv1d.padding",
    "aten.conv3d.padding",
    "aten.conv_transpose1d.default",
    "aten.conv_transpose2d.input",
    "aten.conv_transpose3d.input",
    "aten._convolution.default",
    "aten.convolution.default",
)


@lowers(
    *CONVOLUTIONS,
    to="aten",
    sample=("1x3x8x8xf32", "4x3x2x2xf32", None, [1, 1], "same"),
)
def conv_to_convolution(
    x: Value, weight: Value, bias: Value | None, *, op: Any, out: Out, groups: int
) -> Value | None:
    """Rewrite every convolution as `aten.convolution.default`.

    One op covers every rank, transposed or not, with one list entry per spatial axis. Padding
    `same` becomes numbers, with a pad before the convolution if it is uneven; an unbatched input
    gets a batch axis of 1.
    """
    needs_static(weight, what="the shape of the kernel is symbolic")
    space, names = weight.rank - 2, op.SCHEMA.by_name
    transposed = "output_padding" in names and (
        op.arg("transposed") if "transposed" in names else True
    )
    lists = {
        n: op.arg(n) for n in ("stride", "padding", "dilation", "output_padding") if n in names
    }
    if any(isinstance(v, SSAValue) for item in lists.values() for v in item):
        refuse("strides or paddings are known only at run time")
    padding, extra = lists["padding"], [0] * space
    stride, dilation = spread(lists["stride"], space), spread(lists["dilation"], space)
    if padding == "valid":
        padding = [0]
    elif padding == "same":
        totals = [d * (k - 1) for d, k in zip(dilation, weight.shape[2:], strict=True)]
        padding, extra = [t // 2 for t in totals], [t % 2 for t in totals]
    padding = spread(padding, space)
    is_batched = x.rank == weight.rank
    if isinstance(op, aten.ConvolutionDefault) and is_batched:
        stated = tuple(list(lists[n]) for n in ("stride", "padding", "dilation"))
        if stated == (stride, padding, dilation):
            return None
    if not is_batched:
        no_refusal(cannot_be_viewed_as(x.ssa, (1, *x.shape)))
    if any(extra):  # Zeros after the last elements of the spatial axes.
        more = [0] * (x.rank - space) + extra
        longer = [d + m if isinstance(d, int) else d for d, m in zip(x.shape, more, strict=True)]
        amounts = [number for end in reversed(extra) for number in (0, end)]
        x = x.call(aten.ConstantPadNdDefault, amounts, 0, shape=longer)
    x = x if is_batched else x.view(1, *x.shape)
    shape = out.shape if is_batched else (1, *out.shape)
    outer = spread(lists.get("output_padding", [0]), space)
    numbers = (stride, padding, dilation, bool(transposed), outer, groups)
    y = x.call(aten.ConvolutionDefault, weight, bias, *numbers, shape=shape, dtype=out.dtype)
    return y if is_batched else y.view(*out.shape)


def spread(numbers: Sequence[int], space: int) -> list[int]:
    """Return one number for each spatial axis, from one number or a list."""
    return list(numbers) * space if len(numbers) == 1 else list(numbers)


REDUCTIONS: dict[str, type[SchemaOp]] = {
    "aten.mean.default": aten.MeanDim,
    "aten.mean.dim": aten.MeanDim,
    "aten.sum.default": aten.SumDimIntList,
    "aten.sum.dim_IntList": aten.SumDimIntList,
    "aten.amax.default": aten.AmaxDefault,
    "aten.amin.default": aten.AminDefault,
    "aten.max.default": aten.AmaxDefault,
    "aten.min.default": aten.AminDefault,
    "aten.max.dim": aten.AmaxDefault,
    "aten.min.dim": aten.AminDefault,
}


@lowers(
    REDUCTIONS,
    to="aten",
    bound=roundings("the sum may run in another order"),
    sample="%y = aten.sum.default(%x) : (tensor<2x3x4xf32>) -> tensor<f32>",
)
def normalize_reduction(x: Value, *, form: Any, op: Any, out: Out) -> Any:
    """Canonicalize means, sums and extrema: list all axes and keep them; a view then drops them.

    This includes the values of `max` and `min` along an axis. A `dtype` argument casts the operand
    first, as in PyTorch.
    """
    if any(indices.uses for indices in op.results[1:]):
        refuse("the indices of the extrema are used")
    names = op.SCHEMA.by_name
    listed: Any = op.arg("dim") if "dim" in names else None
    listed = [listed] if isinstance(listed, int) else listed
    over = axes(listed, x.rank) if listed else tuple(range(x.rank))
    dtype = op.arg("dtype") if "dtype" in names else None
    if form is aten.SumDimIntList:
        dtype = out.dtype if dtype is None else dtype
        if not (is_float(dtype) or dtype == i64):
            refuse(f"a sum in {dtype_name(dtype)} must state its dtype")
    dtype = None if dtype == x.dtype else dtype
    if x.rank == 0 or (isinstance(op, form) and dtype is None and is_normal(op, over)):
        return None
    shape = kept(x.shape, over)
    no_refusal(cannot_be_viewed_as(x.ssa, shape))
    y = x if dtype is None else x.cast(dtype)
    y = y.call(form, list(over), True, shape=shape, dtype=out.dtype).view(*out.shape)
    return (y, *[None] * (len(op.results) - 1))


def is_normal(op: SchemaOp, over: tuple[int, ...]) -> bool:
    """Whether a reduction lists its axes in order, keeps them and states no dtype."""
    stated = op.present()
    return (
        stated.get("dim") == list(over) and stated.get("keepdim") is True and "dtype" not in stated
    )


@lowers(
    "aten.bmm.default",
    to="aten",
    bound=roundings("torch may run the stack as another kernel"),
    sample="""
    %av = aten.view.default(%a, [6, 4, 8]) : (tensor<2x3x4x8xf32>) -> tensor<6x4x8xf32>
    %bv = aten.view.default(%b, [6, 8, 4]) : (tensor<2x3x8x4xf32>) -> tensor<6x8x4xf32>
    %p = aten.bmm.default(%av, %bv) : (tensor<6x4x8xf32>, tensor<6x8x4xf32>) -> tensor<6x4x4xf32>
    %y = aten.view.default(%p, [2, 3, 4, 4]) : (tensor<6x4x4xf32>) -> tensor<2x3x4x4xf32>
    """,
)
def unmerge_batch(left: Value, right: Value, *, op: Any, out: Out) -> Value | None:
    """Let a batched product read `[B, H, N, D]` where views merged it to `[B·H, N, D]`.

    XNNPACK multiplies stacks of any rank, so that the views only cost copies. The view after the
    product cancels with the one that restores the heads.
    """
    sources = [_merged_from(left), _merged_from(right)]
    merged = [source for source in sources if source is not None]
    if not merged:
        return None
    batch = min((source.shape[:-2] for source in merged), key=len)
    if len(merged) == 1 and not (_split_again(op, batch) or _stands_between_views(op)):
        refuse("one operand is a merged stack; the other operand and the result are not")
    pairs = zip(sources, (left, right), strict=True)
    stacks = [(source or given).view(*batch, *given.shape[-2:]) for source, given in pairs]
    product = stacks[0].call(aten.MatmulDefault, stacks[1], shape=(*batch, *out.shape[-2:]))
    return product.view(*out.shape)


def _split_again(op: SchemaOp, batch: Sequence[Dim]) -> bool:
    """Whether every user of a product is a view that restores the split batch axes."""
    readers = [use.operation for use in op.results[0].uses]
    return bool(readers) and all(
        isinstance(reader, aten.ViewDefault) and dims(reader.results[0].type)[:-2] == batch
        for reader in readers
    )


def _stands_between_views(op: SchemaOp) -> bool:
    """Whether operands and users of a product are views, so that one more view is free.

    This occurs if query heads share keys: the queries' rows are merged, the keys' are not.
    """
    readers = [use.operation for use in op.results[0].uses]
    around = [*(value.owner for value in op.operands), *readers]
    return bool(readers) and all(isinstance(other, aten.ViewDefault) for other in around)


def _merged_from(value: Value) -> Value | None:
    """Return the higher-rank value whose batch axes a view merged, else None."""
    if not isinstance(value.owner, aten.ViewDefault):
        return None
    source = Value(value.owner.operands[0], value.b)
    if source.rank > value.rank == 3 and source.shape[-2:] == value.shape[-2:]:
        return source if UNKNOWN not in source.shape else None
    return None


MOST_PARTS = 32
"""The roundings of n additions add up to n / 2 ulp of the largest partial sum."""


@lowers(
    "aten.mean.dim",
    "aten.sum.dim_IntList",
    to="aten",
    phases=("xnnpack/decompose",),
    bound=roundings("the parts are added in another order; those of a few units cancel"),
    sample="""
    %s = aten.cat.default([%x, %y, %z], 0) : (tensor<1x2x3xf32>, tensor<1x2x3xf32>, tensor<1x2x3xf32>) -> tensor<3x2x3xf32>
    %r = aten.mean.dim(%s, [0], true) : (tensor<3x2x3xf32>) -> tensor<1x2x3xf32>
    """,
)
def stacked_sum_to_additions(x: Value, *, op: Any, out: Out) -> Value | None:
    """Replace the sum or mean of stacked values by additions, without copying them to a stack.

    `torch.stack(skips).sum(0)` is a common form of skip connections, ensembles and experts. XNNPACK
    copies each part and reduces over an outer axis; symbolic sizes prevent the reduction.
    """
    joined = x.owner
    if not isinstance(joined, aten.CatDefault):
        return None
    at = axis(joined.arg("dim"), x.rank)
    if not is_normal(op, (at,)):
        refuse("the op reduces over other axes than the stacked axis")
    parts = [Value(part, x.b) for part in joined.operands]
    if out.dtype != f32:
        refuse("torch sums this dtype in float32 and rounds once; additions would each round")
    if not all(same_type(part.ssa, op.results[0]) for part in parts):
        refuse("a stacked part has several elements along the axis")
    if len(parts) > MOST_PARTS:
        refuse(f"there are more than {MOST_PARTS} parts")
    if not x.ssa.has_one_use():
        refuse("the stacked value is also read elsewhere")
    total, *rest = _before_views(parts)
    for part in rest:
        total = total.call(aten.AddTensor, part)
    if isinstance(op, aten.MeanDim):
        total = total * (1 / len(parts))
    return total.view(*out.shape)


def _before_views(parts: list[Value]) -> list[Value]:
    """Return the tensors to which views added the unit axis of a stack; the parts if not all have
    such a view, or their types differ.
    """
    views = [part.owner for part in parts if isinstance(part.owner, aten.ViewDefault)]
    seen = [Value(view.operands[0], parts[0].b) for view in views]
    if len(seen) != len(parts) or not all(same_type(seen[0].ssa, one.ssa) for one in seen):
        return parts
    return seen


RULES = lowerings_of(__name__)
