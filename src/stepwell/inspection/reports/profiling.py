"""Profile a `.pte` on ExecuTorch's runtime, by op of the model.

The runtime's own profiler measures kernel calls, and XNNPACK's operators inside a delegate.
ExecuTorch's Inspector reads its output and, with the ETRecord of the lowering, maps each event to
the nodes of the model and their source lines.
"""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stepwell.backends.cortex_m.read import is_cortex_m
from stepwell.backends.executorch.container import FUSED
from stepwell.backends.executorch.reading.read import read_container
from stepwell.backends.executorch.running.runner import PteSession
from stepwell.ir.compat.torch.lazy_imports import OnDemand
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.platform.bar_charts import Plot, plot
from stepwell.ir.platform.dataframes import frame
from stepwell.ir.platform.process_settings import without_warnings
from stepwell.ir.renderers import Shown
from stepwell.translate.executorch_private import instruction_of
from stepwell.translate.importer.locations import users_frame

if TYPE_CHECKING:
    from executorch.devtools.etrecord import ETRecord
    from pandas import DataFrame

devtools_etrecord = OnDemand("executorch.devtools.etrecord")
devtools = OnDemand("executorch.devtools")


_FRAMEWORK = ("Method::", "Program::", "OPERATOR_CALL", "DELEGATE_CALL")
HEADS = ("part", "ms", "op of the model", "source line", "ran as")
_MOST_ROWS = 40
_UNMEASURED = 0.02
"""The share of a call's time without an event that is listed."""


@dataclass(frozen=True)
class Node:
    """A node of the model: its name, its op, its source line if known, and the nodes that were
    fused into it, the costliest first.
    """

    name: str
    op: str
    line: str | None
    fused: tuple[str, ...] = ()


@dataclass(frozen=True)
class Event:
    """An event that the runtime timed.

    Attributes:
        name: the runtime's name for the event.
        instruction: the number of the instruction in the execution plan.
        delegate: the backend in which it ran; None for a kernel of the runtime.
        milliseconds: the median over all calls.
        nodes: the nodes of the model that the event computes; empty for ops that rewrites added.
    """

    name: str
    instruction: int
    delegate: str | None
    milliseconds: float
    nodes: tuple[Node, ...]

    @property
    def kind(self) -> str:
        """Return the event's name without its number."""
        return self.name.rsplit(" #", 1)[0]


@dataclass(frozen=True)
class Profile(Shown):
    """The profile of a `.pte`; `str()` is a table by node of the model, the slowest first.

    Attributes:
        method: the called method.
        milliseconds: the median of a whole call.
        repeat: the number of calls.
        events: the events in the order of execution, without the framework's own.
    """

    method: str
    milliseconds: float
    repeat: int
    events: tuple[Event, ...]

    @property
    def by_node(self) -> Mapping[Node | None, tuple[Event, ...]]:
        """Return the events of each node, the slowest node first; None has the events without a
        node.

        An event of several nodes is listed for each of them.
        """
        found: dict[Node | None, list[Event]] = {}
        for event in self.events:
            for node in event.nodes or (None,):
                found.setdefault(node, []).append(event)
        return {
            node: tuple(events)
            for node, events in sorted(found.items(), key=lambda item: -_time(item[1]))
        }

    def to_frame(self) -> DataFrame:
        """Return a dataframe with a row for each event."""
        rows = [
            (e.name, e.instruction, e.delegate, e.milliseconds, [node.name for node in e.nodes])
            for e in self.events
        ]
        return frame(("event", "instruction", "delegate", "milliseconds", "nodes"), rows)

    def plot(self) -> Plot:
        """Plot the milliseconds of each node of the model, the slowest first."""
        rows = [
            (node.name if node else "of no node", [round(_time(events), 4)])
            for node, events in self.by_node.items()
        ]
        title = f"{self.method}: milliseconds of {self.milliseconds:.3f} a call"
        return plot(title, ("ms",), rows)

    def to_json(self) -> str:
        """Return the profile as JSON."""
        return json.dumps(asdict(self), indent=1)

    def cells(self) -> Iterator[tuple[str, str, str, str, str]]:
        """Yield each node as text: percentage of the call, milliseconds, op, source line, kernel.

        Events without a node are listed by kind, and what no event has measured comes last.
        """
        kinds: dict[str, list[Event]] = {}
        for event in self.by_node.get(None, ()):
            kinds.setdefault(event.kind, []).append(event)
        groups = [(node, events) for node, events in self.by_node.items() if node is not None]
        groups += [(None, tuple(events)) for events in kinds.values()]
        whole = self.milliseconds or 1.0
        for node, events in sorted(groups, key=lambda group: -_time(group[1])):
            time = _time(events)
            counts = Counter(event.kind for event in events)
            ran = ", ".join(f"{kind} ×{n}" if n > 1 else kind for kind, n in counts.items())
            op = " + ".join((f"{node.op} {node.name}", *node.fused)) if node else ""
            line = (node.line if node else None) or ""
            yield f"{time / whole:.1%}", f"{time:.3f}", op, line, ran
        rest = self.milliseconds - sum(event.milliseconds for event in self.events)
        if rest > _UNMEASURED * whole:
            why = "no event: between operators, or shorter than the clock's microsecond"
            yield f"{rest / whole:.1%}", f"{rest:.3f}", "", "", why

    def __str__(self) -> str:
        rows = [HEADS, *self.cells()]
        more = len(rows) - 1 - _MOST_ROWS
        rows = rows[: _MOST_ROWS + 1]
        part, time, op, line, _ = (max(len(row[c]) for row in rows) for c in range(len(HEADS)))
        text = [f"{self.method}: {self.milliseconds:.3f} ms, the median of {self.repeat} calls", ""]
        text += [
            f"{r[0]:>{part}}  {r[1]:>{time}}  {r[2]:{op}}  {r[3]:{line}}  {r[4]}".rstrip()
            for r in rows
        ]
        if more > 0:
            text.append(f"… and {more} more")
        if not any(event.nodes for event in self.events):
            text.append("the ops of the model are in its ETRecord: lower and run with --etrecord")
        return "\n".join(text)


