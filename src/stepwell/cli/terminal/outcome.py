"""Write the outcome of a command as JSON (`--json FILE`), in one shape for all commands."""

import argparse
import dataclasses
import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import stepwell
from stepwell.ir.diagnostics import StepwellError


@dataclass(frozen=True)
class Outcome:
    """The outcome of a command.

    Attributes:
        result: the command's figures: a dataclass, or plain values by name.
        files: the files that the command wrote.
        code: the exit code.
    """

    result: Any = field(default_factory=dict[str, Any])
    files: Sequence[Path] = ()
    code: int = 0


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add the option `--json FILE`."""
    parser.add_argument(
        "--json",
        metavar="FILE",
        help="write what is found as JSON (docs/workbench.md); -: to the output, in the text's "
        "place",
    )


def json_of(arguments: Sequence[str]) -> str | None:
    """Return the value of `--json` without parsing the other arguments, as `opt` needs it."""
    for at, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        if name == "--json":
            return value if equals else next(iter(arguments[at + 1 :]), None)
    return None


def told(command: str, outcome: Outcome | StepwellError) -> str:
    """Return a command's outcome or error as JSON.

    The shape is the same for all commands: `stepwell` (the version), `command`, `exit`, `files`,
    `errors` (each a `fact`, with `where` and `help`) and `result`, which is null after an error.
    """
    failed = isinstance(outcome, StepwellError)
    document = {
        "stepwell": stepwell.__version__,
        "command": command,
        "exit": 1 if failed else outcome.code,
        "files": [] if failed else outcome.files,
        "errors": outcome.problems if failed else [],
        "result": None if failed else outcome.result,
    }
    return json.dumps(plain(document), indent=1, allow_nan=False)


def plain(value: Any) -> Any:
    """Return a value in JSON's types: dataclasses by their fields, NaN and infinities as
    strings.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {one.name: plain(getattr(value, one.name)) for one in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        held = cast("Mapping[Any, Any]", value)
        return {str(name): plain(one) for name, one in held.items()}
    if isinstance(value, list | tuple | set | frozenset):
        items = cast("Sequence[Any]", value)
        return [plain(one) for one in items]
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, os.PathLike):
        return os.fspath(cast("os.PathLike[str]", value))
    return value if value is None or isinstance(value, bool | int | str) else str(value)
