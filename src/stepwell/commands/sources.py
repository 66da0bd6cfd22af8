"""Whatever `show` can look at, as a program: a model, a saved program, or an artefact."""

from __future__ import annotations

from pathlib import Path

from stepwell.ir.files import read_bytes
from stepwell.models import Model, open_model
from stepwell.program import Program

ARTEFACTS = (".pte", ".tosa")


def open_source(spec: str, *, trust: bool = False, largest: bool = False) -> Model:
    """A model (`open_model`), a `.pte` (`read_pte` says what `largest` does) or a `.tosa`.

    Raises:
        StepwellError: the file is missing or does not read.
    """
    path = Path(spec)
    if path.suffix not in ARTEFACTS:
        return open_model(spec, trust=trust)
    from stepwell.artefacts import read_pte, read_tosa

    data = read_bytes(path)
    is_pte = path.suffix == ".pte"
    return Model(
        path.stem, Program.of(read_pte(data, largest=largest) if is_pte else read_tosa(data))
    )
