"""Single quantized ops: int8 kernels where XNNPACK has them, the float meaning where it has not."""

from collections.abc import Callable

import pytest
import torch
from test_quantized import inputs_of, is_whole, kinds, lowered, nodes
from torch import Tensor, nn
from torch.ao.quantization.fx import _decomposed  # noqa: F401 (registers quantized_decomposed)
from torch.nn import functional

from stepwell.ir.types import dims
from stepwell.lowering import Lowered

Q = torch.ops.quantized_decomposed


def q(x: Tensor, scale: float, zero: int = 0, low: int = -128) -> Tensor:
    """Integers of x."""
    return Q.quantize_per_tensor.default(x, scale, zero, low, 127, torch.int8)


def dq(x: Tensor, scale: float, zero: int = 0, low: int = -128) -> Tensor:
    """Reals of x."""
    return Q.dequantize_per_tensor.default(x, scale, zero, low, 127, torch.int8)


def qdq(x: Tensor, scale: float, zero: int = 0, low: int = -128) -> Tensor:
    """Quantized and back."""
    return dq(q(x, scale, zero, low), scale, zero, low)


class Written(nn.Module):
    """A function of x and a stored int8 weight `w` with scales `s` on its first axis, bias `b`."""

    def __init__(self, write: Callable[..., Tensor], shape: tuple[int, ...], axis: int = 0) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(3)
        self.write, self.axis = write, axis
        count = shape[axis]
        weight = torch.randint(-127, 128, shape, dtype=torch.int8, generator=generator)
        self.register_buffer("w", weight)
        self.register_buffer("s", torch.rand(count, generator=generator) * 0.01 + 0.002)
        self.register_buffer("z", torch.zeros(count, dtype=torch.int64))
        self.register_buffer("b", torch.randn(count, generator=generator))

    def weight(self, dtype: torch.dtype | None = None) -> Tensor:
        """The dequantized weight."""
        return Q.dequantize_per_channel.default(
            self.w, self.s, self.z, self.axis, -127, 127, torch.int8, out_dtype=dtype
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.write(self, x)


def checked(
    write: Callable[..., Tensor],
    x: Tensor,
    unit: float,
    weight: tuple[int, ...] = (1,),
    axis: int = 0,
) -> Lowered:
    """The lowered function; its runtime result lies within `unit` of the eager one."""
    module = Written(write, weight, axis)
    made = lowered(torch.export.export(module, (x,)))
    want = module(x).float()
    assert want.abs().max() > 0
    difference = (made.run(x)[0].float() - want).abs().max().item()
    assert difference <= unit * 1.0001, difference
    return made


IMAGE, ROWS = inputs_of(2, 4, 8, 8), inputs_of(2, 3, 8)
UNIT = 0.05


CONVOLUTIONS: dict[str, tuple[str, tuple[int, ...], bool, dict[str, int]]] = {
    "plain": ("convolution_2d", (6, 4, 3, 3), True, {}),
    "grouped": ("convolution_2d", (6, 2, 3, 3), True, {"stride": 2, "padding": 1, "groups": 2}),
    "without a bias": ("convolution_2d", (6, 4, 3, 3), False, {}),
    "lines": ("convolution_2d", (5, 3, 3), True, {}),
    "depthwise": ("depthwise_convolution_2d", (8, 1, 3, 3), True, {"padding": 1, "groups": 4}),
    "transposed": (
        "deconvolution_2d", (4, 6, 3, 3), True, {"stride": 2, "padding": 1, "output_padding": 1},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_a_static_convolution_is_an_int8_node_with_its_scales_on_the_right_axis(name: str) -> None:
    node, weight, has_bias, options = CONVOLUTIONS[name]
    x, convolve = (ROWS, functional.conv1d) if name == "lines" else (IMAGE, functional.conv2d)
    axis = int(name == "transposed")
    convolve = functional.conv_transpose2d if axis else convolve

    def write(m: Written, x: Tensor) -> Tensor:
        y = convolve(qdq(x, 0.03, 5), m.weight(), m.b if has_bias else None, **options)
        return qdq(y, UNIT, -7)

    made = checked(write, x, UNIT, weight, axis)
    assert is_whole(made)
    ((given, stored, *_, result),) = kinds(made, node)
    assert (given, stored, result) == ("qint8", "qcint8", "qint8")


def linear(m: Written, x: Tensor, scale: float = 0.03, zero: int = 5) -> Tensor:
    return functional.linear(qdq(x, scale, zero), m.weight(), m.b)


def test_a_clamp_between_a_linear_layer_and_its_quantization_is_its_output_range() -> None:
    def write(m: Written, x: Tensor) -> Tensor:
        y = linear(m, x)
        return qdq(functional.hardtanh(y, -0.5, 2.0), UNIT, 3)

    made = checked(write, ROWS, UNIT, (6, 8))
    assert is_whole(made) and not kinds(made, "clamp")
    assert kinds(made, "fully_connected") == [("qint8", "qcint8", "qcint32", "qint8")]


@pytest.mark.parametrize(
    ("node", "write"),
    [
        ("add", lambda x: qdq(x, 0.03, 5) + qdq(x * 2, 0.06, -3)),
        ("subtract", lambda x: qdq(x, 0.03, 5) - qdq(x * 2, 0.06, -3)),
        ("multiply", lambda x: qdq(x, 0.03, 5) * qdq(x * 2, 0.06, -3)),
        ("global_average_pooling_2d", lambda x: qdq(x, 0.03, 5).mean((2, 3), keepdim=True)),
    ],
)
def test_an_elementwise_op_or_mean_between_casts_is_an_int8_node(
    node: str, write: Callable[[Tensor], Tensor]
) -> None:
    made = checked(lambda m, x: qdq(write(x), UNIT, 2), IMAGE, UNIT)
    assert is_whole(made)
    assert set(kinds(made, node)[-1]) == {"qint8"}


@pytest.mark.parametrize(
    ("node", "write"),
    [
        ("static_reshape", lambda x: x.reshape(2, -1)),
        ("static_transpose", lambda x: x.permute(0, 3, 1, 2)),
        ("concatenate2", lambda x: torch.cat([x, x], 1)),
        ("max_pooling_2d", lambda x: functional.max_pool2d(x, 2)),
        ("clamp", lambda x: functional.hardtanh(x, -0.5, 2.0)),
    ],
)
def test_what_only_moves_or_selects_works_on_int8_exactly(
    node: str, write: Callable[[Tensor], Tensor]
) -> None:
    made = checked(lambda m, x: q(write(qdq(x, 0.03, 5)), 0.03, 5), IMAGE, 0.0)
    assert is_whole(made)
    assert set(kinds(made, node)[-1]) == {"qint8"}


def test_a_slice_of_integers_quantizes_no_more_than_is_read_of_them() -> None:
    made = checked(lambda m, x: q(qdq(x, 0.03, 5)[:, 1:3], 0.03, 5), IMAGE, 0.0)
    assert is_whole(made) and len(kinds(made, "static_slice")) == 1
    (cast,) = (op for op in nodes(made) if op.name == "xnnpack.convert")
    assert dims(cast.results[0].type) == (2, 2, 8, 8)


def clamped(m: Written, x: Tensor) -> Tensor:
    """XNNPACK would merge the clamp into the convolution, which then never rounds to its scale."""
    y = qdq(functional.conv2d(qdq(x, 0.03, 5), m.weight(), m.b), UNIT, 2)
    return qdq(functional.hardtanh(y, -0.5, 0.75), UNIT / 8, -28)


KEPT = "quantized_decomposed.quantize_per_tensor.default"
FLOATS: dict[str, tuple[Callable[..., Tensor], Tensor, float, str, int, str]] = {
    "a movement between other scales": (
        lambda m, x: qdq(qdq(x, 0.03, 5).reshape(2, -1), UNIT),
        IMAGE, UNIT, "static_reshape", 2, "",
    ),
    "a clamp between other scales": (clamped, IMAGE, UNIT / 8, "clamp", 2, ""),
    "a result that is also read as floats": (
        lambda m, x: qdq(y := linear(m, x), UNIT) + y, ROWS, 1e-4 + UNIT, "fully_connected", 4, "",
    ),
    "a result in a part of int8": (
        lambda m, x: qdq(linear(m, x), UNIT, 0, -100), ROWS, UNIT, "fully_connected", 4, "-100:127",
    ),
    "a product that grows by 256": (
        lambda m, x: qdq(functional.linear(qdq(x, 3.0), m.weight()), 1e-4),
        ROWS, 1e-4, "fully_connected", 3, "less than 256",
    ),
}  # fmt: skip
"""Function, input, its unit, the node of floats with its count of values, and the reason."""


@pytest.mark.parametrize("name", FLOATS)
def test_what_no_int8_kernel_computes_works_on_floats(name: str) -> None:
    write, x, unit, node, values, reason = FLOATS[name]
    made = checked(write, x, unit, (6, 4, 3, 3) if x is IMAGE else (6, 8))
    assert kinds(made, node) == [("fp32",) * values]
    if reason:
        assert any(reason in refusal.reason for refusal in made.report.refusals)
    else:
        assert is_whole(made)
    assert (KEPT in made.report.outside) == (reason == "-100:127")


def test_a_quantized_value_crosses_between_delegates_as_its_integers() -> None:
    def write(m: Written, x: Tensor) -> Tensor:
        held = qdq(linear(m, x), UNIT, 4)
        return qdq(held + qdq(torch.erf(held), 0.01), UNIT)

    made = checked(write, ROWS, 2 * UNIT, (6, 8))
    assert made.report.delegates == 2
    assert dict(made.report.outside) == {"aten.erf.default": 1}
    assert kinds(made, "add") == [("qint8", "qint8", "qint8")]


def test_integers_come_in_and_go_out_as_they_are() -> None:
    x = q(IMAGE, 0.03, 5)
    made = checked(lambda m, x: q(functional.relu(dq(x, 0.03, 5)), 0.03, 5), x, 1.0)
    assert is_whole(made) and kinds(made, "clamp") == [("qint8", "qint8")]


def test_integers_read_under_two_scales_pass_through_two_delegates() -> None:
    def write(m: Written, x: Tensor) -> Tensor:
        return dq(q(x, 0.03, 5), 0.06, -1)

    made = checked(write, ROWS, 1e-6)
    assert made.report.delegates == 2 and not made.report.outside


def dynamic(x: Tensor) -> Tensor:
    """Quantized by its own range, and back."""
    scale, zero = Q.choose_qparams.tensor(x, -128, 127, 2**-12, torch.int8)
    held = Q.quantize_per_tensor.tensor(x, scale, zero, -128, 127, torch.int8)
    return Q.dequantize_per_tensor.tensor(
        held, scale, zero, -128, 127, torch.int8, out_dtype=x.dtype
    )


@pytest.mark.parametrize("kernel", [1, 3])
def test_a_dynamically_quantized_convolution_finds_its_scales_as_its_kernel_needs(
    kernel: int,
) -> None:
    # A step of the input is about 6.5 / 255, and each of its 4·k² products is half a step off.
    steps = 4 * kernel * kernel * 6.5 / 255 * 127 * 0.012

    made = checked(
        lambda m, x: functional.conv2d(dynamic(x), m.weight(), m.b),
        IMAGE,
        steps,
        (6, 4, kernel, kernel),
    )
    assert is_whole(made)
    assert kinds(made, "convolution_2d") == [("qdint8", "qcint8", "fp32", "fp32")]


def test_layers_of_halves_are_quantized_at_run_time_too() -> None:
    """In float32, which every CPU has kernels of, between two converts."""
    x = ROWS.half()
    module = Written(lambda m, x: functional.linear(dynamic(x), m.weight(x.dtype), m.b), (6, 8))
    module.b = module.b.half()
    made = lowered(torch.export.export(module, (x,)))
    assert is_whole(made)
    assert kinds(made, "fully_connected") == [("qdint8", "qcint8", "fp32", "fp32")]
    # Eight products of inputs half a step off, and of halves.
    step = float(x.max() - x.min()) / 255
    reach = float((module.w.abs() * module.s[:, None]).sum(1).max())
    want = module(x)
    rounded = 2**-9 * (float(want.abs().max()) + reach * float(x.abs().max()))
    assert (made.run(x)[0] - want).abs().max() <= 1.25 * step * reach + rounded


@pytest.mark.parametrize("has_bias", [True, False])
def test_stored_weights_under_float_inputs_stay_stored(has_bias: bool) -> None:
    def write(m: Written, x: Tensor) -> Tensor:
        return functional.linear(x, m.weight(), m.b if has_bias else None)

    made = checked(write, ROWS, 1e-5, (6, 8))
    assert is_whole(made)
    names = ("fp32", "qcint8", "fp32", "fp32") if has_bias else ("fp32", "qcint8", "fp32")
    assert kinds(made, "fully_connected") == [names]
