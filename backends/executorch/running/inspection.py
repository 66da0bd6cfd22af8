"""Create an ETRecord, with which ExecuTorch's Inspector relates a profile to the model.

    session = PteSession.load(data, profile=True)
    session.run(x)
    session.write_profile(path)
    Inspector(etdump_path=str(path), etrecord=etrecord(container, exported))

Every instruction of the plan has the debug handles of the model's nodes that it computes, and so
has every event of a delegate. `Inspector.calculate_numeric_gap` compares the caller's outputs.
ExecuTorch 1.5's Inspector supports the method `forward` only.
"""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from stepwell.backends.executorch.container import (
    Container,
    DelegateCall,
    KernelCall,
    Method,
    Planned,
    TensorValue,
    Value,
)
from stepwell.ir.compat.torch.lazy_imports import OnDemand, torch
from stepwell.ir.platform.files import write_atomically
from stepwell.ir.platform.process_settings import without_warnings

if TYPE_CHECKING:
    from executorch.devtools.etrecord import ETRecord

devtools_etrecord = OnDemand("executorch.devtools.etrecord")


@dataclass(frozen=True)
class _Ports:
    """The values that instructions write and a caller receives.

    Attributes:
        written: the values that each instruction writes, in the order of its last arguments.
        node: the model's output node of such a value.
        handle: the debug handle under which the Inspector compares such a value with its node.
    """

    written: Mapping[int, tuple[int, ...]]
    node: Mapping[int, str]
    handle: Mapping[int, int]


def _ports(method: Method, names: Sequence[str | None]) -> _Ports:
    """Return which instruction writes which output; `names` are the output nodes, if there are
    any.
    """
    defined = {*method.inputs}
    written: dict[int, tuple[int, ...]] = {}
    for step, instruction in enumerate(method.instructions):
        if isinstance(instruction, KernelCall | DelegateCall):
            fresh = [index for index in dict.fromkeys(instruction.args) if index not in defined]
            written[step] = tuple(index for index in fresh if _is_made(method.values[index]))
        if isinstance(instruction, KernelCall):
            written[step] = written[step] or instruction.args[-1:]
        defined.update(written.get(step, ()))
    known = zip(method.outputs, names, strict=True) if len(names) == len(method.outputs) else ()
    node = {value: name for value, name in known if name is not None}
    first = 1 + max(method.node_names, default=0)
    return _Ports(written, node, {value: first + at for at, value in enumerate(node)})


def _is_made(value: Value) -> bool:
    """Whether a value is a tensor that instructions write: no constant, state or number."""
    return isinstance(value, TensorValue) and isinstance(value.storage, Planned | None)


def debug_handle_map(method: Method, ports: _Ports) -> dict[str, list[int]]:
    """Return the debug handles of each instruction, by its number as text.

    The Inspector compares the last argument of a call with the node of the last handle, the
    previous one with the previous one, and ignores handles without a node. Calls that write no
    output therefore end with such a handle, because rewrites may have changed the ops in between.

    A delegate whose own events have handles has only the handles of its outputs: the Inspector
    would merge equal handles of a call with values and of events without values.
    """
    found: dict[str, list[int]] = {}
    unused = _unused(method, ports)
    handles = {name: handle for handle, name in method.node_names.items()}
    for step, values in ports.written.items():
        instruction = method.instructions[step]
        shown = list(method.debug_handles.get(step, ()))
        last = [ports.handle.get(value) or next(unused) for value in values]
        if isinstance(instruction, KernelCall):
            name = ports.node.get(values[-1], "getitem")
            own = None if "getitem" in name or len(values) > 1 else handles.get(name)
            if own in shown:
                shown.remove(own)
                last = [own]
        elif method.delegates[cast(DelegateCall, instruction).delegate].debug_map:
            shown = []
        found[str(step)] = [*shown, *last]
    rest = {str(step): list(held) for step, held in method.debug_handles.items()}
    return {**rest, **found}


def _unused(method: Method, ports: _Ports) -> Iterator[int]:
    """Yield debug handles that belong to no node."""
    return count(1 + max((*method.node_names, *ports.handle.values()), default=0) + (1 << 20))


