"""Models of the repository itself: audio, recurrent, microcontroller, graph and quantized
models.
"""

import ast
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from stepwell.model_zoo.catalogue.models import Entry, of_file

FOLDER = Path(__file__).resolve().parents[4] / "examples" / "models"
"""Their folder in a checkout; an installed package has none."""
GIVES = ("tuple[", "ExportedProgram")
"""Annotation of a factory's result."""
LARGE = {"deit": 8.0, "swin": 15.0, "resnet": 12.0, "gpt2": 15.0, "llama": 12.0, "mixer": 10.0}
"""Files with models of full size, and their sizes for sorting."""


def entries() -> Iterator[Entry]:
    """Yield each public callable of a file that needs no arguments and returns a model."""
    for file in sorted(FOLDER.glob("*.py")):
        for function in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(function, ast.FunctionDef) and is_factory(function):
                found = of_file(f"{file}:{function.name}", file)
                name = f"examples/{file.stem}.{function.name}"
                yield replace(found, name=name, kind="example", size=LARGE.get(file.stem, 1.0))


def is_factory(function: ast.FunctionDef) -> bool:
    """Whether a function needs no arguments, and is annotated to return a model."""
    given = ast.unparse(function.returns) if function.returns else ""
    needs = len(function.args.args) - len(function.args.defaults)
    needs += sum(default is None for default in function.args.kw_defaults)
    gives = given.startswith(GIVES) and ("Module" in given or "Program" in given)
    return gives and not needs and not function.name.startswith("_")
