"""Random quantized nets: steps over rows or images, each followed by a quantization or not."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.ao.quantization.fx import _decomposed  # noqa: F401 (registers quantized_decomposed)
from torch.nn import functional

Q = torch.ops.quantized_decomposed
CHANNELS, SIZE = 4, 8


def qdq(x: Tensor, scale: float, zero: int) -> Tensor:
    """int8 and back."""
    held = Q.quantize_per_tensor.default(x, scale, zero, -128, 127, torch.int8)
    return Q.dequantize_per_tensor.default(held, scale, zero, -128, 127, torch.int8)


def by_range(x: Tensor) -> Tensor:
    """int8 by the tensor's own range, and back."""
    scale, zero = Q.choose_qparams.tensor(x, -128, 127, 2**-12, torch.int8)
    held = Q.quantize_per_tensor.tensor(x, scale, zero, -128, 127, torch.int8)
    return Q.dequantize_per_tensor.tensor(held, scale, zero, -128, 127, torch.int8)


class Layer(nn.Module):
    """A stored int8 weight with one scale, or one for each output, and a bias perhaps."""

    def __init__(self, shape: Sequence[int], axis: int, per_channel: bool, bias: bool) -> None:
        super().__init__()
        outputs = shape[axis]
        self.axis, self.per_channel = axis, per_channel
        self.register_buffer("w", torch.randint(-127, 128, tuple(shape), dtype=torch.int8))
        self.register_buffer("s", torch.rand(outputs) * 0.004 + 0.001)
        self.register_buffer("z", torch.zeros(outputs, dtype=torch.int64))
        self.register_buffer("b", torch.randn(outputs) * 0.2 if bias else None)

    def weight(self) -> Tensor:
        """The real weight."""
        if self.per_channel:
            return Q.dequantize_per_channel.default(
                self.w, self.s, self.z, self.axis, -127, 127, torch.int8
            )
        return Q.dequantize_per_tensor.default(self.w, 0.003, 0, -127, 127, torch.int8)


Forward = Callable[[Layer, Tensor], Tensor]
WEIGHTED: dict[str, tuple[tuple[int, ...], int, Forward]] = {
    "convolution": (
        (CHANNELS, CHANNELS, 3, 3),
        0,
        lambda m, x: functional.conv2d(x, m.weight(), m.b, 1, 1),
    ),
    "strided": (
        (CHANNELS, CHANNELS, 3, 3),
        0,
        lambda m, x: functional.conv2d(x, m.weight(), m.b, 2, 1),
    ),
    "depthwise": (
        (CHANNELS, 1, 3, 3),
        0,
        lambda m, x: functional.conv2d(x, m.weight(), m.b, 1, 1, 1, CHANNELS),
    ),
    "pointwise": (
        (CHANNELS, CHANNELS, 1, 1),
        0,
        lambda m, x: functional.conv2d(x, m.weight(), m.b),
    ),
    "transposed": (
        (CHANNELS, CHANNELS, 3, 3),
        1,
        lambda m, x: functional.conv_transpose2d(x, m.weight(), m.b, 2, 1, 1),
    ),
}
"""Shape of the weight, its axis of outputs, and the layer."""

PLAIN: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": functional.relu,
    "hardtanh": lambda x: functional.hardtanh(x, -0.5, 0.75),
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "gelu": functional.gelu,
    "hardswish": functional.hardswish,
    "softmax": lambda x: x.softmax(-1),
    "mean": lambda x: x.mean((2, 3), keepdim=True) + x if x.dim() == 4 else x,
    "twice": lambda x: x + x,
    "square": lambda x: x * x,
}
"""Ops whose results are quantized anew."""

EXACT: dict[str, Callable[[Tensor], Tensor]] = {
    "maximum": lambda x: functional.max_pool2d(x, 3, 1, 1),
    "swap": lambda x: x.permute(0, 1, 3, 2),
    "cut": lambda x: x[:, :, 1:],
    "double": lambda x: torch.cat([x, x], 2),
}
"""Ops whose results keep the quantization of what they take."""