def _time(events: Sequence[Event]) -> float:
    """Return the milliseconds of events; an event of several nodes is divided equally among
    them.
    """
    return sum(event.milliseconds / max(len(event.nodes), 1) for event in events)


def profile(
    pte: bytes | Path,
    inputs: Sequence[Any],
    method: str = "forward",
    *,
    record: ETRecord | Path | None = None,
    repeat: int = 20,
) -> Profile:
    """Call a method of a `.pte` with the runtime's profiler.

    Args:
        pte: the program.
        inputs: flat inputs.
        method: the method to call.
        record: the ETRecord of the lowering; without it, events have no nodes.
        repeat: the number of calls, at least one.

    Raises:
        StepwellError: the program does not run, or the record cannot be read.
    """
    if repeat < 1:
        raise StepwellError(f"repeat is {repeat}, so nothing is measured", help="pass at least 1")
    data = pte if isinstance(pte, bytes) else pte.read_bytes()
    if is_cortex_m(read_container(bytearray(data))):
        raise StepwellError(
            "a Cortex-M program runs in the interpreter here, which has no clock",
            help="stepwell explain FILE lists its operators, the costliest first",
        )
    session = PteSession.load(pte, profile=True)
    for _ in range(repeat):
        session.run(*inputs, method=method)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.etdp"
        session.write_profile(path)
        return _inspected(path, _opened(record), method, repeat)


def _opened(record: ETRecord | Path | None) -> ETRecord | None:
    if not isinstance(record, Path):
        return record
    if not record.is_file():
        raise StepwellError(f"the file {record} does not exist")
    try:
        return devtools_etrecord.parse_etrecord(str(record))
    except (RuntimeError, ValueError, KeyError, OSError) as error:
        raise StepwellError(
            f"{record} is not an ETRecord: {error}", help="`stepwell lower --etrecord` writes one"
        ) from error


def _inspected(path: Path, record: ETRecord | None, method: str, repeat: int) -> Profile:
    """Return the result of ExecuTorch's Inspector for a run."""
    with without_warnings("Output Buffer not found|Unsupported kwarg"):
        inspector = devtools.Inspector(etdump_path=str(path), etrecord=record)
    nodes = _nodes(record)
    events: list[Event] = []
    whole = 0.0
    for event in (event for block in inspector.event_blocks for event in block.events):
        median = float(event.perf_data.p50) if event.perf_data is not None else 0.0
        if event.name == "Method::execute":
            whole = max(whole, median)
        if event.name.startswith(_FRAMEWORK):
            continue
        handles = event.debug_handles or ()
        backend = event.delegate_backend_name or ("delegate" if event.is_delegated_op else None)
        events.append(
            Event(
                event.name.removeprefix("native_call_"),
                instruction_of(event),
                backend,
                median,
                tuple(
                    nodes[handle]
                    for handle in ((handles,) if isinstance(handles, int) else handles)
                    if handle in nodes
                ),
            )
        )
    return Profile(method, whole, repeat, tuple(events))


def _nodes(record: ETRecord | None) -> dict[int, Node]:
    """Return a mapping from debug handles to nodes of the model."""
    marked = record.edge_dialect_program if record is not None else None
    if marked is None or isinstance(marked, dict):
        return {}
    return {
        node.meta["debug_handle"]: Node(
            node.name,
            _op_name(node.target),
            _line(node.meta.get("stack_trace")),
            _fused(node.meta.get("stack_trace") or ""),
        )
        for node in marked.graph.nodes
        if "debug_handle" in node.meta
    }


def _fused(trace: str) -> tuple[str, ...]:
    """Return the names of the nodes that were fused into one, from its stack trace."""
    _, _, names = trace.rpartition(f"\n{FUSED}")
    return tuple(names.split(", ")) if f"\n{FUSED}" in trace else ()


def _op_name(target: Any) -> str:
    """Return the op's name, such as `aten.add.Tensor` or `getitem`."""
    return str(target) if hasattr(target, "_schema") else getattr(target, "__name__", str(target))


def _line(trace: str | None) -> str | None:
    """Return the model's line in a node's stack trace, as `model.py:41`."""
    frame = users_frame(trace) if trace else None
    return f"{Path(frame[1]).name}:{frame[2]}" if frame else None
