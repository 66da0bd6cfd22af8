"""`stepwell demo`: lower a real model, run it, and print a table of results."""

import argparse
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from stepwell.cli.terminal.outcome import Outcome
from stepwell.integrations.executorch.stock import measure_stock
from stepwell.ir.compat.torch.torch_globals import torch_alone
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.platform.files import write_atomically
from stepwell.loaders.models import open_model
from stepwell.lowering import lower
from stepwell.pipelines.xnnpack import XNNPACK_PUBLISHED
from stepwell.program import from_exported_program
from stepwell.translate.importer.export_call import export


def _from_here(path: Path) -> str:
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def _command() -> str:
    """Return the command that runs this program, also if it is not on the path."""
    beside = Path(sys.executable).with_name("stepwell")
    on_path = shutil.which("stepwell")
    if on_path and (not beside.exists() or Path(on_path) == beside):
        return "stepwell"
    return _from_here(beside) if beside.exists() else f"{sys.executable} -m stepwell"


HERE = Path(__file__).resolve()
EXAMPLES = next(
    (
        folder
        for folder in (HERE.parents[2] / "examples", HERE.parents[4] / "examples")
        if folder.is_dir()
    ),
    HERE.parents[2] / "examples",
)
"""The models and tutorials: inside an installed wheel, or next to `src` in a checkout."""

MODEL = EXAMPLES / "models" / "deit.py"


def demo(output: Path, quick: bool = False) -> dict[str, Any]:
    """Lower DeiT-Tiny to a `.pte`, run it on ExecuTorch's runtime, compare with eager PyTorch.

    Returns:
        The table's figures by name; `right` is whether the results are PyTorch's.

    Args:
        output: the path of the `.pte`.
        quick: skip the check of every pass and the measurement of ExecuTorch's own flow.

    Raises:
        StepwellError: the examples are missing from the installation.
    """
    if not MODEL.exists():
        raise StepwellError(
            f"the file {MODEL} is missing", help="install stepwell again, or use a checkout"
        )
    console = Console(highlight=False, soft_wrap=True)
    console.print("DeiT-Tiny, a vision transformer with random weights, from PyTorch to XNNPACK\n")
    model = open_model(f"{MODEL}:deit_tiny")
    module, inputs = model.module, model.inputs
    assert module is not None and inputs is not None
    exported = export(module, inputs)
    layer = export(torch.nn.Linear(1, 1), (torch.ones(1, 1),))
    lower(from_exported_program(layer), "xnnpack").to_pte()  # Imports are not a lowering.

    started = time.process_time()
    lowered = lower(from_exported_program(exported), "xnnpack")
    data = lowered.to_pte()
    seconds = time.process_time() - started
    write_atomically(output, data)
    stock = dict[str, Any]()
    if not quick:
        with console.status("checking every pass of the lowering (half a minute; --quick skips)"):
            lower(exported, "xnnpack", check=True)
        with console.status("lowering it with ExecuTorch's own flow (a minute; --quick skips)"):
            stock = measure_stock(f"{MODEL}:deit_tiny")

    with torch.no_grad():
        eager = module(*inputs)
    outputs = lowered.run(*inputs)
    error = (outputs[0] - eager).abs().max().item()
    with torch_alone():
        decomposed = from_exported_program(exported.run_decompositions())
    lifted = lower(decomposed, "xnnpack", XNNPACK_PUBLISHED)

    reports = (lifted.report, lowered.report)
    table = Table("", "stock\nExecuTorch 1.5.1", "scalars\nlifted only", "stepwell")
    for label, name, outcomes in (
        ("delegates (subgraphs on XNNPACK)", "delegates", [r.delegates for r in reports]),
        ("   split off to save memory on loading", "cuts", [r.cuts for r in reports]),
        ("ops left to portable kernels", "outside", [r.outside.total() for r in reports]),
        (
            "   of them aten.mul.Scalar",
            "mul.Scalar",
            [r.outside["aten.mul.Scalar"] for r in reports],
        ),
    ):
        table.add_row(label, str(stock.get(name, "–")), *map(str, outcomes))
    took = f"{stock['seconds']:.1f} s" if stock else "–"
    table.add_row("ExportedProgram to .pte, CPU", took, "", f"{seconds:.2f} s")
    console.print(table)
    console.print(
        f"\nwrote {output} ({len(data):,} bytes), ran it on the ExecuTorch runtime:\n"
        f"largest difference from eager PyTorch {error:.1e} "
        f"(outputs up to {eager.abs().max().item():.2f})\n"
        f"same class predicted: {'yes' if outputs[0].argmax() == eager.argmax() else 'NO'}\n"
    )
    command = _command()
    console.print(
        f"see every pass:  {command} lower {_from_here(MODEL)}:deit_tiny -t xnnpack -o deit.pte\n"
        f"read it as text: {command} show {output}"
    )
    if quick:
        console.print("--quick: no pass was checked, ExecuTorch's own flow was not measured")
    else:
        console.print("every pass was checked: the program before and after it computes the same")
    return {
        "stock": stock or None,
        "lifted": lifted.report.figures,
        "stepwell": lowered.report.figures,
        "seconds": seconds,
        "bytes": len(data),
        "error": error,
        "right": error < 1e-4,
    }


def run(arguments: argparse.Namespace) -> Outcome:
    """Lower DeiT-Tiny, run it, compare; exit with 1 if it differs from PyTorch."""
    figures = demo(arguments.output, arguments.quick)
    return Outcome(figures, [arguments.output], 0 if figures["right"] else 1)
