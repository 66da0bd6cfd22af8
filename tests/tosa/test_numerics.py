"""MX arithmetic equals the reference model's bit for bit, edge blocks included."""

import pytest
import torch

from stepwell.backends.tosa.emit import to_tosa
from stepwell.backends.tosa.reference_model import run_reference_model
from stepwell.dialects.tosa import generated as t
from stepwell.dialects.tosa.attributes import BlockSizeAttr
from stepwell.dialects.tosa.codes import PAYLOAD_ELEMENTS, e8m0
from stepwell.dialects.tosa.constants import const_shape
from stepwell.dialects.tosa_mxfp.numerics import (
    cast_from_block_scaled,
    cast_to_block_scaled,
    decode,
    encode,
)
from stepwell.dialects.tosa_mxfp.payloads import PAYLOADS, Payload, payload_named
from stepwell.dialects.tosa_mxfp.products import conv2d_block_scaled, matmul_t_block_scaled
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.dtypes import f32
from stepwell.ir.types import tensor

from .graphs import bits, program_of_op

BLOCKS_OF_32 = BlockSizeAttr("BLOCK_SIZE_32")
every_payload = pytest.mark.parametrize("payload", PAYLOADS.values(), ids=PAYLOADS.keys())


def random_blocks(count: int, spread: float) -> torch.Tensor:
    """Blocks of 32 whose magnitudes differ by up to 2**(2 * spread)."""
    scale = torch.exp2((torch.rand(count, 1, dtype=torch.float64) * 2 - 1) * spread)
    return (torch.randn(count, 32, dtype=torch.float64) * scale).float()


def edge_blocks() -> torch.Tensor:
    """Zeros of both signs, subnormals, the largest numbers, inf and NaN, and every mantissa."""
    mantissas = 1 + torch.arange(512, dtype=torch.float64) / 512
    sweep = torch.zeros(512, 32, dtype=torch.float64)
    sweep[:, 0], sweep[:, 1], sweep[:, 2] = mantissas, -mantissas, mantissas / 3
    sweep[:, 3:20] = mantissas[:, None] * torch.exp2(-torch.arange(1.0, 18, dtype=torch.float64))
    scaled = [(sweep * 2.0**e).float() for e in (0, -140, -126, -120, 100, 126)]
    special = torch.zeros(12, 32)
    special[1] = -0.0
    special[2, 3] = torch.inf
    special[3, 3] = torch.nan
    special[4, 3:5] = torch.tensor([-torch.inf, 1.0])
    special[5] = 2.0**-149
    special[6] = -(2.0**-126)
    special[7] = 3.4e38
    special[8, 0], special[8, 1:] = 3.4e38, -3.4e38
    special[9, 0], special[9, 1:] = 2.0**100, -(2.0**-149)
    special[10, :5] = 7.0  # a padded tail
    special[11] = torch.nan
    return torch.cat([*scaled, special])


def blocks(payload: Payload, *pairs: tuple[torch.Tensor, torch.Tensor]) -> list[torch.Tensor]:
    """Codes and scales as the reference model takes them."""
    found: list[torch.Tensor] = []
    for codes, scales in pairs:
        kept = codes if payload.torch_dtype is None else codes.view(payload.torch_dtype)
        found += [kept, scales.view(torch.float8_e8m0fnu)]
    return found


@every_payload
def test_a_cast_equals_the_reference_models_on_random_and_edge_blocks(payload: Payload) -> None:
    x = torch.cat([random_blocks(4096, 100), edge_blocks()])
    program = program_of_op(
        t.CastToBlockScaledOp,
        [tensor(x.shape, f32)],
        [tensor(x.shape, PAYLOAD_ELEMENTS[payload.name]), tensor([len(x), 1], e8m0)],
        block_size=BLOCKS_OF_32,
    )
    codes, scales = run_reference_model(to_tosa(program), [x])
    ours = cast_to_block_scaled(x, payload)
    assert torch.equal(ours[0], codes.view(torch.uint8))
    assert torch.equal(ours[1], scales.view(torch.uint8))


