"""Write graphs of a program for other viewers: Graphviz, and Google's Model Explorer.

Model Explorer's adapter for MLIR text stops at dialects it does not know; its own JSON
(`graphs` → `nodes` with `incomingEdges`) takes any op name and shows node names, source lines and
modules as a hierarchy.
"""

import json
from collections.abc import Iterator
from typing import Any

from xdsl.ir import Block, Operation, SSAValue

from stepwell.ir.core import WeightOp
from stepwell.ir.diagnostics import module_path, node_name, op_name, source_line
from stepwell.ir.program import Program


def to_dot(program: Program, method: str = "forward") -> str:
    """Return a method's graph in the Graphviz language, each delegate a cluster, without
    weights.
    """
    func = program.method(method)
    numbers: dict[Operation, int] = {}
    lines = [
        f"digraph {_quoted(func.sym_name.data)} {{",
        '  rankdir=TB; node [shape=box, style="rounded,filled", fillcolor="#f5f6f9", '
        'fontname="monospace", fontsize=10]; edge [color="#667085"];',
    ]
    for index in range(len(func.body.block.args)):
        lines.append(f'  arg{index} [label="input {index}", fillcolor="#fff1c2"];')
    lines += _dot_block(func.body.block, numbers, 1)
    for op, number in numbers.items():
        for operand in op.operands:
            for source in _sources(operand, numbers):
                lines.append(f"  {source} -> op{number};")
    lines.append("}")
    return "\n".join(lines) + "\n"


def _dot_block(block: Block, numbers: dict[Operation, int], depth: int) -> Iterator[str]:
    pad = "  " * depth
    for op in block.ops:
        if isinstance(op, WeightOp):
            continue
        if op.regions and op.results:
            number = len(numbers)
            yield f"{pad}subgraph cluster_{number} {{ label={_quoted(op_name(op))}; style=filled;"
            yield f'{pad}  fillcolor="/blues9/{2 + number % 2}";'
            for region in op.regions:
                for inner in region.blocks:
                    yield from _dot_block(inner, numbers, depth + 1)
            yield f"{pad}}}"
            continue
        numbers[op] = len(numbers)
        shape = f"\\n{op.results[0].type}" if op.results else ""
        label = f"{op_name(op)}{shape}".replace('"', '\\"')
        tip = node_name(op.location) or ""
        yield f'{pad}op{numbers[op]} [label="{label}", tooltip={_quoted(tip)}];'


def _sources(value: SSAValue, numbers: dict[Operation, int]) -> list[str]:
    """Return the drawn nodes that produce a value, also across the boundaries of delegates."""
    owner = value.owner
    if isinstance(owner, Block):
        parent = owner.parent_op()
        if parent is None or not parent.results:
            return [f"arg{list(owner.args).index(value)}"]  # pyright: ignore[reportArgumentType]
        return _sources(parent.operands[list(owner.args).index(value)], numbers)  # pyright: ignore[reportArgumentType]
    if owner in numbers:
        return [f"op{numbers[owner]}"]
    if owner.regions:
        last = owner.regions[0].block.last_op
        index = list(owner.results).index(value)  # pyright: ignore[reportArgumentType]
        if last is not None and index < len(last.operands):
            return _sources(last.operands[index], numbers)
    return []


def to_model_explorer(program: Program) -> str:
    """Return the graphs of all methods as Model Explorer's JSON."""
    graphs = [_explorer_graph(program, name) for name in program.methods]
    return json.dumps({"label": "stepwell", "graphs": graphs}, indent=1)


def _explorer_graph(program: Program, method: str) -> dict[str, Any]:
    func = program.method(method)
    nodes: list[dict[str, Any]] = []
    ids: dict[SSAValue, tuple[str, str]] = {}
    for index, argument in enumerate(func.body.block.args):
        ids[argument] = (f"input{index}", "0")
        nodes.append(
            {
                "id": f"input{index}",
                "label": argument.name_hint or f"input {index}",
                "namespace": "inputs",
                "outputsMetadata": [_output("0", str(argument.type))],
            }
        )
    counter = iter(range(1 << 30))
    _explorer_block(func.body.block, "", counter, nodes, ids)
    return {"id": method, "nodes": nodes}


def _explorer_block(
    block: Block,
    namespace: str,
    counter: Iterator[int],
    nodes: list[dict[str, Any]],
    ids: dict[SSAValue, tuple[str, str]],
) -> None:
    for op in block.ops:
        if op.regions and op.results:
            inner = f"{namespace}/{op_name(op)}_{next(counter)}".strip("/")
            for region in op.regions:
                for body in region.blocks:
                    for argument, operand in zip(body.args, op.operands, strict=False):
                        if operand in ids:
                            ids[argument] = ids[operand]
                    _explorer_block(body, inner, counter, nodes, ids)
                    last = body.last_op
                    for result, value in zip(
                        op.results, last.operands if last else (), strict=False
                    ):
                        if value in ids:
                            ids[result] = ids[value]
            continue
        if not op.results and block.parent_op() is not None and op is block.last_op and namespace:
            continue
        name = f"op{next(counter)}"
        path = (module_path(op.location) or "").replace(".", "/")
        node = {
            "id": name,
            "label": op_name(op),
            "namespace": "/".join(part for part in (namespace, path) if part),
            "incomingEdges": [
                {
                    "sourceNodeId": ids[operand][0],
                    "sourceNodeOutputId": ids[operand][1],
                    "targetNodeInputId": str(index),
                }
                for index, operand in enumerate(op.operands)
                if operand in ids
            ],
            "attrs": _attributes(op),
            "outputsMetadata": [_output(str(i), str(r.type)) for i, r in enumerate(op.results)],
        }
        nodes.append(node)
        for index, result in enumerate(op.results):
            ids[result] = (name, str(index))


def _attributes(op: Operation) -> list[dict[str, str]]:
    held = {name: str(value)[:200] for name, value in {**op.attributes, **op.properties}.items()}
    if node := node_name(op.location):
        held["node"] = node
    if line := source_line(op.location):
        held["source"] = line
    return [{"key": key, "value": value} for key, value in held.items()]


def _output(name: str, shape: str) -> dict[str, Any]:
    return {"id": name, "attrs": [{"key": "tensor_shape", "value": shape}]}


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
