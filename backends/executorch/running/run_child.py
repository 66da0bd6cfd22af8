"""The child process of `run_pte(..., in_child=True)`: reads a folder, writes a file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch

from stepwell.backends.executorch.running.runner import run_pte
from stepwell.ir.diagnostics import StepwellError


def main(folder: Path) -> None:
    """Run the program in `folder` and write its outputs or its error there."""
    request = torch.load(folder / "inputs.pt", weights_only=True)
    external = folder / "external.ptd"
    answer: dict[str, Any]
    try:
        outputs = run_pte(
            folder / "program.pte",
            request["inputs"],
            request["method"],
            external=external if external.exists() else None,
        )
        answer = {"outputs": list(outputs)}
    except StepwellError as error:
        answer = {"error": str(error), "kind": type(error).__name__}
    torch.save(answer, folder / "outputs.pt")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
