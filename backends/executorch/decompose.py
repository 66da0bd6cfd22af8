"""Bring what stands outside delegates to operators the runtime has kernels for.

One op at a time is run on fake tensors of its operands' types; PyTorch's own dispatcher,
composite kernels and decomposition tables take it apart until every piece has a kernel, and the
pieces are written as IR. Nothing here knows any operator.

Before:
    func.func @forward(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
      %y = aten.silu.default(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>
      func.return %y : tensor<2x3xf32>
    }
After:
    func.func @forward(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
      %s = aten.sigmoid.default(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>
      %y = aten.mul.Tensor(%x, %s) : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
      func.return %y : tensor<2x3xf32>
    }
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import sympy
import torch
from torch._dispatch.python import enable_python_dispatcher
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode
from xdsl.dialects.builtin import TensorType
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Operation, SSAValue

from stepwell.backends.executorch.emit_control import CONTROL
from stepwell.backends.executorch.kernel_calls import kernel_of, runs_as_kernel
from stepwell.backends.executorch.sizes import Sizes, can_compute
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.aten.registry import of_overload, torch_overload
from stepwell.dialects.symbols import Ranges, Symbols
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.dtypes import element_type, has_torch_dtype
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Bound, Refusal, Rewrite, Rewriter
from stepwell.ir.signature import get_signature
from stepwell.ir.types import AnyTensor, Dim, element, is_static, tensor
from stepwell.translate.rewrites.aten.traced_calls import to_ir, to_torch, without_onednn


@dataclass(frozen=True)
class Piece:
    """One recorded call. Arguments hold fake tensors, which stand for values by identity.

    `types` are the results' when they were made: `transpose_` changes a tensor's shape later.
    """

    overload: Any
    arguments: dict[str, Any]
    results: tuple[torch.Tensor, ...]
    types: tuple[AnyTensor, ...]


@dataclass(frozen=True)
class _Template:
    """A decomposition that every op of the same name, types and arguments shares.

    `operands[i]` is the i-th operand's fake tensor, by which the pieces refer to it.
    """

    operands: tuple[Any, ...]
    pieces: tuple[Piece, ...]
    outputs: tuple[torch.Tensor, ...]


@dataclass(frozen=True)
class Decomposition:
    """What an op consists of."""

    op: SchemaOp
    template: _Template


class _CannotDecompose(Exception):
    """Carries the sentence of a refusal out of the dispatcher."""


@dataclass(frozen=True)
class DecomposeForKernels(Rewrite[Decomposition]):
    """An op without a kernel becomes ops with one, by PyTorch's own decompositions."""

    name: ClassVar[str] = "decompose-for-kernels"
    anchors: ClassVar[tuple[type[Operation], ...]] = (SchemaOp,)
    bound: ClassVar[Bound] = Bound(2e-5, 1e-5, "PyTorch's decompositions compute in another order")

    def match(self, op: SchemaOp, program: Program) -> Decomposition | Refusal | None:
        """Guards: outside delegates, and every piece has a kernel."""
        if runs_as_kernel(op):
            return None
        if not isinstance(op.parent_op(), FuncOp) and type(op.parent_op()) not in CONTROL:
            return None
        for value in (*op.operands, *op.results):
            type_ = value.type
            if isinstance(type_, TensorType) and not has_torch_dtype(element(type_)):
                return Refusal(f"it takes or gives {type_}, which PyTorch does not have")
        if not all(isinstance(result.type, TensorType) for result in op.results):
            return Refusal("it gives a number known only at run time")
        template = _template(op)
        return template if isinstance(template, Refusal) else Decomposition(op, template)

    def build(self, match: Decomposition, rw: Rewriter) -> None:
        """Write the pieces in order."""
        template = match.template
        operands = zip(template.operands, match.op.operands, strict=True)
        values: dict[int, SSAValue] = {id(fake): value for fake, value in operands}
        sizes = Sizes(rw, match.op.operands)
        for piece in template.pieces:
            cls = of_overload(piece.overload)
            given = to_ir(piece.arguments, values, sizes.value)
            made = rw.insert(cls.from_arguments(given, piece.types))
            for fake, result in zip(piece.results, made.results, strict=True):
                values[id(fake)] = result
                sizes.see(result)
        rw.replace(match.op, [values[id(output)] for output in template.outputs])


@functools.cache
def _tables() -> Mapping[Any, Callable[..., Any]]:
    """PyTorch's decompositions, those of the core operator set before the others."""
    from torch._decomp import core_aten_decompositions, decomposition_table

    return {**decomposition_table, **core_aten_decompositions()}


@functools.cache
def _has_kernel(overload: Any) -> bool:
    return not overload._schema.is_mutable and kernel_of(of_overload(overload)) is not None


