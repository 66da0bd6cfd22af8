"""Rewrites that replace one op by another op with other arguments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.rewriting.rewrite import Rewrite, Rewriter
from stepwell.translate.rewrites.building import emit_as


@dataclass(frozen=True)
class Respelled:
    """`form(**arguments)` computes the first result of `op`; no other result is used."""

    op: SchemaOp
    form: type[SchemaOp]
    arguments: Mapping[str, Any]


@dataclass(frozen=True)
class Respell(Rewrite[Respelled]):
    """Base of the rewrites whose replacement is one op; subclasses write `match`."""

    def build(self, match: Respelled, rw: Rewriter) -> None:
        """Build the op in its canonical form."""
        result = match.op.results[0]
        new = match.form.from_arguments(dict(match.arguments), [result.type])
        rw.replace_value(result, emit_as(rw, new, result))
        rw.erase(match.op)
