"""Record the calls by which PyTorch computes an operator, on tensors without data.

A dispatch mode sees every call that reaches a kernel, including those of a composite kernel's
parts. In-place writes become functional ops. No operator needs code here.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from xdsl.ir import Attribute

from stepwell.dialects.aten.registry import functional_overload
from stepwell.dialects.symbols import tensor_type
from stepwell.ir.compat.torch.lazy_imports import symbolic_shapes
from stepwell.ir.compat.torch.torch_private import (
    TorchDispatchMode,
    memory_of,
    overloads_of,
    pytree,
    schema_of,
)

DEEPEST = 40
"""The nesting limit of functions; a deeper one is recursive."""

FunctionOf = Callable[[Any, bool], Callable[..., Any] | None]
"""(overload, whether it is the op that is traced) -> the function that decomposes it, or None.

With None, its call is recorded. A function that returns `NotImplemented` decomposes nothing.
"""


@dataclass(frozen=True)
class RecordedCall:
    """One recorded operator call. Arguments, by schema name, hold fake tensors, which represent
    values by identity.

    `types` are the types of the results at their creation: `transpose_` changes a shape later.
    """

    overload: Any
    arguments: dict[str, Any]
    results: tuple[torch.Tensor, ...]
    types: tuple[Attribute, ...]


class CannotTraceError(Exception):
    """Carries the reason why a decomposition cannot be traced out of the dispatcher."""


class FusedLayerError(CannotTraceError):
    """Raised if PyTorch chose a fused layer, as it does only for tensors on a CPU."""


FUSED_ATTENTION = "aten::_scaled_dot_product_flash_attention_for_cpu"
"""Attention on a CPU as PyTorch decomposes it, if its mask is as large as its scores."""


class Recorder(TorchDispatchMode):
    """Traces the functions that decompose operators, and records all other calls."""

    def __init__(self, root: Any, function_of: FunctionOf, env: symbolic_shapes.ShapeEnv) -> None:
        super().__init__()
        self.calls: list[RecordedCall] = []
        self._root = root
        self._function_of = function_of
        self._env = env
        self._kept: list[Any] = []  # Keeps fake tensors alive, so that no id is reused.
        self._current: dict[int, torch.Tensor] = {}
        self._written: dict[int, tuple[int, str]] = {}
        self._alone: set[int] = set()
        """Results of splits whose operand is not read again (`unsafe_chunk`, `unsafe_split`)."""
        self._depth = 0

    def latest(self, value: Any) -> Any:
        """Return the tensor that holds the current value of a written tensor.

        Raises:
            CannotTraceError: the tensor was written through another that shares its memory.
        """
        if not isinstance(value, torch.Tensor):
            return value
        writer, by = self._written.get(self._memory(value), (id(value), ""))
        if writer != id(value):
            raise CannotTraceError(f"the decomposition writes in place ({by})")
        return self._current.get(id(value), value)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = self._dispatched(func, args, kwargs or {})
        if func.name().startswith("aten::unsafe_"):
            pieces = [t for t in pytree.tree_leaves(result) if isinstance(t, torch.Tensor)]
            self._kept.append(pieces)
            self._alone.update(map(id, pieces))
        return result

    def _memory(self, tensor: torch.Tensor) -> int:
        """Return a key of a tensor's memory; tensors that share memory have the same key."""
        return id(tensor) if id(tensor) in self._alone else _storage(tensor)

    def _dispatched(self, func: Any, args: Any, kwargs: Any) -> Any:
        if schema_of(func).is_mutable:
            return self._functional(func, args, kwargs)
        if func.namespace == "prim" or not schema_of(func).returns:
            return func(*args, **kwargs)  # a query, or an assertion
        root = self._depth == 0 and func is self._root
        if "mkldnn" in func.name() and not root:
            raise FusedLayerError(f"{_spelled(func)} is a layer of oneDNN")
        function = self._function_of(func, root)
        if function is None:
            if func.name() == FUSED_ATTENTION and not root:
                raise FusedLayerError(f"{_spelled(func)} is a kernel of torch's CPU")
            return self._record(func, args, kwargs)
        return self.follow(function, func, args, kwargs)

    def call(self, overload: Any, *args: Any) -> Any:
        """Return the result of an operator whose call is recorded even if PyTorch decomposes it."""
        before, current, written = len(self.calls), dict(self._current), dict(self._written)
        result = self._record(overload, args, {})
        del self.calls[before:-1]  # The calls into which PyTorch decomposed it, to run it.
        self._current, self._written = current, written
        return result

    def follow(self, function: Callable[..., Any], func: Any, args: Any, kwargs: Any) -> Any:
        """Run a function that computes an operator by others, and record its calls."""
        if self._depth == DEEPEST:
            raise CannotTraceError(f"{_spelled(func)} decomposes into itself")
        self._depth += 1
        try:
            with self:
                taken_apart = function(*args, **kwargs)
        finally:
            self._depth -= 1
        if taken_apart is NotImplemented:
            raise CannotTraceError(f"{_spelled(func)} has no kernel and no decomposition")
        return taken_apart

    def _record(self, func: Any, args: Any, kwargs: Any) -> Any:
        func, args, kwargs = self._for_scalars(func, args, kwargs)
        args, kwargs = pytree.tree_map(self.latest, (args, kwargs))
        with self._guards_kept(func):
            result = func(*args, **kwargs)
        given = {**dict(zip(_names(func), args, strict=False)), **kwargs}
        tensors = tuple(t for t in pytree.tree_leaves(result) if isinstance(t, torch.Tensor))
        if tensors:  # otherwise it reads a number
            self.calls.append(RecordedCall(func, given, tensors, tuple(map(tensor_type, tensors))))
        self._kept.append((given, result))
        return result

    def _guards_kept(self, func: Any) -> AbstractContextManager[Any]:
        """Ignore the size guards of a convolution's fake kernel, which concern strides; keep
        others.
        """
        if func is torch.ops.aten.convolution.default:
            return self._env.suppress_guards()
        return nullcontext()

    def _functional(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Record `x.add_(y)` as `x' = x + y`; a later read of x through a view is refused.

        Autograd tracks views, but not below itself, where the parts of a decomposition run. Shared
        memory identifies views at every level.
        """
        functional = functional_overload(func)
        target = args[0] if args else None
        written = [a for a in schema_of(func).arguments if a.is_write]
        is_in_place = len(written) == 1 and not written[0].is_out
        if functional is None or not is_in_place or not isinstance(target, torch.Tensor):
            raise CannotTraceError(f"the decomposition writes in place ({_spelled(func)})")
        with self:
            before = self.latest(target)
            result = functional(before, *args[1:], **kwargs)
        after = self._current[id(target)] = self.latest(result)
        if self._memory(after) != self._memory(before):
            for memory in (self._memory(target), self._memory(before), _storage(target)):
                self._written[memory] = (id(target), _spelled(func))
        self._kept.append((target, before))
        if result.shape != target.shape:
            func(*args, **kwargs)  # `x.transpose_(0, 1)`: later calls read the tensor's shape.
        return target

    def _for_scalars(self, func: Any, args: Any, kwargs: Any) -> tuple[Any, Any, Any]:
        """Return `add.Scalar` where Python's operators call `add.Tensor` with a number.

        If there is no such operator (`1 - x`), the number becomes a tensor without axes.
        """
        tensors = [a.name for a in schema_of(func).arguments if str(a.type) == "Tensor"]
        given = {**dict(zip(_names(func), args, strict=False)), **kwargs}
        numbers = [n for n in tensors if n in given and not isinstance(given[n], torch.Tensor)]
        if not numbers:
            return func, args, kwargs
        for sibling in overloads_of(func):
            types = {a.name: str(a.type) for a in schema_of(sibling).arguments}
            fits = set(given) <= set(types) and all(
                types.get(n) == ("number" if n in numbers else "Tensor") for n in tensors
            )
            if fits and self._function_of(sibling, False) is None:
                return sibling, args, kwargs
        dtypes = {v.dtype for v in given.values() if isinstance(v, torch.Tensor)}
        if len(dtypes) != 1 or not all(isinstance(given[n], int | float) for n in numbers):
            raise CannotTraceError(f"{_spelled(func)} with a number for a tensor has no kernel")
        (dtype,) = dtypes
        for name in numbers:
            full = torch.ops.aten.full.default
            given[name] = self._record(full, ([], given[name]), {"dtype": dtype})
        return func, (), given


def _storage(tensor: torch.Tensor) -> int:
    """Return a key that identifies the storage of a tensor."""
    return memory_of(tensor.untyped_storage())


def _names(func: Any) -> list[str]:
    return [argument.name for argument in schema_of(func).arguments]


def _spelled(func: Any) -> str:
    return str(func).replace("::", ".")
