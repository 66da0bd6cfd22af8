"""Models without any tuning for them: stock ExecuTorch and stepwell on XNNPACK.

    python bench/strangers.py [--kind "graph strangers"] [--models t5,whisper_decoder]
        [--table docs/xnnpack.md]

Small models of examples/models: widths of 8 to 64, so that ops between the products matter.
Each is lowered by both flows in a process of its own, and the two programs run there turn by turn,
with one thread. A ratio is stock's time divided by ours; errors are shares of the largest number
of eager PyTorch. What stock's flow or its program fails with is recorded as such, a process that
ends included: then ours is measured alone.

Results are kept by model in bench/results/strangers.json; `--table FILE` writes them between the
comments named after the kind of that file. `--counts FILE` lowers with stepwell alone, and
writes delegates and operators outside (`tests/xnnpack/data/stranger_counts.json`).

What `FINITE` names is measured with `numerics="finite"`, and counted with the default and with it.
"""

from __future__ import annotations

import argparse
import copy
import importlib
import json
import logging
import os
import re
import signal
import statistics
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import _graph_nets
import torch
from _report import RESULTS, between_markers, cpu_seconds, prepare, show, write
from lowering import stock_pte
from torch.utils import _pytree as pytree
from xnnpack import OURS, STOCK, calls, pair, run_in_turn, set_threads, warm_up

import stepwell
from stepwell.backends.executorch.running.runner import PteSession
from stepwell.ir.declared.numerics import Numerics

MODELS = {
    "t5": ("t5_block", "t5"),
    "bert": ("bert",),
    "decoders": (
        "qwen3_block",
        "qwen3_block_of_any_length",
        "gemma2",
        "gemma2_in_bfloat16",
        "mixture_of_experts",
    ),
    "state_space": ("mamba", "rwkv"),
    "recurrent": ("lstm", "gru", "lstm_both_ways", "lstm_64_steps"),
    "whisper": ("whisper_encoder", "whisper_decoder"),
    "wav2vec2": ("wav2vec2",),
    "wavenet": ("wavenet", "wavenet_of_any_length"),
    "vocoders": ("hifigan", "snake_vocoder"),
    "conv_tasnet": ("conv_tasnet",),
    "clip": ("clip", "clip_image"),
    "diffusion": ("diffusion_unet", "diffusion_unet_in_halves", "vae"),
    "vision": ("vit_with_registers", "segformer", "unet", "densenet", "super_resolution"),
    "detection": ("yolov5", "detr_decoder"),
    "pointnet": ("pointnet", "pointnet_of_any_number"),
    "tables_and_graphs": ("tabnet", "ft_transformer", "graph_convolution", "graph_attention"),
}
"""Files of examples/models and what they make."""
KINDS = {
    "strangers": MODELS,
    "graph strangers": {"_graph_nets": _graph_nets.NETS},
}
"""What is measured together: the comments around its table, and its models."""
FILES = {name: file for each in KINDS.values() for file, names in each.items() for name in names}
FINITE = {
    "pointnet": "its maxima over points and its log-softmax may lose a NaN",
    "pointnet_of_any_number": "its log-softmax may lose a NaN; its maxima stay outside in both",
    "graph_convolution": "degree ** -0.5 may be NaN for 0, and its log-softmax may lose a NaN",
    **dict.fromkeys(_graph_nets.NETS, "one infinity makes NaN of what others are added up to"),
}
"""Models that are whole delegates only for ordinary numbers, and what keeps the default from it."""


@dataclass(frozen=True)
class Ran:
    """One program: what it holds, how long it takes to make and to run, and how far off it is."""

    delegates: int
    outside: int
    compile_cpu_seconds: float
    p10_ms: float
    error: float


def exported(name: str) -> tuple[Any, tuple[Any, ...], list[torch.Tensor]]:
    """The exported program of a model, its inputs, and what eager PyTorch gives for them."""
    made = made_by(name)
    module, inputs, shapes = (*made, None)[:3]
    expected = pytree.tree_leaves(copy.deepcopy(module)(*inputs))
    return torch.export.export(module, inputs, dynamic_shapes=shapes), inputs, expected


def made_by(name: str) -> tuple[Any, ...]:
    """A module, its inputs, and perhaps the sizes that are open."""
    return getattr(importlib.import_module(FILES[name]), name)()


def numerics_of(name: str) -> Numerics:
    """The mode that a model is measured with."""
    return "finite" if name in FINITE else "torch"


def distance(found: tuple[torch.Tensor, ...], wanted: list[torch.Tensor]) -> float:
    """The largest difference of an output, as a share of that output's largest number."""
    return max(
        float((one.float() - other.float()).abs().max() / other.float().abs().max())
        for one, other in zip(found, wanted, strict=True)
    )


def refusal(step: str, work: Callable[[], Any]) -> tuple[Any, str | None]:
    """What the stock flow gives, or the name of the step and the error it failed with."""
    try:
        return work(), None
    except Exception as error:  # Whatever stock fails with is a result here.
        words = re.sub(r"\s+", " ", str(error)).strip()[:160]
        return None, f"{step}: {type(error).__name__}: {words}"


