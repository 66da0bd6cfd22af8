"""Breakdown of the time of whole models: the time of their products, and slow nodes.

    python bench/floors.py [--models deit_tiny,…] [--zoo regnety_002,…] [--numerics finite]
                           [--peers] [--table docs/peers.md]

A program runs under the runtime's own profiler on one thread, and each event is led back to the
node that it times; the least of `--repeat` runs counts. Two things are read off:

*Products*: linear layers, convolutions (depthwise ones too) and products of batches. *Functions*:
softmax, gelu, sigmoid and similar ones, and pools. *Meetings*: sums and products of two dynamic
values, such as residual sums, gates and a norm's scale, which no product of XNNPACK's takes
along. Some kernel has to compute each of them whatever is rewritten around it: no rewrite that
keeps them makes a model faster than they are, so a peer's time divided by theirs bounds the ratio
that can be had with XNNPACK's kernels, were all else free (`--peers` takes the times that
`bench/peers.py` kept, and of ours the shares measured here).

*Slow nodes*: a node's least time on this machine is the greater of its operations at the speed of
the best product and of its bytes (operands and results once) at the speed of the best copy, both
measured first. Nodes that take more than twice that are counted by kind.
"""

from __future__ import annotations

import argparse
import gc
import json
import logging
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from math import exp, log, prod
from pathlib import Path
from typing import Any, cast

import torch
from _nodes import Form, Writer, seconds_here
from _peer_tables import GOAL, OPENVINO, ORT, OURS, goal, kinds_of
from _report import RESULTS, between_markers, prepare, write
from _zoo_models import SIZES, create
from peers import AT_ONCE, MOST, made
from xdsl.ir import Attribute, SSAValue
from xnnpack import set_threads

import stepwell
from stepwell.backends.executorch.running.runner import PteSession
from stepwell.backends.xnnpack.events import events, kind_of
from stepwell.dialects import xnnpack
from stepwell.dialects.quant.types import quantization, storage_element
from stepwell.dialects.xnnpack import DelegateOp, XnnpackOp
from stepwell.ir.core import weight_key
from stepwell.ir.types import AnyTensor, dims, with_element
from stepwell.ir.weights import dense_size

PRODUCTS = (
    xnnpack.FullyConnected,
    xnnpack.Convolution2d,
    xnnpack.DepthwiseConvolution2d,
    xnnpack.Deconvolution2d,
    xnnpack.BatchMatrixMultiply,
)
FUNCTIONS = (
    xnnpack.Softmax,
    xnnpack.Gelu,
    xnnpack.Sigmoid,
    xnnpack.Hardswish,
    xnnpack.Tanh,
    xnnpack.Exp,
    xnnpack.ELU,
    xnnpack.MaxPooling2d,
    xnnpack.AveragePooling2d,
    xnnpack.GlobalAveragePooling2d,
)
MEETINGS = (xnnpack.Add, xnnpack.Multiply)
HALF = 0.5


@dataclass(frozen=True)
class Peaks:
    """The best of this machine on one thread: operations and bytes a second."""

    operations: float
    bytes: float


@dataclass(frozen=True)
class Timed:
    """A node: its kind, its seconds, and its least seconds on this machine."""

    kind: str
    is_product: bool
    is_function: bool
    is_meeting: bool
    seconds: float
    least: float
    operations: float

    @property
    def is_slow(self) -> bool:
        """Whether it takes more than twice as long as the machine needs."""
        return self.least < HALF * self.seconds


