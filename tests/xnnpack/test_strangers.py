"""Models nobody tuned for keep their delegates and operators outside, and compute what torch does.

What is recorded: `python bench/xnnpack.py --kind untuned --counts
tests/xnnpack/data/stranger_counts.json`.
Those that its table `FINITE` names are recorded for `numerics="finite"` too, with the reason there.
"""

import importlib
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.export import export
from torch.utils import _pytree as pytree

import stepwell
from stepwell.ir.declared.numerics import Numerics

RECORDED: dict[str, dict[Numerics, dict[str, Any]]] = json.loads(
    (Path(__file__).parent / "data" / "stranger_counts.json").read_text()
)
SLOW = {
    "clip:clip",
    "clip:clip_image",
    "conv_tasnet:conv_tasnet",
    "decoders:gemma2",
    "decoders:gemma2_in_bfloat16",
    "decoders:qwen3_block",
    "decoders:qwen3_block_of_any_length",
    "detection:detr_decoder",
    "detection:yolov5",
    "diffusion:diffusion_unet",
    "diffusion:diffusion_unet_in_halves",
    "diffusion:vae",
    "pointnet:pointnet_of_any_number",
    "recurrent:lstm_64_steps",
    "recurrent:lstm_both_ways",
    "state_space:mamba",
    "state_space:rwkv",
    "t5:t5",
    "tables_and_graphs:ft_transformer",
    "vision:segformer",
    "vision:vit_with_registers",
    "vocoders:hifigan",
    "vocoders:snake_vocoder",
    "wav2vec2:wav2vec2",
    "wavenet:wavenet_of_any_length",
    "whisper:whisper_decoder",
}
"""Models that take longer to export, or whose parts another one has; `make soak` runs them."""
NEAR = {torch.float32: 2e-5, torch.float16: 2**-7, torch.bfloat16: 2**-6}
"""Bounds of differences, as shares of the largest number."""


@pytest.mark.parametrize(
    ("name", "numerics"),
    [
        pytest.param(name, numerics, marks=[pytest.mark.slow] * (name in SLOW))
        for name, modes in RECORDED.items()
        for numerics in modes
    ],
)
@torch.no_grad()
def test_a_stranger_keeps_its_counts_and_computes_what_torch_does(
    name: str, numerics: Numerics
) -> None:
    file, _, function = name.partition(":")
    made = getattr(importlib.import_module(file), function)()
    module, inputs, shapes = (*made, None)[:3]
    expected = pytree.tree_leaves(module(*inputs))
    program = export(module, inputs, dynamic_shapes=shapes)
    lowered = stepwell.lower(program, "xnnpack", numerics=numerics)
    report = lowered.report
    found = {"delegates": report.delegates, "outside": dict(report.outside)}
    assert found == RECORDED[name][numerics]
    for one, wanted in zip(lowered.run(*inputs), expected, strict=True):
        largest = float(wanted.abs().max())
        near = NEAR[wanted.dtype] * largest
        torch.testing.assert_close(one, wanted, rtol=0, atol=near)
        assert largest > 0.05