class _Recorder(TorchDispatchMode):
    """Takes calls apart until each has a kernel, and records those."""

    def __init__(self, root: Any, env: ShapeEnv) -> None:
        super().__init__()
        self.root = root
        """The operator that is taken apart, even if it has a kernel."""
        self._env = env
        self.pieces: list[Piece] = []
        self.kept: list[Any] = []  # Keeps fake tensors alive, so that their ids stay theirs.
        self.current: dict[int, torch.Tensor] = {}
        self._depth = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func._schema.is_mutable:
            return self._functional(func, args, kwargs)
        if func.namespace == "prim" or not func._schema.returns:
            return func(*args, **kwargs)
        if _has_kernel(func) and not (self._depth == 0 and func is self.root):
            return self._record(func, args, kwargs)
        taken_apart = self._take_apart(func, args, kwargs)
        if taken_apart is NotImplemented:
            raise _CannotDecompose(f"{_spelled(func)} has no kernel and no decomposition")
        return taken_apart

    def _take_apart(self, func: Any, args: Any, kwargs: Any) -> Any:
        self._depth += 1
        try:
            if self._depth > 40:
                raise _CannotDecompose(f"{_spelled(func)} decomposes into itself")
            with self:
                table = _tables()
                if func in table:
                    return table[func](*args, **kwargs)
                if hasattr(func, "impl_aten"):
                    return func.impl_aten(*args, **kwargs)
                return func.decompose(*args, **kwargs)
        finally:
            self._depth -= 1

    def _record(self, func: Any, args: Any, kwargs: Any) -> Any:
        func = _for_scalars(func, args, kwargs)
        with self._guards_kept(func):
            result = func(*args, **kwargs)
        names = [argument.name for argument in func._schema.arguments]
        given = {**dict(zip(names, args, strict=False)), **kwargs}
        given = pytree.tree_map(self.latest, given)
        tensors = tuple(t for t in pytree.tree_leaves(result) if isinstance(t, torch.Tensor))
        self.pieces.append(Piece(func, given, tensors, tuple(map(type_of, tensors))))
        self.kept.append((given, result))
        return result

    def _guards_kept(self, func: Any) -> AbstractContextManager[Any]:
        """A convolution's fake kernel asks for sizes only to guess strides, which say nothing."""
        if func is torch.ops.aten.convolution.default:
            return self._env.suppress_guards()
        return nullcontext()

    def _functional(self, func: Any, args: Any, kwargs: Any) -> Any:
        """`x.add_(y)` as `x' = x + y`, where no other tensor sees x through a view."""
        functional = _functional_form(func)
        target = args[0] if args else None
        written = [a for a in func._schema.arguments if a.is_write]
        if (
            functional is None
            or len(written) != 1
            or not isinstance(target, torch.Tensor)
            or target._is_view()
        ):
            raise _CannotDecompose(f"its decomposition writes in place ({_spelled(func)})")
        with self:
            result = functional(self.latest(target), *args[1:], **kwargs)
        self.current[id(target)] = self.latest(result)
        self.kept.append(target)
        if result.shape != target.shape:
            func(*args, **kwargs)  # `x.transpose_(0, 1)`: later calls ask the tensor for its shape.
        return target

    def latest(self, value: Any) -> Any:
        """The tensor that holds what a written tensor now is."""
        return self.current.get(id(value), value) if isinstance(value, torch.Tensor) else value


def _functional_form(func: Any) -> Any:
    """`aten.relu.default` for `aten.relu_.default`, with the same arguments; or None."""
    if not func._schema.name.endswith("_"):
        return None
    name = func._schema.name.removesuffix("_").split("::")[1]
    packet = getattr(getattr(torch.ops, func.namespace), name, None)
    wanted = [(a.name, str(a.type)) for a in func._schema.arguments]
    for overload in packet.overloads() if packet is not None else ():
        found = getattr(packet, overload)
        if [(a.name, str(a.type)) for a in found._schema.arguments] == wanted:
            return found
    return None


def _for_scalars(func: Any, args: Any, kwargs: Any) -> Any:
    """`add.Scalar` where Python's operators call `add.Tensor` with a number."""
    arguments = func._schema.arguments
    tensors = [a.name for a in arguments if str(a.type) == "Tensor"]
    given = {**dict(zip((a.name for a in arguments), args, strict=False)), **kwargs}
    numbers = [n for n in tensors if n in given and not isinstance(given[n], torch.Tensor)]
    if not numbers:
        return func
    packet = func._overloadpacket
    for overload in packet.overloads():
        sibling = getattr(packet, overload)
        types = {a.name: str(a.type) for a in sibling._schema.arguments}
        fits = set(given) <= set(types) and all(
            types.get(n) == ("number" if n in numbers else "Tensor") for n in tensors
        )
        if fits and _has_kernel(sibling):
            return sibling
    raise _CannotDecompose(f"{_spelled(func)} with a number for a tensor has no kernel")


