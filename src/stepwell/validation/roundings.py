"""Compute, next to each element that PyTorch computes, a bound of its rounding error.

Each float has an error bound per element, which is propagated through the operators of a program.
An operator adds the rounding of its own result to the propagated errors of its operands. An
elementwise operator is evaluated at both ends of its operand's interval. Data movement moves the
errors like the elements. A sum of products uses the magnitudes of its summands. A kernel of several
steps is analyzed step by step. The bounds therefore scale with the actual numbers, through
cancellation and overflow, too.

Sources: Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., sections 3.1 and 3.3.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from stepwell.dialects.aten.kernel_steps import STEPS
from stepwell.dialects.tosa_mxfp.operators import NAMESPACE
from stepwell.ir.compat.torch.torch_private import (
    TorchDispatchMode,
    decomposition_table,
    operator_and_overload,
    schema_of,
)
from stepwell.validation.error_rules import (
    LINEAR,
    MOVES,
    NO_ROUNDING,
    NoErrorRule,
    converted,
    flat,
    is_real,
    moved,
    pointwise,
    summed,
)

INTEGERS = frozenset("arange full zeros ones empty scalar_tensor rand randn randint eye".split())
"""Operators that create a tensor without a tensor operand."""


class Roundings(TorchDispatchMode):
    """A dispatch mode that records errors; `of(tensor)` is the distance from the exact result."""

    def __init__(self) -> None:
        super().__init__()
        self._errors: dict[int, tuple[Tensor, Tensor]] = {}

    def of(self, value: Any) -> Tensor | None:
        """Return the error of each element in f64; None for an exact value."""
        held = self._errors.get(id(value))
        return held[1] if held is not None else None

    def put(self, value: Tensor, error: Tensor | None) -> None:
        """Record the error of the elements of a tensor."""
        if error is not None:
            self._errors[id(value)] = (value, error.expand(value.shape))

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Run an operator, and record its rounding error."""
        given = dict(kwargs or {})
        tensors = [a for a in flat([*args, *given.values()]) if isinstance(a, Tensor)]
        known = {id(t): e for t in tensors if (e := self.of(t)) is not None}
        if schema_of(func).is_mutable:
            return self._in_place(func, args, given)
        if func.namespace == NAMESPACE:  # Its products round operands to a payload.
            raise NoErrorRule(str(func))
        result = func(*args, **given)
        floats = any(is_real(r) for r in flat([result]))
        if (not known and not floats) or func.namespace != "aten":
            return result
        self._note(func, args, given, known, result)
        return result

    def _note(
        self,
        func: Any,
        args: Sequence[Any],
        kwargs: dict[str, Any],
        known: dict[int, Tensor],
        result: Any,
    ) -> None:
        name = schema_of(func).name.removeprefix("aten::")
        if name in MOVES:
            if known:
                self._set(result, moved(func, args, kwargs, known))
        elif name in ("_to_copy", "to", "copy"):
            self.put(result, converted(args[0], known.get(id(args[0])), result))
        elif (steps := STEPS.get(name)) is not None and not _is_plain(name, args, kwargs):
            self._stepwise(steps, args, kwargs, known, result)
        elif torch.Tag.pointwise in func.tags or name in NO_ROUNDING:
            self.put(result, pointwise(func, name, args, kwargs, known, result))
        elif name in LINEAR:
            self.put(result, summed(func, name, args, kwargs, known, result))
        elif any(isinstance(a, Tensor) for a in flat([*args])) and not _is_index(name):
            self._stepwise(_parts(func), args, kwargs, known, result)

    def _stepwise(
        self,
        steps: Callable[..., Any],
        args: Sequence[Any],
        kwargs: dict[str, Any],
        known: Any,
        result: Any,
    ) -> None:
        """Analyze a kernel of several steps step by step."""
        with self:
            made = steps(*args, **kwargs)
        self._set(result, [self.of(step) for step in flat([made])])

    def _set(self, result: Any, errors: Any) -> None:
        for one, error in zip(flat([result]), flat([errors]), strict=False):
            if isinstance(one, Tensor) and isinstance(error, Tensor):
                self.put(one, error)

    def _in_place(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Run an in-place operator: `x.add_(y)` becomes `x.copy_(x.add(y))`."""
        name = schema_of(func).name.removeprefix("aten::").removesuffix("_")
        target = args[0]
        if name in ("zero", "fill") and target.numel():
            self._errors.pop(id(target), None)
            return func(*args, **kwargs)
        packet = getattr(torch.ops.aten, name, None)
        functional = getattr(packet, operator_and_overload(func)[1], None)
        if functional is None or "out" in kwargs:
            if any(self.of(a) is not None for a in flat([*args])):
                raise NoErrorRule(str(func))
            return func(*args, **kwargs)
        with self:
            made = functional(*args, **kwargs)
        error = self.of(made)
        func(*args, **kwargs)
        base = target._base if target._base is not None else target
        if error is None and self.of(base) is None:
            return target
        whole = self.of(base)
        whole = torch.zeros_like(base, dtype=torch.float64) if whole is None else whole.clone()
        lying = target.size(), target.stride(), target.storage_offset() - base.storage_offset()
        if whole.stride() != base.stride():
            raise NoErrorRule(f"{func} of a tensor that is not in row-major order")
        whole.as_strided(*lying).copy_(torch.zeros(()) if error is None else error)
        self.put(base, whole)
        if base is not target:
            self.put(target, whole.as_strided(*lying))
        return target


def _parts(func: Any) -> Callable[..., Any]:
    """Return PyTorch's own decomposition of an operator."""
    if (steps := decomposition_table.get(func)) is not None:
        return steps

    def composite(*args: Any, **kwargs: Any) -> Any:
        made = func.decompose(*args, **kwargs)
        if made is NotImplemented:
            raise NoErrorRule(str(func))
        return made

    return composite


def _is_index(name: str) -> bool:
    """Whether an operator returns indices, which are not analyzed: near ties may differ."""
    return name in INTEGERS or name.startswith(("arg", "new_", "nonzero")) or name.endswith("_like")


def _is_plain(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether a sum has no factors and therefore rounds once."""
    factor = kwargs.get("alpha", args[2] if len(args) > 2 and name == "rsub" else 1)
    return name in ("add", "sub", "rsub") and factor == 1
