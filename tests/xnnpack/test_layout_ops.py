"""No model of examples/models has more layout ops, delegates or ops outside than stock makes of it.

Stock's counts are recorded: `python bench/xnnpack.py --models … --counts
tests/xnnpack/data/stock_counts.json`, with the names in that file.
"""

import importlib
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from sampled import sampled
from torch.export import export

import stepwell
from quantized import by_groups, quantize
from stepwell.dialects import xnnpack

STOCK: dict[str, dict[str, int]] = json.loads(
    (Path(__file__).parent / "data" / "stock_counts.json").read_text()
)
FILES = {
    "deit_tiny": "deit",
    "convnext_atto": "convnext",
    "swin_tiny": "swin",
    "gpt2_2layers": "gpt2",
    "llama_block": "llama",
    "llama_4layers": "llama",
    "mixer_s32": "mixer",
    "mobilenet_v2": "mobilenet",
    "mobilenet_v3_small": "mobilenet",
    "mobilevit_xxs": "mobilevit",
    "efficientnet_b0": "efficientnet",
    "resnet18": "resnet",
    "resnet50": "resnet",
}
A_FEW = ("deit_tiny", "llama_block:128", "mixer_s32", "mobilenet_v3_small", "swin_tiny")
"""Those in which the others' ways of laying things out are."""
LAYOUT = (xnnpack.StaticTranspose, xnnpack.StaticReshape, xnnpack.StaticSlice)


def exported(called: str) -> Any:
    """The program of a name such as `gpt2_2layers:128` or `resnet18@static`."""
    plain, _, kind = called.partition("@")
    name, _, tokens = plain.partition(":")
    make = getattr(importlib.import_module(FILES[name]), name)
    module, inputs = make(int(tokens)) if tokens else make()
    if kind == "8da4w":
        return by_groups(module, inputs)
    if kind:
        return quantize(module, inputs, per_channel=True, dynamic=kind == "dynamic")
    return export(module, inputs)


def assert_no_more_than_stock(name: str) -> None:
    stock, made = STOCK[name], stepwell.lower(exported(name), "xnnpack")
    inside = [op for op in made.program.module.walk() if isinstance(op, LAYOUT)]
    transposes = sum(isinstance(op, xnnpack.StaticTranspose) for op in inside)
    assert len(inside) <= stock["layout"]
    assert transposes <= stock["transposes"]
    assert made.report.stages <= stock["delegates"]
    assert sum(made.report.outside.values()) <= stock["outside"]


@pytest.mark.parametrize("name", sampled(A_FEW, *A_FEW[:4]))
@torch.no_grad()
def test_a_model_has_no_more_layout_ops_than_stock_gives_it(name: str) -> None:
    assert_no_more_than_stock(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", STOCK)
@torch.no_grad()
def test_no_model_has_more_layout_ops_than_stock_gives_it(name: str) -> None:
    assert_no_more_than_stock(name)
