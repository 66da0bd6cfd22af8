"""Which models are proved finite from the range of their inputs, and what that allows.

    python tools/finite_models.py [MODEL ...] [--range LOW HIGH] [--table docs/semantics.md]

Lowers each example model to XNNPACK three ways: with nothing known of its inputs, with the declared
range of its float inputs (`ranges=`), and with `numerics="finite"`. Integers and bytes are bounded
by their type. `@bytes` after a model's name gives it an image of bytes, which it scales to 0 … 1
and normalizes. Columns: the values before the last choices of kernels that are proved finite, of
all float values that ops compute; and the convolutions that become Winograd's, in each way.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from xdsl.dialects.builtin import TensorType

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "examples/models")]

from _models import EXAMPLES, made  # noqa: E402
from _report import between_markers, markdown  # noqa: E402

import stepwell  # noqa: E402
from stepwell.ir.core import weight_key  # noqa: E402
from stepwell.ir.dtypes import is_float  # noqa: E402
from stepwell.ir.traversal import walk  # noqa: E402
from stepwell.ir.types import element  # noqa: E402
from stepwell.translate.range_analysis import is_finite  # noqa: E402

MODELS = (*EXAMPLES, "resnet18@bytes", "resnet50@bytes", "mobilenet_v2@bytes", "unet", "vae")
COLUMNS = (
    "model",
    "proved finite",
    "of values",
    "Winograd by default",
    "by the range",
    "if finite",
)


class Bytes(nn.Module):
    """A model whose image is bytes, normalized as for ImageNet."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        for name, numbers in (("mean", (0.485, 0.456, 0.406)), ("std", (0.229, 0.224, 0.225))):
            self.register_buffer(name, torch.tensor(numbers).view(1, 3, 1, 1))

    def forward(self, image: Tensor) -> Tensor:
        return self.model((image.float() / 255 - self.mean) / self.std)


def exported(name: str) -> torch.export.ExportedProgram:
    """The exported program of a model, of bytes if its name says so."""
    of, _, form = name.partition("@")
    model = made(of)
    if form != "bytes":
        return made(name).exported()
    image = torch.zeros(model.inputs[0].shape, dtype=torch.uint8)
    return torch.export.export(Bytes(model.module).eval(), (image,))


def winograd(program: Any, **options: Any) -> int:
    """How many convolutions become Winograd's."""
    events = stepwell.lower(program, "xnnpack", **options).report.events
    return Counter(event.rewrite for event in events)["convolve-by-winograd"]


def proved(program: Any, **options: Any) -> tuple[int, int]:
    """How many float values are proved finite before kernels are chosen, and of how many."""
    lowered = stepwell.lower(program, "xnnpack", stop="affine-by-channels", **options).program
    lowered.context.forget()
    results = [r for op in walk(lowered.module) for r in op.results if weight_key(r) is None]
    tensors = [r for r in results if isinstance(r.type, TensorType) and is_float(element(r.type))]
    return sum(is_finite(value, lowered) is not None for value in tensors), len(tensors)


def measured(name: str, ends: tuple[float, float]) -> list[Any]:
    """The row of a model."""
    program = exported(name)
    method = stepwell.from_exported_program(program).method()
    floats = [
        at
        for at, arg in enumerate(method.body.block.args)
        if isinstance(arg.type, TensorType) and is_float(element(arg.type))
    ]
    known = {"ranges": dict.fromkeys(floats, ends)} if floats else {}
    counts = [winograd(program, **options) for options in ({}, known, {"numerics": "finite"})]
    return [name, *proved(program, **known), *counts]


def main() -> None:
    """Print the table, and write it to a page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", default=MODELS)
    parser.add_argument("--range", nargs=2, type=float, default=(-3.0, 3.0), metavar="END")
    parser.add_argument("--table", type=Path, help="write the table between the markers of a page")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    rows = [measured(name, tuple(options.range)) for name in options.models]
    table = markdown(COLUMNS, rows)
    print(*table, sep="\n")
    if options.table:
        between_markers(options.table, "finite models", table)


if __name__ == "__main__":
    main()
