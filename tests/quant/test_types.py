import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from xdsl.context import Context
from xdsl.dialects.builtin import Builtin, TensorType
from xdsl.parser import Parser
from xdsl.utils.exceptions import ParseError, VerifyException

from stepwell.dialects.quant import Quant, UniformQuantizedType, per_axis, per_tensor
from stepwell.dialects.quant.ops import dequantize, quantize


def parse(text: str):
    context = Context()
    context.load_dialect(Builtin)
    context.load_dialect(Quant)
    return Parser(context, text).parse_type()


# The spellings of MLIR's own parser tests (mlir/test/Dialect/Quant/parse-uniform.mlir): the form
# that prints is the form that MLIR prints.
SPELLINGS = [
    "!quant.uniform<i8:f32, 0.05:-3>",
    "!quant.uniform<i8<-8:7>:f32, 0.99872:7>",
    "!quant.uniform<i8<-127:127>:f32, 0.99872>",
    "!quant.uniform<u8:f32, 0.99872:128>",
    "!quant.uniform<i4:f32, 2.0>",
    "!quant.uniform<u4:f32, 2.0:9>",
    "!quant.uniform<i16:f32, 2.0:-123>",
    "!quant.uniform<u16:f32, 2.0>",
    "!quant.uniform<i32:f32, 2.0>",
    "!quant.uniform<u32:f32, 2.0>",
    "!quant.uniform<i8:f16, 2.0>",
    "!quant.uniform<i8:bf16, 2.0>",
    "!quant.uniform<i8:f32:1, {200.0:-120, 0.99872:120}>",
    "!quant.uniform<i8:f32:1, {200.0, 0.99872}>",
    "!quant.uniform<u8:f32:{0:1, 1:2}, {{2.0:10, 3.0:20}, {4.0:30, 5.0:40}}>",
]


@pytest.mark.parametrize("text", SPELLINGS)
def test_a_type_prints_as_mlir_spells_it_and_reads_back_equal(text: str) -> None:
    assert str(parse(text)) == text


def test_the_type_stands_inside_a_tensor_type() -> None:
    text = "tensor<2x3x!quant.uniform<i8:f32:0, {0.5, 0.25:-1}>>"
    parsed = parse(text)
    assert isinstance(parsed, TensorType)
    assert str(parsed) == text
    assert parsed.element_type == per_axis(torch.int8, 0, [0.5, 0.25], [0, -1])


@pytest.mark.parametrize("scale", [1e-10, 1e22, 5e-324, 1.0, 0.1, 1 / 3, 3.0000000000000004])
def test_a_scale_whose_repr_has_no_point_still_reads_back(scale: float) -> None:
    printed = str(per_tensor(torch.int8, scale))
    assert parse(printed) == per_tensor(torch.int8, scale)


@given(
    scale=st.floats(min_value=0, exclude_min=True, allow_infinity=False, allow_nan=False),
    zero=st.integers(-128, 127),
)
def test_every_scale_and_zero_point_round_trips(scale: float, zero: int) -> None:
    type_ = per_tensor(torch.int8, scale, zero)
    assert parse(str(type_)) == type_


@pytest.mark.parametrize(
    "text, reason",
    [
        ("!quant.uniform<i8:f32, 0.0>", "not a positive number"),
        ("!quant.uniform<i8:f32, -1.0>", "not a positive number"),
        ("!quant.uniform<i8<-129:127>:f32, 1.0>", "storage range"),
        ("!quant.uniform<i8<4:4>:f32, 1.0>", "storage range"),
        ("!quant.uniform<i8:f32, 1.0:200>", "zero point 200"),
        ("!quant.uniform<i7:f32, 1.0>", "storage has 7 bits"),
        ("!quant.uniform<f8:f32, 1.0>", "not a storage type"),
        ("!quant.uniform<i8:f32:{0:1,1:1}, {{1.0, 2.0}, {3.0}}>", "differ in length"),
    ],
)
def test_a_type_that_means_nothing_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises((ParseError, VerifyException)) as caught:
        parse(text)
    assert reason in str(caught.value)


@given(
    st.lists(st.floats(-4, 4, width=32), min_size=1, max_size=16),
    st.sampled_from([1e-3, 0.017, 0.3]),
    st.integers(-128, 127),
)
def test_quantizing_agrees_with_torch(values: list[float], scale: float, zero: int) -> None:
    real = torch.tensor(values)
    held = per_tensor(torch.int8, scale, zero).data
    import torchao.quantization.pt2e.quantize_pt2e  # noqa: F401  (registers quantized_decomposed)

    ops = torch.ops.quantized_decomposed
    stored = ops.quantize_per_tensor(real, scale, zero, -128, 127, torch.int8)
    assert torch.equal(quantize(real, held), stored)
    assert torch.equal(
        dequantize(stored, held),
        ops.dequantize_per_tensor(stored, scale, zero, -128, 127, torch.int8),
    )


def test_sub_channel_scales_cover_their_blocks() -> None:
    type_ = parse("!quant.uniform<i8:f32:{0:1, 1:2}, {{1.0, 2.0}, {3.0, 4.0}}>")
    assert isinstance(type_, UniformQuantizedType)
    stored = torch.ones(2, 4, dtype=torch.int8)
    assert dequantize(stored, type_.data).tolist() == [[1, 1, 2, 2], [3, 3, 4, 4]]