ENDS = ("as it is", "linear", "flat", "run-time linear")
STEPS = (*WEIGHTED, *PLAIN, *EXACT, "residual", "product", "run-time")
STOCK_STEPS = tuple(step for step in STEPS if step not in ("mean", "double", "run-time", "softmax"))
"""Steps that stock puts into its delegate whatever stands around them.

Behind a layer that it keeps channels-last, stock computes a softmax over another axis than eager.
"""


@dataclass(frozen=True)
class Drawn:
    """What makes a net: the same numbers make the same net."""

    steps: tuple[str, ...]
    clamps: tuple[str, ...]
    end: str
    per_channel: bool
    bias: bool
    seed: int


class Net(nn.Module):
    """Steps over images `[2, 4, 8, 8]`; scales are found by one run of the floats."""

    def __init__(self, drawn: Drawn) -> None:
        super().__init__()
        torch.manual_seed(drawn.seed)
        self.drawn = drawn
        self.input = torch.randn(2, CHANNELS, SIZE, SIZE)
        self.layers = nn.ModuleDict()
        self.scales: dict[str, tuple[float, int]] = {}
        self.measuring = True
        with torch.no_grad():
            self(self.input)
        self.measuring = False

    def quantized(self, x: Tensor, name: str) -> Tensor:
        """x under the scale of this place."""
        if self.measuring:
            low, high = float(x.min().clamp(max=0)), float(x.max().clamp(min=0))
            scale = float(torch.tensor(max((high - low) / 230, 1e-4)))
            zero = max(-128, min(127, round(-120 - low / scale)))
            self.scales[name] = (scale, zero)
        return qdq(x, *self.scales[name])

    def layer(self, name: str, shape: Sequence[int], axis: int = 0) -> Layer:
        """The weights of this place."""
        if self.measuring:
            self.layers[name] = Layer(shape, axis, self.drawn.per_channel, self.drawn.bias)
        made = self.layers[name]
        assert isinstance(made, Layer)
        return made

    def forward(self, x: Tensor) -> Tensor:
        start = x = self.quantized(x, "input")
        for index, (step, clamp) in enumerate(
            zip(self.drawn.steps, self.drawn.clamps, strict=True)
        ):
            x = self.step(f"{index}", step, clamp, x, start)
        return self.ended(x)

    def step(self, place: str, step: str, clamp: str, x: Tensor, start: Tensor) -> Tensor:
        """One step, quantized anew unless it only moves."""
        if step in EXACT:
            x = EXACT[step](x)
            return qdq(x, *self.scales[self.last]) if self.last else x
        if step in WEIGHTED:
            shape, axis, forward = WEIGHTED[step]
            y = forward(self.layer(place, shape, axis), x)
        elif step == "run-time":
            shape, axis, forward = WEIGHTED["convolution"]
            y = forward(self.layer(place, shape, axis), by_range(x * 1.25))
        elif step in ("residual", "product"):
            other = start if start.shape == x.shape else x
            y = x + other if step == "residual" else x * other
        else:
            y = PLAIN[step](x)
        if clamp:
            y = PLAIN[clamp](y)
        self.place = place
        return self.quantized(y, place)

    @property
    def last(self) -> str:
        """The place of the last quantization."""
        return getattr(self, "place", "input")

    def ended(self, x: Tensor) -> Tensor:
        """A classifier's end."""
        if self.drawn.end == "as it is":
            return x
        flat = x.flatten(1)
        if self.drawn.end == "flat":
            return flat
        made = self.layer("end", (6, flat.shape[1]))
        given = by_range(flat * 1.25) if self.drawn.end == "run-time linear" else flat
        y = functional.linear(given, made.weight(), made.b)
        return y if self.drawn.end == "run-time linear" else self.quantized(y, "end")


@st.composite
def nets(draw: st.DrawFn, most: int = 4, for_stock: bool = False) -> Drawn:
    """Nets of one to `most` steps, of those only that stock delegates perhaps."""
    known = STOCK_STEPS if for_stock else STEPS
    steps = tuple(draw(st.lists(st.sampled_from(known), min_size=1, max_size=most)))
    clamps = tuple(draw(st.sampled_from(("", "", "relu", "hardtanh"))) for _ in steps)
    return Drawn(
        steps,
        clamps,
        draw(st.sampled_from(ENDS[:3] if for_stock else ENDS)),
        draw(st.booleans()),
        draw(st.booleans()),
        draw(st.integers(0, 1000)),
    )
