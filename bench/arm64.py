"""Models on emulated Arm64 cores: errors and instruction counts, ours and the stock flow's.

    python bench/arm64.py [--models PATTERN] [--forms PATTERN] [--cores cortex-a76 …] [--large]
                          [--table docs/arm64.md]

Each program runs on each core; its error is the largest of any output, as a part of the largest,
from the float model in float64, or for int8 from eager's own int8 program. Ours is *worse* where
its error is beyond twice stock's and twice the rounding of the form. Instructions are of a warm
call, counted by a plug-in (`docs/arm64.md`); a ratio is stock's divided by ours. `--large` takes
the models of bench/xnnpack.py, whose stock flow takes minutes, each lowered for its core. If the
default costs decide differently, the instructions of that program are given, too.
"""

from __future__ import annotations

import argparse
import copy
import importlib
import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from _report import between_markers, prepare
from torch import nn

import stepwell
from stepwell.backends.executorch.running import arm64
from stepwell.backends.executorch.running.runner import PteSession
from stepwell.dialects.xnnpack.cpus import CPUS
from stepwell.integrations.executorch.stock import stock_pte
from stepwell.ir.diagnostics import StepwellError

Made = tuple[nn.Module, tuple[Any, ...]]
CORES = ("cortex-a53", "cortex-a76", "neoverse-v1", "max")
COUNTED = ("cortex-a76", "neoverse-v1")
ROUNDING = {"fp32": 2**-20, "fp16": 2**-9, "bf16": 2**-7}
"""What a form rounds its results by, at most a few times; int8 by a step of 1/127."""
FORMS = ("fp32", "fp16", "bf16", "static", "dynamic", "8da4w")
LARGE_FORMS = ("fp32", "fp16", "static", "8da4w")
DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16}


def example(place: str) -> Callable[[], Made]:
    """A model of examples/models, as `file:name`."""
    file, _, name = place.partition(":")
    return lambda: getattr(importlib.import_module(file), name)()


def vision_block() -> Made:
    """A block of DeiT-Tiny on 50 tokens."""
    from deit import Block
    from random_weights import random_input, randomize

    return randomize(Block(192, 3)), (random_input(1, 50, 192),)


def two_blocks() -> Made:
    """DeiT-Tiny on a whole image, 197 tokens, with two of its twelve blocks."""
    from deit import VisionTransformer
    from random_weights import random_input, randomize

    return randomize(VisionTransformer(192, 2, 3)), (random_input(1, 3, 224, 224),)


def mixer_block() -> Made:
    """A block of Mixer on 49 patches of 128 channels."""
    from mixer import MixerBlock
    from random_weights import random_input, randomize

    return randomize(MixerBlock(49, 128)), (random_input(1, 49, 128),)


