"""CUSTOM: call the operator that is registered under its names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stepwell.dialects.aten.interpretation import flat_results, plan_of
from stepwell.dialects.tosa import generated as t
from stepwell.dialects.tosa.custom import custom_named
from stepwell.ir.declared.interpretation import interprets
from stepwell.ir.diagnostics import StepwellError, describe_op


@interprets(t.CustomOp)
def _custom(op: t.CustomOp, args: Sequence[Any], ctx: object) -> Sequence[Any]:
    domain, operator = op.domain_name.data, op.operator_name.data
    custom = custom_named(domain, operator)
    if custom is None:
        raise StepwellError(
            f"tosa.custom: no implementation of {domain}::{operator} is registered",
            describe_op(op),
            f'stepwell.register_op(overload, tosa="{domain}::{operator}") registers one',
        )
    held = custom.unpack(op.implementation_attrs.data.encode("latin-1"))
    tensors = iter(args)
    given = {
        argument.name: next(tensors) if argument.type.is_tensor else held[argument.name]
        for argument in custom.op.SCHEMA.arguments
    }
    names = [argument.name for argument in custom.op.SCHEMA.arguments if argument.keyword_only]
    keywords = {name: given.pop(name) for name in names}
    return flat_results(plan_of(custom.op).overload(*given.values(), **keywords))
