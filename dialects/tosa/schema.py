"""The parser of `tosa.fbs`, the flatbuffer schema in tosa-tools."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

from stepwell.ir.diagnostics import StepwellError


@dataclass(frozen=True)
class Table:
    """A table: its fields in slot order, each a name and a type such as `[int32]`."""

    name: str
    fields: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class OperatorSchema:
    """Operators by number with their attribute tables, and the enumerations by name."""

    operators: tuple[tuple[str, int, Table], ...]
    enumerations: dict[str, dict[str, int]]


def schema_path() -> Path:
    """Return the path of `tosa.fbs` in the installed tosa-tools.

    Raises:
        StepwellError: tosa-tools is not installed, or does not contain it.
    """
    help = "pip install 'stepwell[tosa]'"
    try:
        held = files("tosa-tools") or ()
    except PackageNotFoundError:
        raise StepwellError(
            "tosa-tools, which has the schema, is not installed", help=help
        ) from None
    for path in held:
        if path.name == "tosa.fbs":
            return Path(str(path.locate()))
    raise StepwellError("tosa-tools does not contain tosa.fbs", help=help)


def read_schema(text: str) -> OperatorSchema:
    """Parse the schema: enumerations, the attribute union, and each attribute's table."""
    text = re.sub(r"//[^\n]*", "", text)
    enumerations = {
        name: _cases(body) for name, body in re.findall(r"enum (\w+):uint32 \{([^}]*)\}", text)
    }
    tables = {
        name: Table(name, tuple(re.findall(r"(\w+)\s*:\s*(\[?\w+\]?)[^;]*;", body)))
        for name, body in re.findall(r"table (\w+) \{([^}]*)\}", text)
    }
    union = re.search(r"union Attribute \{([^}]*)\}", text)
    if union is None or "Op" not in enumerations:
        raise StepwellError("tosa.fbs has no union Attribute or no enum Op")
    members = re.findall(r"\w+", union.group(1))
    operators = [(name, code) for name, code in enumerations["Op"].items() if code]
    if len(members) != len(operators):
        raise StepwellError("tosa.fbs: operators and attributes do not correspond")
    return OperatorSchema(
        tuple(
            (name, code, tables[member])
            for (name, code), member in zip(operators, members, strict=True)
        ),
        enumerations,
    )


def _cases(body: str) -> dict[str, int]:
    cases: dict[str, int] = {}
    following = 0
    for name, value in re.findall(r"(\w+)\s*(?:=\s*(\d+))?", body):
        following = int(value) if value else following
        cases[name] = following
        following += 1
    return cases