@every_payload
def test_a_cast_back_equals_the_reference_models(payload: Payload) -> None:
    codes, scales = cast_to_block_scaled(
        torch.cat([random_blocks(512, 140), edge_blocks()]), payload
    )
    element = PAYLOAD_ELEMENTS[payload.name]
    program = program_of_op(
        t.CastFromBlockScaledOp,
        [tensor(codes.shape, element), tensor(scales.shape, e8m0)],
        [tensor(codes.shape, f32)],
        block_size=BLOCKS_OF_32,
    )
    (values,) = run_reference_model(to_tosa(program), blocks(payload, (codes, scales)))
    assert torch.equal(bits(cast_from_block_scaled(codes, scales, payload)), bits(values))


@every_payload
def test_encoding_undoes_decoding(payload: Payload) -> None:
    codes = torch.arange(1 << payload.bits, dtype=torch.int32).to(torch.uint8)
    values = decode(codes, payload)
    known = torch.isfinite(values)
    assert torch.equal(encode(values[known], payload), codes[known])


@every_payload
@pytest.mark.parametrize("spread", [3, 120])
def test_a_matrix_product_equals_the_reference_models(payload: Payload, spread: float) -> None:
    m, n, k = 24, 16, 160
    a = random_blocks(2 * m * k // 32, spread).reshape(2, m, k)
    b = random_blocks(n * k // 32, spread).reshape(1, n, k)
    if spread > 100:
        a[0, 0, 5], b[0, 1, 40] = torch.nan, torch.inf
    left, right = cast_to_block_scaled(a, payload), cast_to_block_scaled(b, payload)
    element = PAYLOAD_ELEMENTS[payload.name]
    program = program_of_op(
        t.MatMulTBlockScaledOp,
        [
            tensor(a.shape, element),
            tensor([2, m, k // 32], e8m0),
            tensor(b.shape, element),
            tensor([1, n, k // 32], e8m0),
        ],
        [tensor([2, m, n], f32)],
        block_size=BLOCKS_OF_32,
    )
    (expected,) = run_reference_model(to_tosa(program), blocks(payload, left, right))
    ours = matmul_t_block_scaled((*left, payload), (*right, payload))
    assert torch.equal(bits(ours), bits(expected))


@pytest.mark.parametrize("payload", [p for p in PAYLOADS.values() if p.name != "mxint8"])
@pytest.mark.parametrize("spread", [3, 120])
def test_a_convolution_equals_the_reference_models(payload: Payload, spread: float) -> None:
    image, kernel, pad, stride = [1, 5, 6, 64], [8, 3, 2, 64], (1, 1, 1, 1), (1, 2)
    x = random_blocks(60, spread).reshape(image)
    w = random_blocks(96, spread).reshape(kernel)
    if spread > 100:
        w[0, 0, 0, 0] = torch.nan  # skipped where the tap falls on padding
    bias = torch.randn(8) * 100
    taken, weight = cast_to_block_scaled(x, payload), cast_to_block_scaled(w, payload)
    element = PAYLOAD_ELEMENTS[payload.name]
    program = program_of_op(
        t.Conv2dBlockScaledOp,
        [
            tensor(image, element),
            tensor([*image[:-1], 2], e8m0),
            tensor(kernel, element),
            tensor([*kernel[:-1], 2], e8m0),
            tensor([8], f32),
        ],
        [tensor([1, 5, 4, 8], f32)],
        [const_shape(pad), const_shape(stride), const_shape([1, 1])],
        block_size=BLOCKS_OF_32,
    )
    (expected,) = run_reference_model(to_tosa(program), [*blocks(payload, taken, weight), bias])
    ours = conv2d_block_scaled((*taken, payload), (*weight, payload), bias, pad, stride, (1, 1))
    assert torch.equal(bits(ours), bits(expected))


def test_an_unknown_payload_names_the_known_ones() -> None:
    with pytest.raises(StepwellError, match="fp4e2m1, mxint8"):
        payload_named("fp3")
