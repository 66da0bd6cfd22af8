"""The forms of int8 ops beside stock's: a result for each in one program, compiled once."""

from collections.abc import Callable

import pytest
import torch
from random_quantized import WEIGHTED, Layer, qdq
from test_quantized import inputs_of, lowered, stock_outputs
from torch import Tensor, nn
from torch.nn import functional

UNIT = 0.05
IMAGE = inputs_of(2, 4, 8, 8)


def ours(x: Tensor) -> Tensor:
    return qdq(x, UNIT, 2)


def clamped(x: Tensor) -> Tensor:
    return functional.hardtanh(x, -0.5, 0.75)


UNARY: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": functional.relu,
    "hardtanh": clamped,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "gelu": functional.gelu,
    "hardswish": functional.hardswish,
    "leaky relu": lambda x: functional.leaky_relu(x, 0.1),
    "exp": torch.exp,
    "abs": torch.abs,
    "softmax": lambda x: x.softmax(-1),
    "square": lambda x: x * x,
    "twice": lambda x: x + x,
    "a number added": lambda x: x + 1.5,
    "global average": lambda x: x.mean((2, 3), keepdim=True),
    "average pooling": lambda x: functional.avg_pool2d(x, 2),
}
"""Quantized before and after, with two scales."""

BINARY: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "add": torch.add,
    "subtract": torch.sub,
    "multiply": torch.mul,
    "add and relu": lambda a, b: functional.relu(a + b),
}

SAME: dict[str, Callable[[Tensor], Tensor]] = {
    "reshape": lambda x: x.reshape(2, -1),
    "permute": lambda x: x.permute(0, 3, 1, 2),
    "slice": lambda x: x[:, 1:3],
    "max pooling": lambda x: functional.max_pool2d(x, 2),
    "clamp": clamped,
}
"""Quantized before and after alike."""

LINEAR = {"linear by channel": True, "linear by tensor": False}


class Forms(nn.Module):
    """Every form, of one image."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        shapes = {name: (shape, axis) for name, (shape, axis, _) in WEIGHTED.items()}
        self.layers = nn.ModuleDict(
            {
                f"{name} by {'channel' if by_channel else 'tensor'}": Layer(
                    shape, axis, by_channel, True
                )
                for name, (shape, axis) in shapes.items()
                for by_channel in (True, False)
            }
        )
        self.rows = nn.ModuleDict({name: Layer((6, 8), 0, by, True) for name, by in LINEAR.items()})

    @property
    def forms(self) -> dict[str, Callable[[Tensor], Tensor]]:
        """Each form as a function of an image."""
        made: dict[str, Callable[[Tensor], Tensor]] = {}
        for name, write in UNARY.items():
            made[name] = lambda x, write=write: ours(write(qdq(x, 0.03, 5)))
        for name, binary in BINARY.items():
            made[name] = lambda x, binary=binary: ours(
                binary(qdq(x, 0.03, 5), qdq(x * 0.5, 0.02, -3))
            )
        for name, write in SAME.items():
            made[name] = lambda x, write=write: qdq(write(qdq(x, 0.03, 5)), 0.03, 5)
        for name, layer in self.layers.items():
            layered = WEIGHTED[name.split(" by ")[0]][2]
            made[name] = lambda x, m=layer, f=layered: ours(f(m, qdq(x, 0.03, 5)))
            made[f"{name}, relu"] = lambda x, m=layer, f=layered: ours(
                functional.relu(f(m, qdq(x, 0.03, 5)))
            )
        for name, layer in self.rows.items():
            made[name] = lambda x, m=layer: ours(
                functional.linear(qdq(x, 0.03, 5), m.weight(), m.b)
            )
        return made

    def forward(self, *images: Tensor) -> list[Tensor]:
        forms = self.forms.values()
        return [form(image) for form, image in zip(forms, images, strict=True)]


def test_every_quantized_form_equals_stock_bit_for_bit() -> None:
    """One program of all forms: the stock flow takes half a minute, however many there are."""
    module = Forms().eval()
    names = list(module.forms)
    images = tuple(IMAGE.clone() for _ in names)  # Stock finds cycles if forms share an input.
    made = lowered(torch.export.export(module, images))
    assert made.report.delegates == 1 and not made.report.outside
    (wanted,) = stock_outputs(torch.export.export(module, images), [images])
    given = made.run(*images)
    apart = [
        name
        for name, found, stock in zip(names, given, wanted, strict=True)
        if not torch.equal(found, stock)
    ]
    assert not apart


class Tied(nn.Module):
    """One weight and bias in two layers, whose inputs have other scales."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.layer = Layer((8, 8), 0, True, True)

    def forward(self, x: Tensor) -> Tensor:
        x = ours(functional.linear(qdq(x, 0.03, 5), self.layer.weight(), self.layer.b))
        return ours(functional.linear(x, self.layer.weight(), self.layer.b))


def test_a_shared_weight_has_a_bias_in_the_steps_of_each_layer() -> None:
    """Stock scales both biases for one of the layers: 1.5 off."""
    x = inputs_of(2, 3, 8)
    made = lowered(torch.export.export(Tied().eval(), (x,)))
    assert made.report.delegates == 1
    assert (made.run(x)[0] - Tied()(x)).abs().max() <= 2 * UNIT


@pytest.mark.parametrize("name", ["reshape", "permute", "max pooling"])
def test_a_movement_between_two_scales_runs(name: str) -> None:
    """Stock's program does not load."""

    class Moved(nn.Module):
        """The movement between casts of two scales."""

        def forward(self, x: Tensor) -> Tensor:
            return ours(SAME[name](qdq(x, 0.03, 5)))

    made = lowered(torch.export.export(Moved(), (IMAGE,)))
    assert made.report.delegates == 1 and not made.report.outside
    assert torch.equal(made.run(IMAGE)[0], Moved()(IMAGE))
