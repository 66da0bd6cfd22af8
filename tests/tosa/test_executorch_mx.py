"""ExecuTorch's MX operators come in, lower, and differ by the rule of their activation cast."""

from typing import Any

import pytest
import torch
from torch import nn

import stepwell
from stepwell.dialects.tosa_mxfp.executorch import payload_of, weight_values
from stepwell.dialects.tosa_mxfp.numerics import fake_quantize
from stepwell.dialects.tosa_mxfp.payloads import payload_named

from .graphs import bits

PAYLOADS = {
    "fp8e4m3": torch.float8_e4m3fn,
    "fp8e5m2": torch.float8_e5m2,
    "fp6e2m3": "fp6_e2m3",
    "fp6e3m2": "fp6_e3m2",
    "fp4e2m1": torch.float4_e2m1fn_x2,
}


def converted(payload: str) -> Any:
    ao = pytest.importorskip("executorch.backends.arm.ao_ext")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(32, 32, 3, padding=1), nn.Flatten(2), nn.Linear(64, 32))
    ao.to_mxfp(model.eval(), ao.MXFPOpConfig(weight_dtype=PAYLOADS[payload]))
    return model


@pytest.mark.parametrize("payload", PAYLOADS)
def test_a_model_that_executorch_converted_runs_on_the_reference_model(payload: str) -> None:
    model, x = converted(payload), torch.randn(1, 32, 8, 8)
    exported = torch.export.export(model, (x,))
    text = str(stepwell.from_exported_program(exported))
    assert "tosa_mxfp.linear.default" in text and "tosa_mxfp.conv2d.default" in text
    low = stepwell.lower(exported, "tosa-1.1+fp+mxfp+mxfp_conv")
    (found,) = low.run(x)
    assert torch.equal(bits(found), bits(low.program.run(x)[0]))
    # Eager ExecuTorch casts activations with RCEIL: another scale for some blocks.
    assert float((found - model(x)).norm() / found.norm()) < 0.15


@pytest.mark.parametrize("payload", PAYLOADS)
def test_weights_that_executorch_converted_keep_their_values(payload: str) -> None:
    from torchao.prototype.mx_formats.mx_tensor import to_dtype

    layer = converted(payload)[2]
    assert payload_of(layer.weight_dtype, layer.weight_qdata.dtype) == payload
    values = weight_values(layer.weight_qdata, layer.weight_scale, payload)
    theirs = to_dtype(layer.weight_qdata, layer.weight_scale, PAYLOADS[payload], 32, torch.float32)
    assert torch.equal(values, theirs)
    assert torch.equal(fake_quantize(values, payload_named(payload)), values)
