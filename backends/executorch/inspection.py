"""What ExecuTorch's Inspector needs to lead a profile back to the model: an ETRecord.

    session = PteSession.load(data, profile=True)
    session.run(x)
    session.write_profile(path)
    Inspector(etdump_path=str(path), etrecord=etrecord(container, exported))

Every instruction of the plan has the debug handles of the model's nodes it computes; a delegate has
those of everything inside it. ExecuTorch 1.5's Inspector looks at the method `forward` only.
"""

from __future__ import annotations

import copy
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stepwell.backends.executorch.container import Container, DelegateCall, KernelCall, Method
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.files import write_atomically
from stepwell.ir.switches import without_warnings

if TYPE_CHECKING:
    from executorch.devtools.etrecord import ETRecord


def debug_handle_map(method: Method) -> dict[str, list[int]]:
    """Instruction number, as text, to debug handles."""
    return {str(step): list(handles) for step, handles in method.debug_handles.items()}


def delegate_map(method: Method) -> dict[str, dict[str, Any]]:
    """Number of a delegate call, as text, to its backend and its own events' handles."""
    found: dict[str, dict[str, Any]] = {}
    for step, instruction in enumerate(method.instructions):
        if isinstance(instruction, DelegateCall):
            delegate = method.delegates[instruction.delegate]
            found[str(step)] = {
                "name": delegate.backend,
                "delegate_map": {event: list(h) for event, h in delegate.debug_map.items()},
            }
    return found


def output_counts(method: Method) -> dict[str, int]:
    """Instruction number, as text, to the number of values it writes."""
    return {
        str(step): 1
        for step, instruction in enumerate(method.instructions)
        if isinstance(instruction, KernelCall | DelegateCall)
    }


def etrecord(container: Container, exported: Any, method: str = "forward") -> ETRecord:
    """The ETRecord of one method of a container.

    Args:
        container: what `emit` gave.
        exported: the `torch.export` program that the method was imported from.
        method: the method; the Inspector, which knows one, is told that it is `forward`.

    The program is copied (its weights are not) and its nodes are given their debug handles; the
    argument is not changed.

    Raises:
        StepwellError: the container has no such method.
    """
    from executorch.devtools.etrecord import ETRecord

    described = container.method(method)
    if described is None:
        raise StepwellError(
            f"there is no method {method!r}",
            help="methods are " + ", ".join(m.name for m in container.methods),
        )
    shared = [*exported.state_dict.values(), *exported.constants.values()]
    with without_warnings(".*LeafSpec", FutureWarning):
        marked = copy.deepcopy(exported, {id(tensor): tensor for tensor in shared})
    handle_of = {name: handle for handle, name in described.node_names.items()}
    for node in marked.graph.nodes:
        if node.name in handle_of:
            node.meta["debug_handle"] = handle_of[node.name]
    return ETRecord(
        edge_dialect_program=marked,
        _debug_handle_map={"forward": debug_handle_map(described)},  # pyright: ignore
        _delegate_map={"forward": delegate_map(described)},  # pyright: ignore
        _instruction_id_to_num_outs_map={"forward": output_counts(described)},  # pyright: ignore
    )


def write_etrecord(record: ETRecord, path: Path) -> None:
    """Write an ETRecord whole or not at all.

    Raises:
        StepwellError: the file cannot be written.
    """
    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder) / "record.etrecord"
        record.save(str(written))
        write_atomically(path, written.read_bytes())
