"""Custom operators in TOSA's CUSTOM, and the encoding of their arguments as bytes.

CUSTOM has tensors, two names and bytes; an operator's other arguments are encoded in the bytes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.diagnostics import StepwellError

Pack = Callable[[Mapping[str, Any]], bytes]
Unpack = Callable[[bytes], Mapping[str, Any]]


def _pack(arguments: Mapping[str, Any]) -> bytes:
    return json.dumps(dict(arguments), separators=(",", ":"), allow_nan=False).encode()


@dataclass(frozen=True)
class Custom:
    """An operator's names in TOSA, and the encoding of its arguments that are not tensors.

    `pack` raises TypeError or ValueError for arguments without an encoding.
    """

    op: type[SchemaOp]
    domain: str
    operator: str
    pack: Pack = _pack
    unpack: Unpack = json.loads


_BY_OP: dict[type[SchemaOp], Custom] = {}
_BY_NAME: dict[tuple[str, str], Custom] = {}


def register_custom(
    op: type[SchemaOp], name: str, attributes: tuple[Pack, Unpack] | None = None
) -> None:
    """Register an operator as CUSTOM in TOSA.

    Args:
        op: the operator.
        name: `domain::operator`, as in a TOSA program.
        attributes: functions from arguments to bytes and back; JSON by default.

    Raises:
        StepwellError: the name does not have two parts, the operator writes to its arguments, or
            one of the two is registered already.
    """
    domain, _, operator = name.rpartition("::")
    if not domain or not operator:
        raise StepwellError(
            f"{name!r} is not a domain::operator", help="for example com.example::gate"
        )
    if op.SCHEMA.is_mutable:
        raise StepwellError(f"{op.name} writes to its arguments, which no TOSA operator does")
    if op in _BY_OP or (domain, operator) in _BY_NAME:
        raise StepwellError(f"{op.name} or {name} is registered as CUSTOM already")
    made = Custom(op, domain, operator, *(attributes or (_pack, json.loads)))
    _BY_OP[op] = _BY_NAME[domain, operator] = made


def custom_of(op: type[Any]) -> Custom | None:
    """Return the CUSTOM form of an operator, if registered."""
    return _BY_OP.get(op)


def custom_named(domain: str, operator: str) -> Custom | None:
    """Return the operator of a CUSTOM, if registered."""
    return _BY_NAME.get((domain, operator))
