"""Axis maps of schema ops by name: where rules are registered and looked up (`axes.py` has them).

A rule gives a map, or None where the arguments make the op opaque.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from stepwell.ir.axes import AxisMap

AxisRule = Callable[[Any, int], AxisMap | None]
_RULES: dict[str, AxisRule] = {}
_F = TypeVar("_F", bound=AxisRule)


def maps(*names: str) -> Callable[[_F], _F]:
    """Register the rule of operators; `add.Tensor` is `aten.add.Tensor`."""

    def register(rule: _F) -> _F:
        for name in names:
            assert name not in _RULES, name
            _RULES[f"aten.{name}"] = rule
        return rule

    return register


def axis_rule(name: str) -> AxisRule | None:
    """The rule of an operator."""
    return _RULES.get(name)


def mapped_names() -> tuple[str, ...]:
    """Every operator that has a rule."""
    return tuple(_RULES)
