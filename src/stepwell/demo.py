"""`stepwell demo`: the main job on a real model, with a table that needs no explanation."""

from __future__ import annotations

import time
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.files import write_atomically
from stepwell.lowering import lower
from stepwell.models import open_model
from stepwell.pipelines import XNNPACK_PUBLISHED
from stepwell.program import from_exported_program

MODEL = Path(__file__).resolve().parents[2] / "examples" / "models" / "deit.py"


def demo(output: Path) -> int:
    """Lower DeiT-Tiny to a `.pte`, run it on ExecuTorch's runtime, compare with eager PyTorch.

    Args:
        output: where the `.pte` is written.

    Raises:
        StepwellError: the examples are not there (they come with a checkout, not with a wheel).
    """
    if not MODEL.exists():
        raise StepwellError("the examples are not installed", help="run the demo from a checkout")
    console = Console(highlight=False, soft_wrap=True)
    console.print("DeiT-Tiny, a vision transformer with random weights, from PyTorch to XNNPACK\n")
    model = open_model(f"{MODEL}:deit_tiny")
    module, inputs = model.module, model.inputs
    assert module is not None and inputs is not None
    exported = torch.export.export(module, inputs)

    started = time.perf_counter()
    lowered = lower(from_exported_program(exported), "xnnpack")
    data = lowered.to_pte()
    seconds = time.perf_counter() - started
    write_atomically(output, data)

    with torch.no_grad():
        eager = module(*inputs)
    outputs = lowered.run(*inputs)
    error = (outputs[0] - eager).abs().max().item()
    decomposed = from_exported_program(exported.run_decompositions())
    lifted = lower(decomposed, "xnnpack", XNNPACK_PUBLISHED)

    reports = (lifted.report, lowered.report)
    table = Table("", "stock\nExecuTorch 1.5.1", "scalars\nlifted only", "stepwell")
    for label, stock, outcomes in (
        ("delegates (parts XNNPACK runs whole)", "62", [r.delegates for r in reports]),
        ("ops left to portable kernels", "207", [r.outside.total() for r in reports]),
        ("   of them aten.mul.Scalar", "24", [r.outside["aten.mul.Scalar"] for r in reports]),
    ):
        table.add_row(label, stock, *map(str, outcomes))
    table.add_row("ExportedProgram to .pte", "17-20 s", "", f"{seconds:.2f} s")
    console.print(table)
    console.print(
        f"\nwrote {output} ({len(data):,} bytes), ran it on the ExecuTorch runtime:\n"
        f"largest difference from eager PyTorch {error:.1e} "
        f"(outputs up to {eager.abs().max().item():.2f})\n"
        f"same class predicted: {'yes' if outputs[0].argmax() == eager.argmax() else 'NO'}\n"
    )
    console.print(
        f"see every step:  stepwell lower {_short(MODEL)}:deit_tiny -t xnnpack -o deit.pte\n"
        f"read it as text: stepwell show {output}\n"
        "stock figures: measured beforehand; `make bench` measures them beside ours"
    )
    return 0 if error < 1e-4 else 1


def _short(path: Path) -> str:
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return path.name