def llama_block() -> Made:
    """A block of Llama on 16 tokens, with rotary tables of the model's own element type."""
    from llama import WIDTH, Block, rotary_table
    from random_weights import random_input, randomize

    class Whole(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block = Block()
            for name, table in zip(("cos", "sin"), rotary_table(torch.arange(16)), strict=True):
                self.register_buffer(name, table)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.block(x, self.cos, self.sin)

    return randomize(Whole()), (random_input(1, 16, WIDTH),)


SMALL: dict[str, Callable[[], Made]] = {
    "perceptron": example("tiny:mlp"),
    "keyword spotting": example("tiny:ds_cnn"),
    "conv net": example("quantized:small_conv_net"),
    "encoder, 2 layers": example("transformer:transformer_encoder_2layers"),
    "Llama block": llama_block,
    "DeiT block": vision_block,
    "Mixer block": mixer_block,
    "GRU": example("recurrent:gru"),
}
LARGE: dict[str, Callable[[], Made]] = {
    "DeiT-Small, 2 blocks": example("deit:deit_small_depth2"),
    "DeiT-Tiny, 2 blocks": two_blocks,
    "GPT-2, 2 layers": example("gpt2:gpt2_2layers"),
    "Llama block": llama_block,
    "MobileNetV2": example("mobilenet:mobilenet_v2"),
    "MobileNetV3-Small": example("mobilenet:mobilenet_v3_small"),
    "ResNet18": example("resnet:resnet18"),
}


@dataclass(frozen=True)
class Case:
    """A model in a form: its program, its inputs, and what is right."""

    exported: torch.export.ExportedProgram
    inputs: tuple[Any, ...]
    exact: torch.Tensor


@dataclass(frozen=True)
class Row:
    """A model in a form on a core."""

    model: str
    form: str
    core: str
    error: float
    stock: float
    rounding: float
    instructions: tuple[int, int] | None
    usual: int | None = None
    """Return the instructions with the default costs, if that is another program."""

    @property
    def is_worse(self) -> bool:
        """Whether ours is further off than stock's, beyond what the form rounds."""
        return self.error > 2 * max(self.stock, self.rounding)


def cast(value: Any, dtype: torch.dtype) -> Any:
    """A float tensor in a dtype; anything else as it is."""
    is_float = isinstance(value, torch.Tensor) and value.is_floating_point()
    return value.to(dtype) if is_float else value


def case(make: Callable[[], Made], form: str) -> Case | None:
    """The model in a form, or None: int4 by groups is of linear layers alone."""
    from quantized import by_groups, quantize

    module, inputs = make()
    module = copy.deepcopy(module).eval()
    if form in ("fp32", *DTYPES):
        dtype = DTYPES.get(form, torch.float32)
        module, inputs = module.to(dtype), tuple(cast(value, dtype) for value in inputs)
        exact = copy.deepcopy(module).double()(*(cast(value, torch.float64) for value in inputs))
        return Case(torch.export.export(module, inputs), inputs, exact)
    if form == "8da4w":
        layers = [m for m in module.modules() if isinstance(m, nn.Linear)]
        if not any(layer.in_features % 32 == 0 for layer in layers):
            return None
        exported = by_groups(module, inputs)
    else:
        exported = quantize(module, inputs, per_channel=True, dynamic=form == "dynamic")
    return Case(exported, inputs, exported.module()(*inputs))


def error(found: torch.Tensor, exact: torch.Tensor) -> float:
    """Of the output that is furthest off, as a part of the largest."""
    off = (found.double() - exact.double()).abs().max()
    return float(off / exact.double().abs().max())


def instructions(program: bytes, inputs: Sequence[Any], core: str) -> int:
    """Of a warm call."""
    session = PteSession.load(program, cpu=core, counting=True)
    return session.measure(*session.laid_out(inputs), repeats=2).instructions


@torch.no_grad()
def rows(
    model: str, make: Callable[[], Made], form: str, cores: Sequence[str], *, for_core: bool
) -> Iterable[Row]:
    """A model in a form, on each core; lowered for it, or by the usual costs."""
    made = case(make, form)
    if made is None:
        return
    usual = stepwell.lower(made.exported, "xnnpack").to_pte()
    try:
        stock = stock_pte(copy.deepcopy(made.exported))
    except Exception as reason:  # Whatever its passes raise.
        print(f"{model}, {form}: the stock flow fails: {str(reason).splitlines()[0]}")
        return
    for core in cores:
        ours = usual
        if for_core and core in CPUS:
            ours = stepwell.lower(made.exported, "xnnpack", cpu=core).to_pte()
        errors: list[float] = []
        for program in (ours, stock):
            session = PteSession.load(program, cpu=core)
            found = session.run(*session.laid_out(made.inputs))[0]
            errors.append(error(found, made.exact))
        counted = other = None
        if core in COUNTED and arm64.missing(core, counting=True) is None:
            ours_counted, stocks = (instructions(p, made.inputs, core) for p in (ours, stock))
            counted = stocks, ours_counted
            other = None if ours == usual else instructions(usual, made.inputs, core)
        yield Row(model, form, core, *errors, ROUNDING.get(form, 1 / 127), counted, other)


def table(found: Sequence[Row], cores: Sequence[str]) -> list[str]:
    """A line for each model and form: errors by core, and instructions."""
    counted = [core for core in COUNTED if core in cores]
    head = [f"error on {core}, ours (stock's)" for core in cores]
    head += [f"instructions on {core}, stock ÷ ours" for core in counted]
    lines = ["| model | form | " + " | ".join(head) + " |", "|---" * (len(head) + 2) + "|"]
    keys = dict.fromkeys((row.model, row.form) for row in found)
    for model, form in keys:
        of = {row.core: row for row in found if (row.model, row.form) == (model, form)}
        cells = [
            f"{of[core].error:.1e} ({of[core].stock:.1e})" + (" **worse**" * of[core].is_worse)
            if core in of
            else "–"
            for core in cores
        ]
        for core in counted:
            pair = of[core].instructions if core in of else None
            if pair is None:
                cells.append("–")
                continue
            usual = of[core].usual
            cells.append(
                f"{pair[0] / 1e6:.2f} M ÷ {pair[1] / 1e6:.2f} M = {pair[0] / pair[1]:.2f}"
                + ("" if usual is None else f" (usual costs: {usual / 1e6:.2f} M)")
            )
        lines.append(f"| {model} | {form} | " + " | ".join(cells) + " |")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", default="", help="a pattern of models")
    parser.add_argument("--forms", default="", help="a pattern of forms")
    parser.add_argument("--cores", nargs="+", default=None, help="names of cores")
    parser.add_argument("--large", action="store_true", help="the models of bench/xnnpack.py")
    parser.add_argument("--table", type=Path, help="the page that the table is written to")
    options = parser.parse_args()
    prepare()
    if why := arm64.missing():
        print(f"not run: {why}")
        return 0
    started = time.perf_counter()
    cores = options.cores or (COUNTED if options.large else CORES)
    found: list[Row] = []
    for model, make in (LARGE if options.large else SMALL).items():
        for form in LARGE_FORMS if options.large else FORMS:
            if not re.search(options.models, model) or not re.search(options.forms, form):
                continue
            try:
                some = list(rows(model, make, form, cores, for_core=options.large))
            except (StepwellError, RuntimeError) as reason:
                print(f"{model}, {form}: {str(reason).splitlines()[0]}")
                continue
            found += some
            print(*table(some, cores)[2:], sep="\n", flush=True)
    worse = sum(row.is_worse for row in found)
    summary = (
        f"{len({(row.model, row.form) for row in found})} programs of either flow × {len(cores)} "
        f"cores in {time.perf_counter() - started:.0f} s: {worse} worse than stock."
    )
    print(summary)
    if options.table is not None:
        name = "large" if options.large else "small"
        between_markers(options.table, name, ["", *table(found, cores), "", summary, ""])
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
