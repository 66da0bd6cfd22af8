"""fp16 and bf16: the interpreter has the reference model's bits, both are as near as torch."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from stepwell.backends.tosa.emit import to_tosa
from stepwell.backends.tosa.reference_model import run_reference_model
from stepwell.dialects.tosa import generated as t
from stepwell.ir.diagnostics import VerificationError
from stepwell.ir.dtypes import bf16, f16, f32
from stepwell.ir.types import tensor

from .graphs import Of, assert_tosa_opt_accepts, bits, lowered, program_of_op

HALVES = {
    torch.float16: ("tosa-1.0+fp", "profiles=pro_fp", 2**-10),
    torch.bfloat16: ("tosa-1.0+fp+bf16", "profiles=pro_fp extensions=bf16", 2**-7),
}


EIGHT_BITS = "tosa-1.0+fp+fp8e4m3+fp8e5m2+bf16"


def statistics(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Sums, variances and powers, of which torch rounds the result alone."""
    return x.sum(1), x.mean(1), x.var(1), x.square(), x.pow(4), x / x.abs().sqrt()


def encoder() -> nn.Module:
    return nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, activation="gelu")


def convolutions() -> nn.Module:
    first = [nn.Conv2d(3, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.Hardswish()]
    middle = [nn.Conv2d(16, 16, 3, padding=1, groups=16), nn.GroupNorm(4, 16), nn.Mish()]
    return nn.Sequential(*first, *middle, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 5))


def norms() -> nn.Module:
    return nn.Sequential(nn.LayerNorm(300), nn.RMSNorm(300), nn.Softmax(-1), nn.Hardsigmoid())


MODELS: dict[str, tuple[Callable[[], nn.Module], list[int]]] = {
    "encoder": (encoder, [1, 9, 32]),
    "convolutions": (convolutions, [1, 3, 17, 17]),
    "norms": (norms, [3, 300]),
    "statistics": (lambda: Of(statistics), [3, 300]),
}


@pytest.mark.parametrize("dtype", HALVES, ids=["fp16", "bf16"])
@pytest.mark.parametrize("name", MODELS)
def test_a_model_of_halves_has_the_reference_models_bits_and_torchs_accuracy(
    name: str, dtype: torch.dtype, tmp_path: Path
) -> None:
    target, options, ulp = HALVES[dtype]
    make, shape = MODELS[name]
    torch.manual_seed(0)
    model, x = make().to(dtype).eval(), (torch.randn(shape) * 3 + 1).to(dtype)
    low = lowered(model, x, target=target)
    found, run, eager = low.run(x), low.program.run(x), model(x)
    eager = eager if isinstance(eager, tuple) else (eager,)
    exact = model.double()(x.double())
    exact = exact if isinstance(exact, tuple) else (exact,)
    for ours, own, torchs, value in zip(found, run, eager, exact, strict=True):
        assert torch.equal(bits(ours), bits(own))
        scale = value.abs().max()
        # Two ulp of the largest result beyond what torch itself is off by.
        allowed = (torchs.double() - value).abs().max() + 2 * ulp * scale
        assert (ours.double() - value).abs().max() <= allowed
    options = f"specification_version=1.0 {options}"
    assert_tosa_opt_accepts(low.to_mlir(), options, tmp_path)


@pytest.mark.parametrize("result", [f16, f32], ids=["fp16 sums", "fp32 sums"])
def test_a_product_of_fp16_is_rounded_to_its_result_at_every_step(result) -> None:
    a, b, zero = torch.randn(2, 7, 197).half(), torch.randn(2, 197, 9).half(), torch.zeros(1).half()
    inputs = [a, b, zero, zero]
    held = [tensor(x.shape, f16) for x in inputs]
    program = program_of_op(t.MatMulOp, held, [tensor([2, 7, 9], result)])
    (expected,) = run_reference_model(to_tosa(program), inputs)
    assert torch.equal(bits(program.run(*inputs)[0]), bits(expected))


def test_a_product_of_bf16_in_bf16_is_refused_before_the_reference_model() -> None:
    held = [tensor(s, bf16) for s in ([1, 2, 3], [1, 3, 2], [1], [1])]
    program = program_of_op(t.MatMulOp, held, [tensor([1, 2, 2], bf16)])
    with pytest.raises(VerificationError, match="a product of bf16 does not give bf16"):
        program.verify()


@pytest.mark.parametrize("wider", [torch.float32, torch.float16, torch.bfloat16, torch.bool])
@pytest.mark.parametrize("narrow", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_every_float_of_eight_bits_is_the_same_number_in_more(
    narrow: torch.dtype, wider: torch.dtype
) -> None:
    x = torch.arange(256, dtype=torch.uint8).view(narrow)
    (widened,) = lowered(lambda x: x.to(wider), x, target=EIGHT_BITS).run(x)
    torch.testing.assert_close(widened, x.to(wider), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("narrow", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_every_half_becomes_torchs_float_of_eight_bits(narrow: torch.dtype) -> None:
    for wide in (torch.bfloat16, torch.float16, torch.float32):
        codes = torch.arange(-(2**15), 2**15, dtype=torch.int16)
        x = codes.view(torch.float16 if wide == torch.float16 else torch.bfloat16).to(wide)
        low = lowered(lambda x: x.to(narrow), x, target=EIGHT_BITS)
        wanted = x.to(narrow).float()
        for (narrowed,) in (low.run(x), low.program.run(x)):
            torch.testing.assert_close(narrowed.float(), wanted, rtol=0, atol=0, equal_nan=True)