def peaks() -> Peaks:
    """The fastest of some products, and of some copies within the caches."""
    fastest = 0.0
    for rows, inputs, outputs in ((784, 512, 512), (196, 1024, 1024), (3136, 256, 256)):

        def layer(w: Writer, x: SSAValue, i: int = inputs, o: int = outputs) -> SSAValue:
            return w(xnnpack.FullyConnected.make(x, w.weight(torch.randn(o, i))))

        taken = seconds_here(Form((torch.randn(rows, inputs),), layer), 20)
        fastest = max(fastest, 2.0 * rows * inputs * outputs / (taken or 1.0))
    widest = 0.0
    for count in (1 << 14, 1 << 16, 1 << 18):
        given = torch.randn(count)
        into = torch.empty_like(given)
        best = 1.0
        for _ in range(200):
            started = time.perf_counter()
            for _ in range(10):
                into.copy_(given)
            best = min(best, (time.perf_counter() - started) / 10)
        widest = max(widest, 8.0 * count / best)
    return Peaks(fastest, widest)


def operations(op: XnnpackOp) -> float:
    """Multiplications and additions of a product; 0 of what only moves or maps."""
    if not isinstance(op, PRODUCTS):
        return 0.0
    result = prod(cast(tuple[int, ...], dims(op.results[0].type)))
    given = cast(tuple[int, ...], dims(op.operands[0].type))
    if isinstance(op, xnnpack.FullyConnected | xnnpack.BatchMatrixMultiply):
        return 2.0 * result * given[-1]
    filter = cast(tuple[int, ...], dims(op.operands[1].type))
    if isinstance(op, xnnpack.DepthwiseConvolution2d):
        return 2.0 * result * filter[1] * filter[2]
    if isinstance(op, xnnpack.Deconvolution2d):
        return 2.0 * prod(given) * prod(filter[:3])
    return 2.0 * result * prod(filter[1:])


def moved(op: XnnpackOp) -> float:
    """Return the bytes of operands and results; a slice reads only its part."""
    results = sum(size(value.type) for value in op.results)
    if isinstance(op, xnnpack.StaticSlice):
        return 2.0 * results
    return float(results + sum(size(value.type) for value in set(op.operands)))


def size(type_: Attribute) -> int:
    """Bytes of a tensor; of a quantized one those of its integers."""
    quantized = quantization(type_)
    if quantized is not None:
        type_ = with_element(cast(AnyTensor, type_), storage_element(quantized))
    return dense_size(cast(AnyTensor, type_))


def run(pte: bytes, inputs: Sequence[Any], repeat: int) -> list[list[tuple[str, float]]]:
    """Each delegate's events in order, with the least of their seconds."""
    from executorch.devtools import Inspector

    session = PteSession.load(pte, profile=True)
    for _ in range(repeat):
        session.run(*inputs)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.etdp"
        session.write_profile(path)
        inspector = Inspector(etdump_path=str(path))
    found: dict[int, list[tuple[str, float]]] = {}
    for event in (event for block in inspector.event_blocks for event in block.events):
        if event.is_delegated_op and event.perf_data is not None:
            instruction = event._instruction_id or 0
            found.setdefault(instruction, []).append((event.name, min(event.perf_data.raw) / 1000))
    return [found[instruction] for instruction in sorted(found)]


def nodes(
    lowered: stepwell.Lowered,
    inputs: Sequence[Any],
    best: Peaks,
    repeat: int,
    share: float = 1.0,
) -> Iterator[Timed]:
    """Every node of a program with its time; what rewrites of XNNPACK's own add has none.

    `share` is the part that the inputs are of the most that the program takes.
    """
    program = stepwell.read_pte(lowered.artifact, largest=True)
    delegates = [op for op in program.module.walk() if isinstance(op, DelegateOp)]
    for delegate, ran in zip(delegates, run(lowered.artifact, inputs, repeat), strict=True):
        counts: Counter[str] = Counter()
        owners: dict[str, XnnpackOp] = {}
        for op, spellings in events(delegate):
            for name in spellings:
                counts[name] += 1
                owners[f"{name} #{counts[name]}"] = op
        for name, taken in ran:
            op = owners.get(name)
            work = share * operations(op) if op is not None else 0.0
            bytes_moved = share * moved(op) if op is not None else 0.0
            least = max(work / best.operations, bytes_moved / best.bytes)
            is_product, is_function = isinstance(op, PRODUCTS), isinstance(op, FUNCTIONS)
            is_meeting = op is not None and meets(op)
            yield Timed(_kind(name, op), is_product, is_function, is_meeting, taken, least, work)


