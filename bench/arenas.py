"""Arenas of Cortex-M programs, compared with a lower bound of all plans and with the stock flow's.

    python bench/arenas.py [NET …] [--cpu cortex-m4 cortex-m55] --keep ROWS
    python bench/arenas.py --keep ROWS --table PAGE

The nets are those of `cortex_m.py` and the small ones of `_small_nets.py`. Each is quantized by
ExecuTorch's quantizer on channels-last images, and lowered by its flow and by this one; and by this
project's quantizer as it is written (NCHW) and on channels-last images (NHWC), with int8 at the
boundary. Each is lowered by default and with `optimize="memory"`, for NCHW with
`io_layout="channels last"`. The bound is the greater of two figures: the least over all orders of
the program's operators, if that was searched, and the peak of live bytes of the calls that it
became (row by row, or floats decomposed for ExecuTorch's kernels), in the plan's units of 16 bytes.
Rows are stored, and an aborted run continues after them.
"""

from __future__ import annotations

import argparse
import logging
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parent))
import _small_nets as small
import cortex_m
from _report import between_markers, keep_rows, kept_rows

Row = dict[str, list[int] | None]
"""A lowering → bytes of its arena and of its bound; of the stock flow's the first alone."""
LAST = {"io_layout": "channels last"}
MEMORY = {"optimize": "memory"}


def given(name: str, channels_last: bool) -> tuple[Any, tuple[torch.Tensor, ...]]:
    """A net and inputs, images in either order."""
    if name not in small.nets():
        return cortex_m.prepared(name) if channels_last else cortex_m.load(name)
    model, inputs = small.net(name)
    if channels_last and any(x.dim() == 4 for x in inputs):
        model = model.to(memory_format=torch.channels_last)
        inputs = tuple(x.to(memory_format=torch.channels_last) for x in inputs)
    return model, inputs


def planned(exported: Any, cpu: str, **options: Any) -> list[int] | None:
    """Arena and bound; None if the program cannot be had so: a port is no integer."""
    import stepwell
    from stepwell.backends.executorch.reading.read import read_container
    from stepwell.backends.executorch.writing.memory import ALIGNMENT
    from stepwell.inspection.viewer.memory import memory_plans
    from stepwell.translate.rewrites.cmsis.layout.order_operators import lower_bound

    try:
        lowered = stepwell.lower(exported, cpu, **options)
        data = lowered.to_pte()
    except stepwell.StepwellError:
        return None
    plan = memory_plans(read_container(data))[0]
    least = max(plan.busiest[1], lower_bound(lowered.program.method()) or 0)
    return [plan.size, -(-least // ALIGNMENT) * ALIGNMENT]


def tried(work: Callable[[], Any]) -> Any:
    """What it gives; None where the stock flow or its quantizer fails: with bare exceptions."""
    try:
        return work()
    except Exception:
        return None


def row(name: str, cpu: str) -> Row:
    from executorch.backends.cortex_m.quantizer.quantizer import CortexMQuantizer as Stock

    from stepwell.translate.pt2e.cortex_m_quantizer import CortexMQuantizer

    found: Row = {}
    theirs = tried(lambda: cortex_m.quantized(*given(name, True), Stock()))
    if theirs is not None:
        data = tried(lambda: cortex_m.stock(theirs, cpu))
        found["stock"] = None if data is None else [cortex_m.examine(data)["arena"]]
        found["same"] = planned(theirs, cpu)
        found["same, memory"] = planned(theirs, cpu, **MEMORY)
    for order, channels_last in (("NCHW", False), ("NHWC", True)):
        ours = cortex_m.quantized(*given(name, channels_last), CortexMQuantizer())
        border = {"io": "int8"} if planned(ours, cpu, io="int8") else {}
        found[order] = planned(ours, cpu, **border)
        layout = {} if channels_last else LAST
        found[f"{order}, memory"] = planned(ours, cpu, **border, **layout, **MEMORY)
    return found


def table(rows: dict[str, Row]) -> list[str]:
    """What holds over all rows, then the rows of the larger nets."""
    kinds = ("stock", "same", "same, memory", "NCHW", "NCHW, memory", "NHWC", "NHWC, memory")
    pairs = [
        (name, kind, held)
        for name, found in rows.items()
        for kind, held in found.items()
        if held is not None and len(held) == 2
    ]
    shares = sorted(((held[0] / held[1], name, kind) for name, kind, held in pairs), reverse=True)
    above = [f"{name} ({kind}) {share:.3f}" for share, name, kind in shares if share > 1.1]
    than_stock = larger(rows, ("same", "stock"))
    than_default = larger(rows, *((f"{kind}, memory", kind) for kind in ("same", "NCHW", "NHWC")))
    apart = [
        name
        for name, found in rows.items()
        if found["NCHW, memory"] and found["NHWC, memory"]
        and found["NCHW, memory"][0] > found["NHWC, memory"][0]
    ]  # fmt: skip
    at = sum(share <= 1 for share, *_ in shares)
    lines = [
        "| | |",
        "|---|---|",
        f"| arenas of {len(rows)} nets × CPUs | {len(shares)} |",
        f"| at their bound | {at} |",
        f"| above 1.1 × their bound | {len(above)}: {', '.join(above) or '–'} |",
        f"| the worst | {shares[0][1]} ({shares[0][2]}): {shares[0][0]:.3f} |",
        f"| for memory larger than by default | {', '.join(than_default) or 'none'} |",
        f"| larger than the stock flow's | {', '.join(than_stock) or 'none'} |",
        f"| larger of NCHW than of NHWC, for memory | {', '.join(apart) or 'none'} |",
        "",
        f"| | {' | '.join(kinds)} |",
        "|" + "---|" * (len(kinds) + 1),
    ]
    for name, found in rows.items():
        if name.split(",")[0] not in small.nets():
            cells = ["–" if not (held := found.get(kind)) else str(held[0]) for kind in kinds]
            lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def larger(rows: dict[str, Row], *pairs: tuple[str, str]) -> list[str]:
    """Rows in which the first of a pair has more bytes than the second."""
    return [
        f"{name} {held[0]} > {other[0]}"
        for name, found in rows.items()
        for kind, beside in pairs
        if (held := found.get(kind)) and (other := found.get(beside)) and held[0] > other[0]
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("nets", nargs="*", metavar="NET")
    parser.add_argument("--cpu", nargs="+", default=["cortex-m4", "cortex-m55"])
    parser.add_argument(
        "--keep", type=Path, required=True, help="a file of rows, which is added to"
    )
    parser.add_argument("--table", type=Path, help="write the rows that were kept into a page")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    rows = kept_rows(options.keep)
    if options.table is not None:
        between_markers(options.table, "arenas", table(rows))
        return
    nets = [*cortex_m.MEMORY, "transformer_encoder", *small.nets()]
    for name in options.nets or nets:
        for cpu in options.cpu:
            if (key := f"{name}, {cpu}") not in rows:
                rows[key] = row(name, cpu)
                keep_rows(options.keep, rows)
                print(key, rows[key], flush=True)
    print("\n".join(table(rows)))


if __name__ == "__main__":
    main()
