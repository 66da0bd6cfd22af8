"""Every op of every dialect: operands, fields, shape, semantics and limits, from its class."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from itertools import groupby
from typing import Any

from xdsl.ir import Dialect, Operation
from xdsl.irdl import (
    AttrSizedOperandSegments,
    OptOperandDef,
    OptPropertyDef,
    OptResultDef,
    VarOperandDef,
    VarResultDef,
)

from reference.text import fenced, first_paragraph, folded, prose, table, where
from stepwell.dialects import HOMES, PACKAGES
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.aten.operators import OPERATORS
from stepwell.dialects.aten.registry import op_class
from stepwell.dialects.tosa import forms
from stepwell.ir.core import Stepwell
from stepwell.ir.declared.inference import inference_rule
from stepwell.ir.declared.interpretation import rule_for

ABOUT = {
    "aten": "torch's operators, one per overload, with its schema",
    "cmsis": "CMSIS-NN's int8 operators in ExecuTorch's `cortex_m` library",
    "control": "control flow: conditions, loops and maps as regions",
    "ethosu": "delegates of an Ethos-U",
    "executorch": "delegates that stepwell cannot read",
    "quant": "casts between numbers and quantized types",
    "stepwell": "weights, state and mutated inputs",
    "sym": "arithmetic on sizes and other dynamic scalars",
    "tosa": "TOSA's operators, from the schema of tosa-tools",
    "tosa_mxfp": "block-scaled layers of ExecuTorch",
    "xnnpack": "one op for each node of ExecuTorch's XNNPACK schema",
}


def dialects() -> dict[str, Dialect]:
    """Load every dialect, by name."""
    found = {"stepwell": Stepwell}
    for name in PACKAGES:
        module = importlib.import_module(f"stepwell.dialects.{HOMES.get(name, name)}")
        (found[name],) = {
            id(v): v for v in vars(module).values() if isinstance(v, Dialect) and v.name == name
        }.values()
    return dict(sorted(found.items()))


def pages() -> dict[str, str]:
    """Return one page per dialect, and an index."""
    found: dict[str, str] = {"reference/ops/aten.md": _aten()}
    rows = [("[`aten`](aten.md)", str(len(OPERATORS)), ABOUT["aten"])]
    for name, dialect in dialects().items():
        ops = [cls for cls in dialect.operations if _is_ours(cls, name)]
        if name == "aten":
            continue
        rows.append((f"[`{name}`]({name}.md)", str(len(ops)), ABOUT[name]))
        module = importlib.import_module(
            ops[0].__module__.rsplit(".", 1)[0]
            if name in ("cmsis", "xnnpack", "tosa")
            else ops[0].__module__
        )
        text = [f"# Dialect `{name}`\n", prose(module.__doc__), ""]
        types = [a for a in dialect.attributes if a.__doc__]
        if types:
            text += ["Types and attributes:\n"]
            text += [f"- `{a.name}`: {first_paragraph(a.__doc__)}" for a in types] + [""]
        text += [entry(cls) for cls in ops]
        found[f"reference/ops/{name}.md"] = "\n".join(text)
    found["reference/ops/index.md"] = (
        "# Ops\n\nEvery level prints as text and parses back. These pages are written from the "
        "classes that the parser, the verifier and the interpreter use.\n\n"
        + table(("dialect", "ops", "what"), rows)
    )
    return found


def _is_ours(cls: type[Operation], dialect: str) -> bool:
    return cls.name.startswith(f"{dialect}.")


def entry(cls: Any) -> str:
    """Render an op's section."""
    definition = cls.get_irdl_definition()
    parts = [f"## {cls.name}\n", prose(cls.__doc__), ""]
    rows = [(f"`{n}`", "operand" + _many(d), _constraint(d)) for n, d in definition.operands]
    rows += [
        (f"`{n}`", "field" + ", optional" * isinstance(d, OptPropertyDef), _constraint(d))
        for n, d in {**definition.properties, **definition.attributes}.items()
        if n not in (AttrSizedOperandSegments.attribute_name, "resultSegmentSizes")
    ]
    rows += [(f"`{n}`", "region", "") for n, _ in definition.regions]
    rows += [(f"`{n}`", "result" + _many(d), _constraint(d)) for n, d in definition.results]
    if rows:
        parts += [table(("", "is", "of type"), rows)]
    parts += [f"- {line}" for line in (*_limits(cls), *_shape(cls))] + [""]
    if (rule := rule_for(cls)) is not None:
        parts.append(folded("semantics: the interpreter's function", _source(rule)))
    named = map(vars(cls).get, ("check", "verify_", "problems", "check_datatypes"))
    checks = [c for c in named if callable(c) and c.__module__.startswith("stepwell.")]
    if checks:
        parts.append(folded("the verifier", "\n".join(map(_source, checks))))
    return "\n".join(parts)


