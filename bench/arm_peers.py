"""ONNX Runtime and LiteRT compared with stepwell on an emulated Arm64 core: instructions, errors.

    python tools/arm64/emulated_python.py
    python bench/arm_peers.py --keep FOLDER --python PYTHON [--models …] [--table docs/arm64.md]

Each runtime is its aarch64 build and runs what its own tools make of a model of `examples/models`
(`bench/_arm_peer_files.py`, in PYTHON, which has onnx, onnxscript, onnxruntime and litert-torch):
float32, and static int8 with a scale for each channel. Ours is lowered for the core. Instructions
are of one warm call on one thread, the caller's too; a ratio is theirs divided by ours. An error is
of the output that is furthest off the float model's, as a part of its largest. What was measured
stays in FOLDER, and is not measured again.
"""

from __future__ import annotations

import argparse
import logging
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _peer_tables import GOAL
from _report import between_markers, keep_rows, kept_rows, prepare
from arm64 import error
from xnnpack import MODELS, made

import stepwell
from stepwell.backends.executorch.running import arm64
from stepwell.backends.executorch.running.runner import PteSession
from stepwell.ir.diagnostics import StepwellError

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tools" / "arm64"))
from emulated_python import command, root  # noqa: E402  # Beside the setup that it shares.

FORMS = ("fp32", "static")
OURS, PEERS = "stepwell", {"ONNX Runtime": "onnx", "LiteRT": "tflite"}
Figures = Mapping[str, Any]
"""Of a runtime on a model in a form: its instructions and its error, or why there are none."""


@torch.no_grad()
def ours(name: str, form: str, core: str, exact: torch.Tensor) -> Figures:
    """Our program, lowered for the core."""
    module, inputs = model(name)
    if form == "static":
        from quantized import quantize

        exported = quantize(module, inputs, per_channel=True)
    else:
        exported = torch.export.export(module, inputs)
    program = stepwell.lower(exported, "xnnpack", numerics="finite", cpu=core).to_pte()
    session = PteSession.load(program, cpu=core, counting=True)
    measured = session.measure(*session.laid_out(inputs), repeats=2)
    return {"instructions": measured.instructions, "error": error(measured.outputs[0], exact)}


def theirs(file: Path, inputs: Path, core: str, exact: torch.Tensor) -> Figures:
    """Another runtime's file, in Python on the core."""
    if not file.exists():
        return {"why": file.with_suffix(file.suffix + ".failed").read_text().strip()}
    with tempfile.TemporaryDirectory() as folder:
        counts, output = Path(folder) / "counts", Path(folder) / "output.npy"
        runner = HERE.parent / "tools" / "arm64" / "peer.py"
        done = subprocess.run(
            [*command(core, counts), str(runner), str(file), str(inputs), str(output)],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            return {"why": (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]}
        (counted,) = arm64.read_counts(counts.read_bytes())
        found = torch.from_numpy(np.load(output))
    return {"instructions": sum(counted.values()), "error": error(found, exact)}


def model(name: str) -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
    """A model of the goal, such as `llama_block:128`, and its inputs."""
    torch.manual_seed(0)
    module, inputs, *_ = made(name)
    return module, inputs


@torch.no_grad()
def measure(name: str, keep: Path, python: str, core: str) -> dict[str, dict[str, Figures]]:
    """Every runtime on a model, by form."""
    folder = keep / name.replace(":", "_")
    folder.mkdir(parents=True, exist_ok=True)
    module, inputs = model(name)
    output = module.double()(*(x.double() if x.is_floating_point() else x for x in inputs))
    exact = (output if isinstance(output, torch.Tensor) else output[0]).double()
    given = folder / "inputs.npz"
    np.savez(given, *(value.numpy() for value in inputs))
    function, *numbers = name.split(":")
    maker = HERE / "_arm_peer_files.py"
    making = [python, str(maker), str(folder), MODELS[function], function, *numbers]
    subprocess.run(making, capture_output=True, check=True)
    found: dict[str, dict[str, Figures]] = {}
    for form in FORMS:
        try:
            found[form] = {OURS: ours(name, form, core, exact)}
        except StepwellError as problem:
            found[form] = {OURS: {"why": str(problem).splitlines()[0]}}
        for peer, ending in PEERS.items():
            found[form][peer] = theirs(folder / f"{form}.{ending}", given, core, exact)
    return found


def ratio(row: Mapping[str, Figures], peer: str) -> float | None:
    """Their instructions divided by ours."""
    pair = [row[name].get("instructions") for name in (peer, OURS)]
    return pair[0] / pair[1] if all(pair) else None


def table(rows: Mapping[str, Mapping[str, Mapping[str, Figures]]]) -> list[str]:
    """A line for each model and form, and the geometric means of each form."""
    head = [OURS, *PEERS, *(f"{peer} ÷ {OURS}" for peer in PEERS), "errors, in that order"]
    lines = ["| model | form | " + " | ".join(head) + " |", "|---" * (len(head) + 2) + "|"]
    for name, forms in rows.items():
        for form, row in forms.items():
            cells = [
                f"{row[peer]['instructions'] / 1e6:.1f} M" if "why" not in row[peer] else "–"
                for peer in (OURS, *PEERS)
            ]
            cells += [f"{part:.2f}" if (part := ratio(row, peer)) else "–" for peer in PEERS]
            errors = [row[peer].get("error") for peer in (OURS, *PEERS)]
            cells.append(", ".join("–" if e is None else f"{e:.0e}" for e in errors))
            lines.append(f"| {name} | {form} | " + " | ".join(cells) + " |")
    for form in FORMS:
        means = [mean([ratio(forms[form], peer) for forms in rows.values()]) for peer in PEERS]
        blank = " | ".join("" for _ in (OURS, *PEERS))
        lines.append(f"| geometric mean | {form} | {blank} | {' | '.join(means)} | |")
    why = [
        f"{name}, {form}, {peer}: `{figures['why']}`"
        for name, forms in rows.items()
        for form, row in forms.items()
        for peer, figures in row.items()
        if "why" in figures
    ]
    return [*lines, "", *([f"Not measured: {'; '.join(why)}.", ""] if why else [])]


def mean(ratios: Sequence[float | None]) -> str:
    """Geometric, of those that there are."""
    there = [ratio for ratio in ratios if ratio]
    return f"{statistics.geometric_mean(there):.2f}" if there else "–"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", nargs="+", default=list(GOAL))
    parser.add_argument("--core", default="cortex-a76")
    parser.add_argument("--keep", type=Path, required=True, help="folder of files and figures")
    parser.add_argument("--python", default=sys.executable, help="the Python that makes files")
    parser.add_argument("--table", type=Path, help="the page that the table is written to")
    options = parser.parse_args()
    prepare()
    logging.disable(logging.WARNING)
    if not root().exists():
        print("not run: python tools/arm64/emulated_python.py has not been run")
        return 0
    cache = options.keep / f"{options.core}.json"
    rows = kept_rows(cache)
    for name in options.models:
        if name not in rows:
            rows[name] = measure(name, options.keep, options.python, options.core)
            keep_rows(cache, rows)
            print(*table({name: rows[name]})[2:-3], sep="\n", flush=True)
    lines = table({name: rows[name] for name in GOAL if name in rows})
    print(*lines, sep="\n")
    if options.table is not None:
        between_markers(options.table, "peers", ["", *lines])
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
