"""Read and validate user-supplied numbers for a graph: Model Explorer's node data.

One graph's data is `{"results": {key: {"value": 0.5, "bgColor": "gold"}}}`, with `thresholds` or a
`gradient`; a file may contain data of several graphs, by graph name or by model and graph name. A
key is the name of a node or a value, or an id that `stepwell show --model-explorer` writes.
"""

import json
from pathlib import Path
from typing import Any

from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.platform.files import read_bytes

_FORM = '{"results": {"linear_2": {"value": 0.5}}} is the least: Model Explorer\'s node data'


def read_overlay(path: Path) -> dict[str, Any]:
    """Read the data of a file.

    Raises:
        StepwellError: the file is not JSON, or has no results.
    """
    try:
        data = json.loads(read_bytes(path))
    except ValueError as error:
        raise StepwellError(f"{path} is not valid JSON: {error}", help=_FORM) from error
    graphs = list(_graphs(data))
    if not graphs:
        raise StepwellError(f"{path} has no results of nodes", help=_FORM)
    for graph in graphs:
        for key, held in graph["results"].items():
            value = held.get("value") if isinstance(held, dict) else held
            if not isinstance(value, int | float | str):
                fact = f"{path}: {key!r} has no value that is a number or a text"
                raise StepwellError(fact, help=_FORM)
    return data


def _graphs(data: Any, depth: int = 3) -> list[dict[str, Any]]:
    if not isinstance(data, dict) or not depth:
        return []
    if isinstance(data.get("results"), dict):
        return [data]
    return [graph for held in data.values() for graph in _graphs(held, depth - 1)]