def _spelled(func: Any) -> str:
    return str(func).replace("::", ".")


_TEMPLATES: dict[Any, _Template | Refusal] = {}


def _template(op: SchemaOp) -> _Template | Refusal:
    order = {value: index for index, value in enumerate(reversed(op.operands))}
    shared = tuple(order[value] for value in op.operands)
    types = tuple(value.type for value in (*op.operands, *op.results))
    ranges = _ranges(op) if any(not _is_known(type_) for type_ in types) else {}
    stated = tuple(sorted(ranges.items()))
    key = (type(op), types, shared, frozenset(op.properties.items()), stated)
    found = _TEMPLATES.get(key)
    if found is None:
        found = _TEMPLATES[key] = _trace(op, ranges)
    return found


def _is_known(type_: Attribute) -> bool:
    return isinstance(type_, TensorType) and is_static(type_)


def _ranges(op: Operation) -> dict[str, tuple[int, int | None]]:
    """The ranges of symbols that the method around an op states."""
    parent: Operation | None = op
    while parent is not None and not isinstance(parent, FuncOp):
        parent = parent.parent_op()
    return get_signature(parent).ranges if parent is not None else {}


def _trace(op: SchemaOp, ranges: Ranges) -> _Template | Refusal:
    symbols = Symbols(ranges)
    recorder = _Recorder(torch_overload(type(op)), symbols.env)
    symbols.mode.allow_non_fake_inputs = True
    fakes: dict[SSAValue, Any] = {}
    for value in op.operands:
        if value not in fakes:
            fakes[value] = symbols.fake(value.type)
    with symbols.mode:
        positional, keywords = op.bind()
        positional, keywords = to_torch(positional, fakes), to_torch(keywords, fakes)
        try:
            with torch.no_grad(), without_onednn(), _dispatcher(op), recorder:
                results = torch_overload(type(op))(*positional, **keywords)
        except _CannotDecompose as error:
            return Refusal(str(error))
        except (RuntimeError, TypeError, ValueError, IndexError, StepwellError) as error:
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            return Refusal(f"PyTorch does not decompose it: {reason}")
    leaves = [t for t in pytree.tree_leaves(results) if isinstance(t, torch.Tensor)]
    outputs = tuple(recorder.latest(leaf) for leaf in leaves)
    if len(outputs) != len(op.results):
        return Refusal(f"its decomposition gives {len(outputs)} results, not {len(op.results)}")
    for guard in symbols.env.guards:
        if not is_of_more_than_one(guard.expr):
            return Refusal(f"its decomposition holds only where {guard.expr}")
    for output, result in zip(outputs, op.results, strict=True):
        if type_of(output) != result.type:
            return Refusal(f"its decomposition gives {type_of(output)}")
    operands = tuple(fakes[value] for value in op.operands)
    known = {id(t) for t in operands} | {id(r) for p in recorder.pieces for r in p.results}
    have = {value.type for value in op.operands}
    for piece in (*recorder.pieces, Piece(None, {"": outputs}, (), ())):
        for used in pytree.tree_leaves(piece.arguments):
            if isinstance(used, torch.Tensor) and id(used) not in known:
                return Refusal("its decomposition makes a constant tensor of its own")
            if isinstance(used, torch.SymInt) and not can_compute(used.node.expr, have):
                return Refusal(f"its decomposition needs the size {used.node.expr}")
        have.update(piece.types)
    return _Template(operands, tuple(recorder.pieces), outputs)


def is_of_more_than_one(guard: Any) -> bool:
    """Whether a guard says of a size that it is not 1, as `torch.export` assumes of every size.

    Strides and broadcasting ask for it. Ranks and sizes are stated by the op's own types, and a
    call that broadcasts a symbolic size against a number or another symbol guards their equality.
    """
    (size,) = guard.free_symbols if len(guard.free_symbols) == 1 else (None,)
    return guard in (sympy.Ne(size, 1), sympy.Lt(1, size), sympy.Gt(size, 1)) if size else False


def _dispatcher(op: SchemaOp) -> AbstractContextManager[Any]:
    """Composite kernels in C++ take no symbolic sizes, those of the Python dispatcher do."""
    static = all(_is_known(value.type) for value in op.operands)
    return nullcontext() if static else enable_python_dispatcher()


def type_of(fake: torch.Tensor) -> AnyTensor:
    """The IR's type of a fake tensor, symbolic sizes as expressions."""
    sizes = cast(Sequence[Any], fake.shape)
    shape = [d if isinstance(d, int) else _spelled_size(d) for d in sizes]
    return tensor(shape, element_type(fake.dtype))


def _spelled_size(size: Any) -> Dim:
    expression = size.node.expr
    return int(expression) if expression.is_number else str(expression)