def _many(held: Any) -> str:
    if isinstance(held, OptOperandDef | OptResultDef):
        return ", optional"
    return "s, any number" if isinstance(held, VarOperandDef | VarResultDef) else ""


def _constraint(held: Any) -> str:
    """List the names of the attribute classes that a definition accepts."""
    names: list[str] = []

    def visit(value: Any, depth: int = 0) -> None:
        if isinstance(value, type) and depth:
            names.append(_type_name(value))
        elif isinstance(value, tuple | list):
            for item in value:
                visit(item, depth + 1)
        elif depth < 6:
            for name in (
                "constr",
                "constraint",
                "attr_constrs",
                "attr",
                "base_attr",
                "possible_values",
            ):
                if (inner := getattr(value, name, None)) is not None:
                    visit(inner, depth + 1)

    visit(held)
    return ", ".join(f"`{name}`" for name in dict.fromkeys(names)) or "any"


def _type_name(cls: type) -> str:
    spelled = getattr(cls, "name", cls.__name__)
    known = {
        "array": "list of integers",
        "float": "number",
        "integer": "integer",
        "unit": "flag",
        "string": "text",
        "bool": "truth value",
    }
    return known.get(spelled, spelled) if isinstance(spelled, str) else cls.__name__


def _limits(cls: Any) -> list[str]:
    """Format the tables that a class declares as sentences."""
    found: list[str] = []
    if (node := vars(cls).get("NODE")) is not None:
        found.append(f"node of XNNPACK's schema: `{node}`")
    if (operator := vars(cls).get("OPERATOR")) is not None:
        found.append(f"operator of the library: `{operator}`")
    if types := getattr(cls, "DATATYPES", ()):
        spelled = [
            t if isinstance(t, str) else " × ".join(x or "none" for x in t[:-1]) + f" → {t[-1]}"
            for t in types
        ]
        found.append("datatypes: " + ", ".join(f"`{t}`" for t in spelled))
    if cls in forms.FORMS:
        rows: list[str] = []
        for signature, needs in forms.FORMS[cls].items():
            types = ", ".join(forms._SPELLED.get(t, str(t)) for t in signature)
            asked = " or ".join("+".join(sorted(n)) or "any" for n in needs)
            rows.append(f"`{types}` ({asked})")
        found.append("element types, and what each requires of the target: " + "; ".join(rows))
    return found


def _shape(cls: Any) -> list[str]:
    rule = inference_rule(cls)
    if rule is None:
        return ["shape: stated in the text; the verifier compares"]
    said = first_paragraph(rule.__doc__)
    return [f"shape: {said or 'inferred'} (`{where(rule)}`, `{rule.__name__}`)"]


def _source(function: Callable[..., Any]) -> str:
    text = inspect.getsource(function)
    indent = len(text) - len(text.lstrip())
    body = "\n".join(line[indent:] for line in text.splitlines())
    return f"`{where(function)}`\n\n{fenced(body, 'python')}"


def _aten() -> str:
    """Render torch's operators as a table, because they differ only in their schemas."""
    parts = [
        "# Dialect `aten`\n\n"
        "One op for each functional overload; its operands, fields and results are those of "
        "torch's schema, in order. An operator that is not listed is created from its schema on "
        "first use; `stepwell.register_op` registers one that torch does not load itself.\n\n"
        "**Shape**: asked of torch's own meta kernels, and computed by rules for the commonest "
        "ops and for symbolic sizes. **Meaning**: what torch computes. **Limits**: an op that "
        "writes to its arguments has no place here, import makes programs functional. Which of "
        "them a target takes, and in which forms: [XNNPACK](../../xnnpack.md), "
        "[Cortex-M](../../cortex_m.md), [TOSA](../../tosa_operators.md).\n\n"
        + fenced("%y = aten.mul.Tensor(%a, %b) : (tensor<2x3xf32>, tensor<3xf32>) -> …", "text")
    ]
    for title, classes in groupby(sorted(OPERATORS, key=_place), lambda cls: _place(cls)[0]):
        rows = [
            (f"`{cls.name}`", f"`{cls.__doc__}`", "pure" if _is_pure(cls) else "ordered")
            for cls in classes
        ]
        parts += [f"## {title}\n", table(("op", "schema", ""), rows)]
    assert op_class("aten.mul.Tensor")
    return "\n".join(parts)


def _place(cls: type[SchemaOp]) -> tuple[str, str]:
    """Return the heading under which an op is listed, and its place there."""
    schema = cls.SCHEMA
    letter = f", {schema.operator.lstrip('_')[0].lower()}" if schema.namespace == "aten" else ""
    return schema.namespace + letter, cls.__name__


def _is_pure(cls: Any) -> bool:
    return any(type(t).__name__ == "Pure" for t in cls.traits.traits)
