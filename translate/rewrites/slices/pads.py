"""Canonicalize constant padding to `aten.constant_pad_nd.default` with its value.

rule pad-to-constant-pad
    The mode is constant.
Before:
    %y = aten.pad.default(%x, $?padding, $mode, $?value)
After:
    %y = aten.constant_pad_nd.default(%x, $padding, stated($value))
where is_constant($mode) else "its padding mode is {mode}, not constant"
where are_known($padding, $value) for target else "the padding is known only at run time"
for $padding = [1, 2], $mode = "constant", $value = none
not for $mode = "reflect"

rule state-padding-value
    A value that is not stated is 0.
Before:
    %y = aten.constant_pad_nd.default(%x, $?padding)
After:
    %y = aten.constant_pad_nd.default(%x, $padding, 0)
where leaves_value_out(%y) for termination
for $padding = [1, 2]
"""

from __future__ import annotations

from typing import cast

from xdsl.ir import SSAValue

from stepwell.dialects.aten.op import SchemaOp
from stepwell.translate.rules import read_rules
from stepwell.translate.rules.terms import at_run_time


def stated(value: float | None) -> float:
    """Return the padding value, 0 by default."""
    return 0 if value is None else value


def are_known(*arguments: object) -> bool:
    """Whether all numbers, also those in lists, are static."""
    return not any(map(at_run_time, arguments))


def is_constant(mode: str) -> bool:
    """Whether the padding mode is constant."""
    return mode == "constant"


def leaves_value_out(padded: SSAValue) -> bool:
    """Whether a padding op does not state its value."""
    return "value" not in cast(SchemaOp, padded.owner).properties


RULES = read_rules(__doc__, globals())
