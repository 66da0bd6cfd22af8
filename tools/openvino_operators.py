"""Write the table of OpenVINO's operators, `operators.txt`, from the functions of its newest opset.

    python tools/openvino_operators.py

Each function of an opset states an operator's operands (parameters of type `NodeInput`), its
attributes with their types, and in which opset it was introduced. One line is one operator:

    Convolution opset1 data filters : strides=ints pads_begin=ints …

An operand with `?` may be left out; one with `*` stands for any number.
"""

from __future__ import annotations

import ast
import importlib
import inspect
from pathlib import Path
from typing import Any

from stepwell.integrations.openvino.emit import OPSET

ROOT = Path(__file__).resolve().parents[1]
TABLE = ROOT / "src/stepwell/integrations/openvino/operators.txt"
KINDS = {
    **dict.fromkeys(("list[int]", "TensorShape", "Optional[TensorShape]"), "ints"),
    **dict.fromkeys(("Optional[list[int]]", "Optional[list]"), "ints"),
    **{name: name for name in ("int", "float", "bool")},
    **{f"Optional[{name}]": name for name in ("int", "float", "bool")},
    **dict.fromkeys(("ScalarData", "NumericType"), "float"),
}
"""Annotations of parameters → kinds of attributes; any other one is a string (an enumeration)."""


def lines() -> list[str]:
    """Return the table's lines, sorted by the operators' names."""
    opset = importlib.import_module(f"openvino.{OPSET}")
    functions = (value for value in vars(opset).values() if inspect.isroutine(value))
    found = {line for function in functions if (line := _line(inspect.unwrap(function)))}
    return sorted(found)


def _line(function: Any) -> str | None:
    """Return an operator's line; None if the function creates no operator of a single type."""
    definition = ast.parse(inspect.getsource(function)).body[0]
    calls = [node for node in ast.walk(definition) if isinstance(node, ast.Call)]
    made = [c for c in calls if isinstance(c.func, ast.Attribute) and c.func.attr == "create"]
    names = {ast.literal_eval(c.args[0]) for c in made if isinstance(c.args[0], ast.Constant)}
    if not isinstance(definition, ast.FunctionDef) or len(names) != 1:
        return None
    (name,) = names
    operands, kinds = list[str](), dict[str, str]()
    stated = definition.args
    first = len(stated.args) - len(stated.defaults)
    for at, parameter in enumerate(stated.args):
        kind = ast.unparse(parameter.annotation) if parameter.annotation else ""
        if "NodeInput" in kind or kind in ("Node", "Output", "Iterable[Node]"):
            is_many = "list" in kind or "Iterable" in kind
            operands.append(parameter.arg + ("*" if is_many else "?" * (at >= first)))
        elif parameter.arg != "name":
            kinds[parameter.arg] = KINDS.get(kind, "str")
    held = [d for c in made for d in c.args[2:] if isinstance(d, ast.Dict)]
    pairs = [pair for d in held for pair in zip(d.keys, d.values, strict=True)]
    for node in (node for node in ast.walk(definition) if isinstance(node, ast.Assign)):
        if isinstance(node.value, ast.Dict):  # `attrs = {"a": a}` and `attrs["a"] = a`.
            pairs += zip(node.value.keys, node.value.values, strict=True)
        pairs += [(t.slice, node.value) for t in node.targets if isinstance(t, ast.Subscript)]
    attributes = dict[str, str]()
    for key, value in pairs:
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            read = [n.id for n in ast.walk(value) if isinstance(n, ast.Name) and n.id in kinds]
            attributes[key.value] = kinds[read[0]] if read else "str"
    attributes.pop("auto_broadcast", None)  # Always NumPy's, the default.
    shown = [f"{key}={kind}" for key, kind in attributes.items()]
    return " ".join([name, function.__module__.split(".")[1], *operands, ":", *shown]).rstrip()


if __name__ == "__main__":
    TABLE.write_text("\n".join(lines()) + "\n", encoding="utf-8")
