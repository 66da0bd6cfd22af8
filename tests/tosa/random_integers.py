"""Random nets over rows in which every value is quantized: what transformers are made of."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.ao.quantization.fx import _decomposed  # noqa: F401 (registers quantized_decomposed)
from torch.nn import functional

Q = torch.ops.quantized_decomposed
ROWS, WIDTH = 5, 8
RANGES = {8: (-128, 127, torch.int8), 16: (-32767, 32767, torch.int16)}

FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": functional.gelu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "exp": lambda x: torch.exp(-x.abs()),
    "clamp": lambda x: x.clamp(-0.5, 0.75),
    "square": lambda x: x * x,
    "twice": lambda x: x + x,
    "shift": lambda x: 1.0 - x,
    "sum": lambda x: x.sum(-1, keepdim=True),
    "mean of rows": lambda x: x.mean(1, keepdim=True),
    "largest": lambda x: x.amax(-1, keepdim=True),
    "least": lambda x: x.amin((0, 1), keepdim=True),
}
"""Ops whose results are quantized anew."""

MOVES: dict[str, Callable[[Tensor], Tensor]] = {
    "swap": lambda x: x.transpose(1, 2).reshape(x.shape),
    "heads": lambda x: x.reshape(*x.shape[:2], -1, 1).transpose(1, 2).reshape(x.shape),
    "cut": lambda x: x[:, 1:] if x.shape[1] > 1 else x,
}
"""Ops that keep the quantization of what they take."""

WHOLE = ("linear", "residual", "product", "center", "norm", "softmax", "parts", "attention")
BESIDE = ("positions", "token", "scale", "constant")
STEPS = (*FUNCTIONS, *MOVES, *WHOLE, *BESIDE)


@dataclass(frozen=True)
class Drawn:
    """What makes a net: the same numbers make the same net."""

    steps: tuple[str, ...]
    bits: int
    per_channel: bool
    seed: int


class Rows(nn.Module):
    """Steps over `[2, 5, 8]`; scales are found by one run of the floats."""

    def __init__(self, drawn: Drawn) -> None:
        super().__init__()
        torch.manual_seed(drawn.seed)
        self.drawn = drawn
        self.input = torch.randn(2, ROWS, WIDTH)
        self.scales: dict[str, tuple[float, int]] = {}
        self.measuring = True
        with torch.no_grad():
            self(self.input)
        self.measuring = False

    def q(self, x: Tensor, name: str) -> Tensor:
        """x under the scale of this place, and back."""
        low, high, dtype = RANGES[self.drawn.bits]
        if self.measuring:
            least, most = float(x.min().clamp(max=0)), float(x.max().clamp(min=0))
            if self.drawn.bits == 8:
                scale = max((most - least) / 230, 2**-12)
                self.scales[name] = scale, max(-128, min(127, round(-120 - least / scale)))
            else:
                self.scales[name] = max(max(most, -least) / 32000, 2**-12), 0
        scale, zero = self.scales[name]
        held = Q.quantize_per_tensor.default(x, scale, zero, low, high, dtype)
        return Q.dequantize_per_tensor.default(held, scale, zero, low, high, dtype)

    def stored(self, name: str, *shape: int) -> Tensor:
        """A quantized constant of this place."""
        low, high, dtype = RANGES[self.drawn.bits]
        if self.measuring:
            self.register_buffer(name, torch.randint(-127, 128, shape, dtype=dtype))
            self.scales[name] = 0.011, 3 if self.drawn.bits == 8 else 0
        scale, zero = self.scales[name]
        return Q.dequantize_per_tensor.default(self.get_buffer(name), scale, zero, low, high, dtype)

    def linear(self, x: Tensor, name: str) -> Tensor:
        """A layer with int8 weights."""
        if self.measuring:
            width = x.shape[-1]
            shape = (WIDTH, width)
            self.register_buffer(f"{name}w", torch.randint(-127, 128, shape, dtype=torch.int8))
            self.register_buffer(f"{name}s", torch.rand(WIDTH) * 0.004 + 0.001)
            self.register_buffer(f"{name}z", torch.zeros(WIDTH, dtype=torch.int64))
            self.register_buffer(f"{name}b", torch.randn(WIDTH) * 0.2)
        w, s, z, b = (self.get_buffer(f"{name}{part}") for part in "wszb")
        if self.drawn.per_channel:
            weight = Q.dequantize_per_channel.default(w, s, z, 0, -127, 127, torch.int8)
        else:
            weight = Q.dequantize_per_tensor.default(w, 0.003, 0, -127, 127, torch.int8)
        return functional.linear(x, weight, b)

    def forward(self, x: Tensor) -> Tensor:
        start = x = self.q(x, "input")
        for index, step in enumerate(self.drawn.steps):
            x = self.step(f"p{index}", step, x, start)
        return x

    def step(self, place: str, step: str, x: Tensor, start: Tensor) -> Tensor:
        """One step, quantized anew unless it only moves."""
        q = lambda value, part="": self.q(value, place + part)  # noqa: E731
        other = start if start.shape == x.shape else x
        match step:
            case _ if step in FUNCTIONS:
                return q(FUNCTIONS[step](x))
            case _ if step in MOVES:
                return MOVES[step](x)
            case "linear":
                return q(self.linear(x, place))
            case "residual":
                return q(x + other)
            case "product":
                return q(x * other)
            case "center":
                return q(x - q(x.mean(-1, keepdim=True), "m"))
            case "norm":
                variance = q(q(x * x, "a").mean(-1, keepdim=True), "b")
                return q(x * q(torch.rsqrt(q(variance + 0.1, "c")), "d"))
            case "softmax" if self.drawn.bits == 8:
                return q(x.softmax(-1))
            case "softmax" | "parts":
                return self.parts(x, q)
            case "attention":
                scores = q(torch.bmm(x, x.transpose(1, 2)), "s")
                return q(torch.bmm(self.parts(scores, q), x), "v")
            case "positions":
                return q(x + self.stored(place + "c", 1, 1, x.shape[-1]))
            case "token":
                token = self.q(self.stored(place + "c", x.shape[0], 1, x.shape[-1]), place)
                return torch.cat([token, q(x)], 1)
            case "scale":
                return q(x * self.stored(place + "c", 1))
            case _:
                return q(x - q(torch.sigmoid(self.stored(place + "c", 1, 1, 1)), "f"))

    def parts(self, x: Tensor, q: Callable[[Tensor, str], Tensor]) -> Tensor:
        """A softmax as ExecuTorch's quantizer takes it apart."""
        powers = q(torch.exp(q(x - q(x.amax(-1, keepdim=True), "t"), "x")), "y")
        return q(powers * q(torch.reciprocal(q(powers.sum(-1, keepdim=True), "z")), "w"), "u")


@st.composite
def rows(draw: st.DrawFn, most: int = 5) -> Drawn:
    """Nets of one to `most` steps."""
    return Drawn(
        tuple(draw(st.lists(st.sampled_from(STEPS), min_size=1, max_size=most))),
        draw(st.sampled_from((8, 8, 16))),
        draw(st.booleans()),
        draw(st.integers(0, 1000)),
    )
