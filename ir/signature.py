"""A method's signature: the inputs and outputs of a call, stored as attributes of its `func.func`.

Dynamic inputs are the function's arguments, in order. Inputs that export specialized (flags, None,
strings) stay in the signature with their value, so that a call is checked against them. Each tensor
has a dim order (`(0, 2, 3, 1)` is channels-last); a missing one means row-major.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

from xdsl.dialects.builtin import (
    ArrayAttr,
    DenseArrayBase,
    DictionaryAttr,
    IntegerType,
    NoneAttr,
    StringAttr,
    i64,
)
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Operation, SSAValue

from stepwell.ir.identity_cache import once_each
from stepwell.ir.sizes.size import Dim
from stepwell.ir.sizes.size_ranges import interval
from stepwell.ir.syntax.nesting import spell, unspell

Constant = int | float | bool | str | None


@dataclass(frozen=True)
class Port:
    """An input or output. `constant` is a 1-tuple with the value of a specialized input."""

    name: str
    dim_order: tuple[int, ...] | None = None
    constant: tuple[Constant] | None = None


@dataclass(frozen=True)
class Signature:
    """Inputs and outputs in flat order, their nesting, and the ranges of symbolic dimensions.

    `in_spec` and `out_spec` are torch pytree specs as JSON (`ir.nesting` shortens them in text).
    `ranges` maps a symbol to its inclusive bounds (None: unbounded above).
    """

    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    in_spec: str | None = None
    out_spec: str | None = None
    ranges: dict[str, tuple[int, int | None]] = field(
        default_factory=dict[str, tuple[int, int | None]]
    )

    @property
    def runtime_inputs(self) -> tuple[Port, ...]:
        """Return the inputs that are arguments of the function."""
        return tuple(port for port in self.inputs if port.constant is None)

    @property
    def runtime_outputs(self) -> tuple[Port, ...]:
        """Return the outputs that are operands of the return op."""
        return tuple(port for port in self.outputs if port.constant is None)


def _port_attr(port: Port) -> DictionaryAttr:
    attributes: dict[str, Attribute] = {"name": StringAttr(port.name)}
    if port.dim_order is not None:
        attributes["dim_order"] = DenseArrayBase.from_list(i64, port.dim_order)
    if port.constant is not None:
        attributes["constant"] = StringAttr(json.dumps(port.constant[0]))
    return DictionaryAttr(attributes)


@once_each
def _port(attr: Attribute) -> Port:
    held = cast(DictionaryAttr, attr).data
    order = held.get("dim_order")
    constant = held.get("constant")
    return Port(
        cast(StringAttr, held["name"]).data,
        tuple(cast(DenseArrayBase[IntegerType], order).get_values()) if order else None,
        (json.loads(constant.data),) if isinstance(constant, StringAttr) else None,
    )


def set_signature(func: FuncOp, signature: Signature) -> None:
    """Write a signature into a function's attributes, replacing an existing one."""
    attributes = func.attributes
    attributes["stepwell.inputs"] = ArrayAttr([_port_attr(port) for port in signature.inputs])
    attributes["stepwell.outputs"] = ArrayAttr([_port_attr(port) for port in signature.outputs])
    for name, spec in (("in_spec", signature.in_spec), ("out_spec", signature.out_spec)):
        if spec is None:
            attributes.pop(f"stepwell.{name}", None)
        else:
            attributes[f"stepwell.{name}"] = StringAttr(spell(spec))
    attributes.pop("stepwell.ranges", None)
    if signature.ranges:
        attributes["stepwell.ranges"] = ArrayAttr(
            [StringAttr(_range_text(name, *bounds)) for name, bounds in signature.ranges.items()]
        )


def get_signature(func: FuncOp) -> Signature:
    """Read a function's signature; a function without attributes gets positional names."""
    attributes = func.attributes

    def text(name: str) -> str | None:
        attr = attributes.get(name)
        return attr.data if isinstance(attr, StringAttr) else None

    def spec(name: str) -> str | None:
        short = text(name)
        return None if short is None else unspell(short)

    def ports(name: str, types: Sequence[Attribute], stem: str) -> tuple[Port, ...]:
        attr = attributes.get(name, NoneAttr())
        if isinstance(attr, ArrayAttr):
            return tuple(_port(item) for item in cast(ArrayAttr[Attribute], attr).data)
        return tuple(Port(f"{stem}{index}") for index, _ in enumerate(types))

    ranges = attributes.get("stepwell.ranges", ArrayAttr([]))
    return Signature(
        ports("stepwell.inputs", func.function_type.inputs.data, "input_"),
        ports("stepwell.outputs", func.function_type.outputs.data, "output_"),
        spec("stepwell.in_spec"),
        spec("stepwell.out_spec"),
        dict(_range(item) for item in cast(ArrayAttr[StringAttr], ranges).data),
    )


_RANGE = re.compile(r"(-?\d+) <= (\w+)(?: <= (-?\d+))?")


def method_of(near: Operation | SSAValue | None) -> FuncOp | None:
    """Return the method that contains an op or a value, across nested regions; None outside one."""
    at = near.owner if isinstance(near, SSAValue) else near
    while at is not None and not isinstance(at, FuncOp):
        at = at.parent_op()
    return at


def ranges_around(near: Operation | SSAValue) -> dict[str, tuple[int, int | None]]:
    """Return the bounds of symbols of the enclosing method; empty outside a method."""
    method = method_of(near)
    if method is None or "stepwell.ranges" not in method.attributes:
        return {}
    return get_signature(method).ranges


def least_of(size: Dim, near: Operation | SSAValue) -> int:
    """Return the lower bound of a size from the ranges of the enclosing method; 0 if unknown."""
    return size if isinstance(size, int) else interval(size, ranges_around(near))[0] or 0


def most_of(size: Dim, near: Operation | SSAValue) -> int | None:
    """Return the upper bound of a size from the ranges of the enclosing method; None if unknown."""
    return size if isinstance(size, int) else interval(size, ranges_around(near))[1]


def _range_text(name: str, low: int, high: int | None) -> str:
    """Format a range: `2 <= s77 <= 16`, or `2 <= s77` if it has no upper bound."""
    return f"{low} <= {name}" + ("" if high is None else f" <= {high}")


def _range(item: StringAttr) -> tuple[str, tuple[int, int | None]]:
    match = _RANGE.fullmatch(item.data)
    if match is None:
        raise ValueError(f"{item.data!r} is not a range such as '2 <= s77 <= 16'")
    low, name, high = match.groups()
    return name, (int(low), None if high is None else int(high))
