"""ExpandLogSoftmax: what the logarithm of a softmax would lose, and what it leaves alone."""

from typing import Any

import torch
from torch import nn

import stepwell
from stepwell.translate.rewrites.xnnpack.expand_log_softmax import ExpandLogSoftmax


def test_what_a_softmax_rounds_to_zero_has_a_logarithm_on_the_runtime() -> None:
    module, x = nn.LogSoftmax(-1), torch.tensor([[0.0, 500.0, -500.0]])
    lowered = stepwell.lower(torch.export.export(module, (x,)), "xnnpack")
    torch.testing.assert_close(lowered.run(x)[0], module(x), rtol=1e-6, atol=1e-5)


def test_halves_are_left(refused: Any, method: Any) -> None:
    whole = "tensor<2x3xf16>"
    line = f"%y = aten._log_softmax.default(%x, 1, false) : ({whole}) -> {whole}"
    refused(method(f"%x: {whole}", line, gives=whole), ExpandLogSoftmax(), "float32")
