"""Models of packages without a registry: one line per model, with an expression and its inputs."""

import ast
import importlib
import re
from collections.abc import Iterator
from importlib.resources import files
from importlib.util import find_spec
from typing import Any

import torch

from stepwell.model_zoo.catalogue.models import Entry, Made
from stepwell.model_zoo.catalogue.vision import imported
from stepwell.model_zoo.catalogue.weights import scaled
from stepwell.model_zoo.catalogue.wrapping import TensorFunction

LINES = files("stepwell.model_zoo.catalogue").joinpath("packages.txt").read_text().splitlines()
MODELS = [line for line in LINES if line and not line.startswith("#")]


def entries() -> Iterator[Entry]:
    """Return an entry for each line of `packages.txt` whose package is installed. A number
    distinguishes models of one class.
    """
    seen: dict[str, int] = {}
    for line in MODELS:
        *expression, inputs = re.split(r" (?=None$|None |\d+[xi])", line, maxsplit=1)
        package, _, rest = expression[0].partition(".")
        stem = f"packages/{package}.{rest.partition('(')[0].rpartition('.')[2]}"
        seen[stem] = seen.get(stem, 0) + 1
        if find_spec(package) is None:
            continue
        yield Entry(
            stem if seen[stem] == 1 else f"{stem}.{seen[stem]}",
            package,
            "of a package",
            lambda expression=expression[0], inputs=inputs: make(expression, inputs),
            size=9.0,
            distributions=(),
            module=package,
        )


@torch.no_grad()
def make(expression: str, inputs: str) -> Made:
    """Create the model that a line of `packages.txt` defines."""
    torch.manual_seed(0)
    names = {"torch": torch}
    for node in ast.walk(ast.parse(expression, mode="eval")):
        if isinstance(node, ast.Attribute) and (path := ast.unparse(node)).isidentifier() is False:
            package = path.partition(".")[0]
            names[package] = imported(package)
            _import_as_far_as_it_goes(path)
    module = eval(expression, names)
    args = tuple(_tensor(text) for text in inputs.split())
    module = scaled(module.eval(), args)
    result = module(*args)
    if not isinstance(result, (torch.Tensor, tuple, list, dict)):
        module = TensorFunction(module)
    return Made(module, args)


def _import_as_far_as_it_goes(path: str) -> None:
    parts = path.split(".")
    for count in range(2, len(parts) + 1):
        try:
            importlib.import_module(".".join(parts[:count]))
        except ModuleNotFoundError:
            return


def _tensor(text: str) -> Any:
    """Return random floats, or integers below a number."""
    if text == "None":
        return None
    sizes, integral, most = text.partition("i")
    shape = [int(size) for size in sizes.split("x")]
    if not integral:
        return torch.randn(shape)
    least, dash, above = most.partition("-")
    return torch.randint(int(least) if dash else 0, int(above or least), shape)
