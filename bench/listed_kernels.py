"""Programs on a C++ runtime that has the kernels and backends of `deployment()` and no others.

    python bench/listed_kernels.py [--only NAME] [--table docs/deploy/cpp.md]

Needs CMake, a C++ compiler and Linux. Each model is lowered and run by `examples/cpp_app`, next to
which `listed_kernels/listed_kernels.cpp` keeps all other kernels and backends from being
registered. Outputs are compared with eager PyTorch's. Then each listed name is left out in turn,
and the application must end with an error: a list without superfluous names.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import executorch
import torch
from _models import made, numerics_of
from _report import asked_for_rows, between_markers, cpu_name, markdown, show, write
from torch.utils._pytree import tree_leaves

import stepwell
from stepwell.inspection.reports.deployment import Port

HERE = Path(__file__).parent
MODELS = {
    "xnnpack": "bert t5 gpt2_2layers mixture_of_experts whisper_decoder clip segformer swin_tiny "
    "detr_decoder yolov5 graph_attention tabnet deit_tiny mobilenet_v3_small",
    "cortex-m4": "lstm gru unet hifigan ft_transformer super_resolution",
}
"""By target: delegates next to kernels, and floats on kernels of ATen alone."""
BOUND = 1e-4
"""Of the largest number of an output."""


def build(folder: Path) -> tuple[Path, Path]:
    """Return the application and the library that leaves out kernels, built in a folder."""
    prefix = Path(executorch.__path__[0]) / "share" / "cmake"
    source = ["-S", str(HERE / "listed_kernels"), "-B", str(folder)]
    given = [f"-DCMAKE_PREFIX_PATH={prefix}", "-DCMAKE_BUILD_TYPE=Release"]
    for command in (["cmake", *source, *given], ["cmake", "--build", str(folder)]):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    return folder / "app" / "app", folder / "liblisted_kernels.so"


def call(
    built: tuple[Path, Path], pte: Path, inputs: Sequence[torch.Tensor], names: Sequence[str]
) -> bytes | None:
    """Return the bytes of all outputs with these kernels and backends alone; None: an error."""
    app, library = built
    settings = {**os.environ, "LISTED": " ".join(names), "LD_PRELOAD": str(library)}
    given = b"".join(x.contiguous().numpy().tobytes() for x in inputs)
    done = subprocess.run([app, pte], input=given, capture_output=True, env=settings)
    return done.stdout if done.returncode == 0 else None


def distance(found: bytes, wanted: Sequence[torch.Tensor], ports: Sequence[Port]) -> float:
    """Return the largest difference of an output, as a part of its largest number.

    Args:
        found: the bytes of all outputs, in the order of dimensions that `ports` state.
        wanted: the outputs of eager PyTorch.
        ports: what `deployment` says of the outputs.
    """
    sizes = [y.numel() * y.element_size() for y in wanted]
    if len(found) != sum(sizes):
        return float("inf")
    far, at = 0.0, 0
    for output, size, port in zip(wanted, sizes, ports, strict=True):
        bytes_ = bytearray(found[at : at + size])
        own = torch.frombuffer(bytes_, dtype=getattr(torch, port.kind)).double().nan_to_num()
        ordered = output.permute(port.order) if port.order else output
        other, at = ordered.flatten().double().nan_to_num(), at + size
        far = max(far, float((own - other).abs().max() / other.abs().max().clamp_min(1e-30)))
    return far


@torch.no_grad()
def row(name: str, target: str, built: tuple[Path, Path], folder: Path) -> dict[str, Any]:
    """Return what is measured of one model."""
    model = made(name)
    exported = model.exported()
    wanted = tree_leaves(exported.module()(*model.inputs))
    lowered = stepwell.lower(exported, target, numerics=numerics_of(name))
    pte = folder / "model.pte"
    lowered.save(pte)
    needs = lowered.deployment()
    names, outputs = [*needs.kernels, *needs.backends], needs.ports["forward", "output"]
    found = call(built, pte, model.inputs, names)
    without = {
        one: call(built, pte, model.inputs, [other for other in names if other != one])
        for one in names
    }
    return {
        "model": f"{name}, {target}",
        "kernels": needs.kernels,
        "backends": needs.backends,
        "distance": None if found is None else distance(found, wanted, outputs),
        "superfluous": [one for one, ran in without.items() if ran is not None],
        "resident": needs.resident,
    }


def is_right(found: dict[str, Any]) -> bool:
    """Whether a program runs with its list, computes what eager does, and needs all of it."""
    far = found["distance"]
    return far is not None and far < BOUND and not found["superfluous"]


def main() -> None:
    """Measure each model, print the table and keep it."""
    arguments = asked_for_rows(__doc__)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        built = build(Path(folder) / "build")
        for target, names in MODELS.items():
            for name in names.split():
                if arguments.only in name:
                    rows.append(row(name, target, built, Path(folder)))
                    print(rows[-1], file=sys.stderr, flush=True)
    columns = (
        "model",
        "kernels",
        "difference, of the largest number",
        "each is needed",
        "resident, kB",
    )
    cells = [
        (r["model"], " ".join(f"`{k}`" for k in r["kernels"]) or "none",
         "error" if r["distance"] is None else f"{r['distance']:.0e}",
         "yes" if not r["superfluous"] else f"not {', '.join(r['superfluous'])}",
         r["resident"] // 1000)
        for r in rows
    ]  # fmt: skip
    right = sum(map(is_right, rows))
    note = f"{right} of {len(rows)} run with their list alone and compute what eager PyTorch does"
    show("kernels", columns, cells, f"{note}; {cpu_name()}")
    if not arguments.only:
        write("listed_kernels", rows)
    if arguments.table:
        between_markers(
            arguments.table, "listed kernels", [*markdown(columns, cells), "", f"{note}."]
        )
    raise SystemExit(right < len(rows))


if __name__ == "__main__":
    main()