def meets(op: XnnpackOp) -> bool:
    """Whether it joins two dynamic values."""
    if not isinstance(op, MEETINGS) or op.left is op.right:
        return False
    return all(weight_key(value) is None for value in op.operands)


def _kind(name: str, op: XnnpackOp | None) -> str:
    if op is None:
        return kind_of(name)
    kind = op.name.removeprefix("xnnpack.")
    if not isinstance(op, xnnpack.Convolution2d | xnnpack.DepthwiseConvolution2d):
        return kind
    down, across = op.window
    grouped = isinstance(op, xnnpack.Convolution2d) and op.integer("groups", 1) > 1
    return f"{kind} {down}×{across}" + ", grouped" * grouped


@dataclass
class Floor:
    """A model: milliseconds of all nodes, of what has to be; slow ones by kind."""

    whole: float
    products: float
    functions: float
    meetings: float
    speed: float
    kinds: dict[str, float]
    slow: dict[str, float]


def floor(timed: Iterable[Timed]) -> Floor:
    """What is said of a model."""
    held = list(timed)
    products = sum(one.seconds for one in held if one.is_product)
    kinds: dict[str, float] = {}
    slow: dict[str, float] = {}
    for one in held:
        for held_by in (kinds, slow) if one.is_slow else (kinds,):
            held_by[one.kind] = held_by.get(one.kind, 0.0) + 1e3 * one.seconds
    return Floor(
        1e3 * sum(one.seconds for one in held),
        1e3 * products,
        1e3 * sum(one.seconds for one in held if one.is_function),
        1e3 * sum(one.seconds for one in held if one.is_meeting),
        sum(one.operations for one in held) / products / 1e9 if products else 0.0,
        _sorted(kinds),
        _sorted(slow),
    )


def _sorted(times: dict[str, float]) -> dict[str, float]:
    return dict(sorted(times.items(), key=lambda item: -item[1]))


def of(name: str, best: Peaks, options: argparse.Namespace, zoo: bool) -> Floor:
    """A model's nodes, timed."""
    gc.collect()
    torch.manual_seed(0)
    share = 1.0
    if zoo:
        module: Any = create(name).eval()
        inputs: tuple[torch.Tensor, ...] = (torch.randn(1, 3, SIZES[name], SIZES[name]),)
        exported = torch.export.export(module, inputs)
    else:
        model = made(name, Path())
        exported, inputs = model._exported(), model.inputs
        share = AT_ONCE[model.kind] / MOST if model.kind == "open" else 1.0
    lowered = stepwell.lower(exported, "xnnpack", numerics=options.numerics)
    return floor(nodes(lowered, inputs, best, options.repeat, share))


def bounds(results: dict[str, dict[str, Any]]) -> list[str]:
    """The table of what products leave to be had against peers, as `bench/peers.py` timed them."""
    kept = json.loads((RESULTS / "peers_1.json").read_text())["results"]
    lines = [
        "| model | ours ms | products, functions, meetings | GFLOP/s "
        "| ONNX Runtime ms | ratio | bound | OpenVINO ms | ratio | bound |",
        "|---" * 10 + "|",
    ]
    ratios: dict[str, list[float]] = {}
    for name, found in results.items():
        times = {peer: held["warm_ms"] for peer, held in kept.get(name, {}).items()}
        if not {OURS, ORT, OPENVINO} <= set(times):
            continue
        ours, parts = times[OURS], (found["products"], found["functions"], found["meetings"])
        least = ours * sum(parts) / found["whole"]
        shares = ", ".join(f"{part / found['whole']:.0%}" for part in parts)
        cells = [name, f"{ours:.2f}", shares, f"{found['speed']:.0f}"]
        for peer in (ORT, OPENVINO):
            cells += [
                f"{times[peer]:.2f}",
                f"{times[peer] / ours:.2f}",
                f"{times[peer] / least:.2f}",
            ]
            ratios.setdefault(peer, []).append(times[peer] / ours)
            ratios.setdefault(f"{peer}, bound", []).append(times[peer] / least)
        lines.append("| " + " | ".join(cells) + " |")
    means = {name: f"{exp(sum(map(log, held)) / len(held)):.3f}" for name, held in ratios.items()}
    cells = ["geometric mean", "", "", ""]
    for peer in (ORT, OPENVINO):
        cells += ["", means.get(peer, "–"), means.get(f"{peer}, bound", "–")]
    return [*lines, "| " + " | ".join(cells) + " |"]