@torch.no_grad()
def measure(name: str, rounds: int, with_stock: bool) -> dict[str, Any]:
    """Both programs of a model, run in turn; stock's failure in the place of its numbers."""
    set_threads(1)
    program, inputs, expected = exported(name)
    spare = copy.deepcopy(program)
    seconds, programs = {}, {}
    seconds[OURS], programs[OURS] = cpu_seconds(
        lambda: stepwell.lower(program, "xnnpack", numerics=numerics_of(name)).to_pte(), 2
    )
    fault = None
    if with_stock:
        made, fault = refusal("lowering", lambda: cpu_seconds(lambda: stock_pte(spare)))
        if made is not None:
            pte = made[1]
            _, fault = refusal("running", lambda: PteSession.load(pte).run(*inputs))
            if fault is None:
                seconds[STOCK], programs[STOCK] = made
    times, first = run_in_turn(programs, inputs, rounds)
    found: dict[str, Any] = {STOCK: {"fails": fault}} if fault else {}
    for flow, pte in programs.items():
        ran = Ran(
            **calls(pte),
            compile_cpu_seconds=seconds[flow],
            p10_ms=statistics.quantiles(times[flow], n=10, method="inclusive")[0],
            error=distance(first[flow], expected),
        )
        found[flow] = asdict(ran)
    return found


def in_a_child(work: Callable[[], Any]) -> tuple[Any, str]:
    """What `work` gives in a fork of this process, or None and how the fork ended.

    No delegate may have been loaded in this process: threads do not survive a fork.
    """
    read, said = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        code = 1
        try:
            with open(said, "w") as pipe:
                json.dump(work(), pipe)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    os.close(said)
    with open(read) as pipe:
        text = pipe.read()
    ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if ended == 0:
        return json.loads(text), ""
    return None, signal.Signals(-ended).name if ended < 0 else f"exit status {ended}"


def compare(name: str, rounds: int) -> dict[str, Any]:
    """Measured in a child, and once more without stock if that ended the child."""
    found, ended = in_a_child(lambda: measure(name, rounds, True))
    if found is not None:
        return found
    alone, again = in_a_child(lambda: measure(name, rounds, False))
    if alone is None:
        raise SystemExit(f"{name}: stepwell's own flow ends with {again}")
    return {STOCK: {"fails": f"the process ends with {ended}"}, **alone}


def counted(name: str) -> dict[str, Any]:
    """Delegates and operators outside of our program, by name, for each mode that counts."""
    modes: tuple[Numerics, ...] = ("torch", "finite") if name in FINITE else ("torch",)
    return {mode: counted_in(name, mode) for mode in modes}


@torch.no_grad()
def counted_in(name: str, numerics: Numerics) -> dict[str, Any]:
    """The same, for one mode."""
    report = stepwell.lower(exported(name)[0], "xnnpack", numerics=numerics).report
    return {"delegates": report.delegates, "outside": dict(sorted(report.outside.items()))}


def line(name: str, found: dict[str, Any]) -> list[str]:
    """A model's cells: counts, times and their ratio, seconds to compile, error."""
    stock, ours = found[STOCK], found[OURS]
    after = f"{ours['delegates']}/{ours['outside']}"
    cells = [name.replace("_", " ") + ", finite" * (name in FINITE)]
    if "fails" in stock:
        cells += [f"fails → {after}", f"– → {ours['p10_ms']:.3f}", ""]
        cells += [f"– → {ours['compile_cpu_seconds']:.2f}", f"– → {ours['error']:.0e}"]
        return cells
    return [
        *cells,
        pair(f"{stock['delegates']}/{stock['outside']}", after),
        pair(f"{stock['p10_ms']:.3f}", f"{ours['p10_ms']:.3f}"),
        f"{stock['p10_ms'] / ours['p10_ms']:.2f}×",
        pair(f"{stock['compile_cpu_seconds']:.2f}", f"{ours['compile_cpu_seconds']:.2f}"),
        pair(f"{stock['error']:.0e}", f"{ours['error']:.0e}"),
    ]


COLUMNS = ("model", "delegates/outside", "p10 ms", "ratio", "compile CPU s", "error")


def table(results: dict[str, Any], kind: str) -> list[str]:
    """Markdown: a line for each model, and below what stock fails with."""
    held = [name for names in KINDS[kind].values() for name in names if name in results]
    rows = [line(name, results[name]) for name in held]
    lines = [f"| {' | '.join(COLUMNS)} |", "|---" * len(COLUMNS) + "|"]
    lines += [f"| {' | '.join(row)} |" for row in rows]
    faults = [
        f"- {name.replace('_', ' ')}: {results[name][STOCK]['fails'].replace('|', '/')}"
        for name in held
        if "fails" in results[name][STOCK]
    ]
    if faults:
        lines += ["", "What stock fails with:", "", *faults]
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kind", default="strangers", choices=KINDS)
    parser.add_argument("--models", help="names, with commas between; all of the kind")
    parser.add_argument("--rounds", type=int, default=200, help="runs of each program")
    parser.add_argument("--table", type=Path, help="also write all results kept into this file")
    parser.add_argument("--counts", type=Path, help="write our counts alone to this file")
    options = parser.parse_args()
    of_kind = [name for names in KINDS[options.kind].values() for name in names]
    names = of_kind if options.models is None else options.models.split(",")
    names = [name for name in names if name]
    if unknown := sorted({*names} - {*FILES}):
        parser.error(f"no model {', '.join(unknown)}; there are {', '.join(FILES)}")
    prepare()
    logging.disable(logging.WARNING)
    if options.counts:
        counts = {f"{FILES[name]}:{name}": counted(name) for name in names}
        options.counts.write_text(json.dumps(counts, indent=1) + "\n")
        return
    kept = RESULTS / "strangers.json"
    results = json.loads(kept.read_text())["results"] if kept.exists() else {}
    if names:
        warm_up()
    for name in names:
        results[name] = compare(name, options.rounds)
        print(*line(name, results[name]), flush=True)
        write("strangers", results)
    show("stock → stepwell on XNNPACK, 1 thread", COLUMNS, [line(n, results[n]) for n in names])
    if options.table:
        between_markers(options.table, options.kind, table(results, options.kind))


if __name__ == "__main__":
    main()