def delegate_map(method: Method, ports: _Ports) -> dict[str, dict[str, Any]]:
    """Return the backend of each delegate call, by its number as text, and its events' handles.

    Each event has, after the handles of the nodes it computes, a handle without a node for each
    value that the call writes, because the event has none of these values.
    """
    found: dict[str, dict[str, Any]] = {}
    unused = count(1 + max(method.node_names, default=0) + (1 << 24))
    for step, instruction in enumerate(method.instructions):
        if isinstance(instruction, DelegateCall):
            delegate = method.delegates[instruction.delegate]
            found[str(step)] = {
                "name": delegate.backend,
                "delegate_map": {
                    event: [*held, *islice(unused, len(ports.written[step]))]
                    for event, held in delegate.debug_map.items()
                },
            }
    return found


def output_counts(ports: _Ports) -> dict[str, int]:
    """Return the number of values that each instruction writes, by its number as text."""
    return {str(step): len(values) for step, values in ports.written.items()}


def _mark_outputs(marked: Any, ports: _Ports, shown: Collection[int]) -> None:
    """Add a node after each output whose debug handle is in `shown`.

    The Inspector compares the value of this node, because events within a delegate share the
    handle of the original node.
    """
    graph = marked.graph
    (end,) = (node for node in graph.nodes if node.op == "output")
    results = list(end.args[0])
    places = _user_outputs(marked)
    for value, name in ports.node.items():
        if ports.handle[value] not in shown:
            continue
        at = next(place for place in places if results[place].name == name)
        source = results[at]
        with graph.inserting_before(end):
            called, operands = torch.ops.aten.alias.default, (source,)
            alias = graph.create_node("call_function", called, operands, name=_named(name))
        alias.meta = {**source.meta, "debug_handle": ports.handle[value]}
        for place in places:
            if results[place] is source:
                results[place] = alias
                marked.graph_signature.output_specs[place].arg.name = alias.name
    end.args = (tuple(results),)
    marked.graph_module.recompile()


def _named(output: str) -> str:
    """Return the name of the node after an output; the Inspector ignores nodes named getitem."""
    return f"{output.replace('getitem', 'item')}_out"


def _user_outputs(exported: Any) -> list[int]:
    """Return the positions of the caller's outputs among the outputs of the graph."""
    specs = exported.graph_signature.output_specs
    return [at for at, spec in enumerate(specs) if spec.kind.name == "USER_OUTPUT"]


def etrecord(container: Container, exported: Any, method: str = "forward") -> ETRecord:
    """Return the ETRecord of one method of a container.

    Args:
        container: the result of `emit`.
        exported: the `torch.export` program from which the method was imported.
        method: the method; it is recorded as `forward`, the only name that the Inspector supports.

    The program is copied (its weights are not) and its nodes get their debug handles; the
    argument is not changed.

    Raises:
        StepwellError: the container has no such method.
    """
    described = container.method(method)
    shared = [*exported.state_dict.values(), *exported.constants.values()]
    with without_warnings(".*LeafSpec", FutureWarning):
        marked = copy.deepcopy(exported, {id(tensor): tensor for tensor in shared})
    handle_of = {name: handle for handle, name in described.node_names.items()}
    for node in marked.graph.nodes:
        if node.name in handle_of:
            node.meta["debug_handle"] = handle_of[node.name]
    (end,) = (node for node in marked.graph.nodes if node.op == "output")
    results = [end.args[0][at] for at in _user_outputs(marked)]
    is_computed = [getattr(result, "op", None) == "call_function" for result in results]
    names = [r.name if own else None for r, own in zip(results, is_computed, strict=True)]
    ports = _ports(described, names)
    handles = debug_handle_map(described, ports)
    _mark_outputs(marked, ports, {handle for held in handles.values() for handle in held})
    inputs, keywords = exported.example_inputs or ((), {})
    return devtools_etrecord.ETRecord(
        edge_dialect_program=marked,
        _debug_handle_map={"forward": handles},  # pyright: ignore
        _delegate_map={"forward": delegate_map(described, ports)},  # pyright: ignore
        _instruction_id_to_num_outs_map={"forward": output_counts(ports)},  # pyright: ignore
        _representative_inputs=list(inputs) if inputs and not keywords else None,
    )


def write_etrecord(record: ETRecord, path: Path) -> None:
    """Write an ETRecord atomically.

    Raises:
        StepwellError: the file cannot be written.
    """
    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder) / "record.etrecord"
        record.save(str(written))
        write_atomically(path, written.read_bytes())