def slow_nodes(results: dict[str, dict[str, Any]]) -> list[str]:
    """The table of slow nodes: parts of the time of all models together, by kind."""
    whole = sum(found["whole"] for found in results.values())
    times: dict[str, float] = {}
    slow: dict[str, float] = {}
    for found in results.values():
        for into, key in ((times, "kinds"), (slow, "slow")):
            for kind, taken in found[key].items():
                into[kind] = into.get(kind, 0.0) + taken / found["whole"]
    many = len(results)
    lines = [
        f"Of {many} models ({', '.join(results)}), {whole:.0f} ms together, each counted alike:",
        "",
        "| kind of node | of the time | slow nodes |",
        "|---|---|---|",
        f"| all | 100 % | {sum(slow.values()) / many:.1%} |",
    ]
    for kind, taken in _sorted(slow).items():
        if taken / many >= 0.002:
            lines.append(f"| {kind} | {times[kind] / many:.1%} | {taken / many:.1%} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", default=",".join(GOAL), help="of bench/peers.py")
    parser.add_argument("--zoo", default="", help="of bench/zoo.py")
    parser.add_argument("--numerics", default="finite")
    parser.add_argument("--repeat", type=int, default=30, help="runs of each program")
    parser.add_argument("--peers", action="store_true", help="bounds against the peers' times")
    parser.add_argument("--table", type=Path, help="write the table between this file's marks")
    options = parser.parse_args()
    prepare()
    logging.disable(logging.WARNING)
    set_threads(1)
    best = peaks()
    print(f"best: {best.operations / 1e9:.0f} GFLOP/s, {best.bytes / 1e9:.0f} GB/s", flush=True)
    kept = RESULTS / "floors.json"
    results: dict[str, Any] = json.loads(kept.read_text())["results"] if kept.exists() else {}
    wanted = [(name, False) for name in options.models.split(",") if name]
    wanted += [(name, True) for name in options.zoo.split(",") if name]
    for name, zoo in wanted:
        try:
            found = of(name, best, options, zoo)
        except stepwell.StepwellError as problem:
            print(f"{name}: {problem}", flush=True)
            continue
        results[name] = asdict(found)
        print(
            f"{name}: {found.whole:.2f} ms, products {found.products:.2f} "
            f"({found.speed:.0f} GFLOP/s), slow {sum(found.slow.values()) / found.whole:.0%}",
            flush=True,
        )
        for kind, taken in list(found.kinds.items())[:12]:
            print(f"    {taken:7.3f}  slow {found.slow.get(kind, 0):7.3f}  {kind}", flush=True)
        write("floors", results)
    if options.peers:
        for kind in kinds_of(name for name, _ in wanted):
            lines = bounds({name: results[name] for name in goal(kind) if name in results})
            print(*lines, sep="\n")
            if options.table:
                between_markers(options.table, f"floors {kind[1:]}".strip(), lines)
    if any("@" in name for name, _ in wanted):  # Of floats is what is said of slow nodes.
        return
    results = {name: found for name, found in results.items() if "@" not in name}
    lines = slow_nodes(results)
    print(*lines, sep="\n")
    if options.table:
        between_markers(options.table, "slow nodes", lines)


if __name__ == "__main__":
    main()
