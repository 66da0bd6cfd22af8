"""What PyTorch itself computes as other operators, written as those.

A composite operator has no kernel: PyTorch's dispatcher runs a function over other operators, and
that function, run here on tensors without data, says which. So the result is what eager PyTorch
gives, and nothing here knows any operator. It runs behind a target's lowerings, on what they left.

Before:
    func.func @forward(%x: tensor<2x3xf32>, %z: tensor<2x3xf32>) -> tensor<2xf32> {
      %y = aten.pairwise_distance.default(%x, %z, 1.0) : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2xf32>
      func.return %y : tensor<2xf32>
    }
After:
    func.func @forward(%x: tensor<2x3xf32>, %z: tensor<2x3xf32>) -> tensor<2xf32> {
      %0 = aten.sub.Tensor(%x, %z) : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
      %1 = aten.add.Scalar(%0, 1.0e-06) : (tensor<2x3xf32>) -> tensor<2x3xf32>
      %y = aten.norm.ScalarOpt_dim(%1, 1.0, [1]) : (tensor<2x3xf32>) -> tensor<2xf32>
      func.return %y : tensor<2xf32>
    }
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode
from xdsl.ir import Operation, SSAValue

from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.aten.registry import of_overload, torch_overload
from stepwell.dialects.symbols import Symbols, tensor_type
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Bound, Refusal, Rewrite, Rewriter
from stepwell.translate.rewrites.aten.fold_constants import is_plain
from stepwell.translate.rewrites.aten.traced_calls import to_ir, to_torch, without_onednn

TABLED = frozenset(
    """_prelu_kernel affine_grid_generator aminmax heaviside masked_fill.Scalar masked_fill.Tensor
    mse_loss rot90 xlogy.Tensor""".split()
)
"""Operators with kernels whose entry in PyTorch's decomposition table computes what the kernel does."""


@dataclass(frozen=True)
class Piece:
    """One call. Arguments hold tensors without data, which stand for values by identity."""

    overload: Any
    arguments: dict[str, Any]
    results: tuple[torch.Tensor, ...]


@dataclass(frozen=True)
class Composite:
    """What an operator consists of; `operands[i]` stands for its i-th operand."""

    op: SchemaOp
    operands: tuple[torch.Tensor, ...]
    pieces: tuple[Piece, ...]
    outputs: tuple[torch.Tensor, ...]


class _Recorder(TorchDispatchMode):
    """Sees the calls that reach a kernel."""

    def __init__(self) -> None:
        super().__init__()
        self.pieces: list[Piece] = []
        self.now: dict[int, torch.Tensor] = {}
        """What a tensor holds that was written in place."""
        self.kept: list[Any] = []

    def latest(self, value: Any) -> Any:
        """The tensor that holds what a written tensor now is."""
        return self.now.get(id(value), value) if isinstance(value, torch.Tensor) else value

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace == "prim":  # asks a tensor for its device or its layout
            return func(*args, **(kwargs or {}))
        function = _function_of(func._schema.name, func._schema.overload_name)
        if function is not None:
            with self:
                return function(*args, **(kwargs or {}))
        if func._schema.is_mutable:
            return self._written(func, args, kwargs or {})
        args, kwargs = pytree.tree_map(self.latest, (args, kwargs or {}))
        given = dict(zip((a.name for a in func._schema.arguments), args, strict=False))
        result = func(*args, **kwargs)
        tensors = tuple(t for t in pytree.tree_leaves(result) if isinstance(t, torch.Tensor))
        if tensors:  # an assertion gives none, nor a question for a size
            self.pieces.append(Piece(func, {**given, **kwargs}, tensors))
        return result

    def _written(self, func: Any, args: Any, kwargs: Any) -> Any:
        """`x.add_(y)` as `x + y`, which x is from then on; of a view the whole would change too."""
        name = func._schema.name.split("::")[1].removesuffix("_")
        functional = getattr(getattr(torch.ops.aten, name, None), func._overloadname, None)
        if functional is None or args[0]._is_view():
            raise RuntimeError(f"{func} writes in place")
        with self:
            self.now[id(args[0])] = functional(self.latest(args[0]), *args[1:], **kwargs)
        self.kept.append(args[0])
        return args[0]


@dataclass(frozen=True)
class TakeCompositesApart(Rewrite[Composite]):
    """A composite operator to those that it consists of."""

    name: ClassVar[str] = "take-composites-apart"
    anchors: ClassVar[tuple[type[Operation], ...]] = (SchemaOp,)
    bound: ClassVar[Bound] = Bound(2e-5, 1e-5, "its pieces may round in another order")

    def match(self, op: SchemaOp, program: Program) -> Composite | Refusal | None:
        """Guards: composite, of known sizes, and nothing in it writes in place."""
        if not is_composite(op):
            return None
        values = (*op.operands, *op.results)
        if not all(is_plain(value.type) for value in values):
            return Refusal("a size or a number of it is known only at run time")
        return _taken_apart(op)

    def build(self, match: Composite, rw: Rewriter) -> None:
        """Write the pieces in order."""
        pairs = zip(match.operands, match.op.operands, strict=True)
        values: dict[int, SSAValue] = {id(fake): value for fake, value in pairs}
        for piece in match.pieces:
            given = to_ir(piece.arguments, values)
            types = tuple(map(tensor_type, piece.results))
            made = rw.insert(of_overload(piece.overload).from_arguments(given, types))
            for fake, result in zip(piece.results, made.results, strict=True):
                values[id(fake)] = result
        rw.replace(match.op, [values[id(output)] for output in match.outputs])


def is_composite(op: SchemaOp) -> bool:
    """Whether PyTorch has a function over others for an operator, which stands for it."""
    schema = op.SCHEMA
    overload = "" if schema.overload == "default" else schema.overload
    function = _function_of(f"{schema.namespace}::{schema.operator}", overload)
    return schema.namespace == "aten" and function is not None


def _function_of(name: str, overload: str) -> Callable[..., Any] | None:
    space, _, operator = name.partition("::")
    whole = f"{operator}.{overload}" if overload else operator
    found = getattr(getattr(getattr(torch.ops, space), operator), overload or "default")
    if space == "aten" and whole in TABLED:
        from torch._decomp import decomposition_table

        return decomposition_table[found]
    key = "CompositeImplicitAutograd"
    is_composite = torch._C._dispatch_has_kernel_for_dispatch_key(f"{space}::{whole}", key)
    return found.decompose if is_composite else None


def _taken_apart(op: SchemaOp) -> Composite | Refusal:
    symbols = Symbols()
    fakes = {value: symbols.fake(value.type) for value in op.operands}
    recorder = _Recorder()
    positional, keywords = op.bind()
    positional, keywords = to_torch(positional, fakes), to_torch(keywords, fakes)
    try:
        with symbols.mode, torch.no_grad(), without_onednn(), recorder:
            results = torch_overload(type(op))(*positional, **keywords)
    except RuntimeError as error:
        # Also where it brings a tensor of its own, which has data.
        return Refusal(f"PyTorch's function for it asks for data: {str(error).splitlines()[0]}")
    leaves = pytree.tree_leaves(results)
    outputs = tuple(recorder.latest(leaf) for leaf in leaves if isinstance(leaf, torch.Tensor))
    made = [tensor_type(output) for output in outputs]
    assert made == [result.type for result in op.results], f"{op.name} consists of {made}"
    operands = tuple(fakes[value] for value in op.operands)
    return Composite(op, operands, tuple(recorder.pieces), outputs)
