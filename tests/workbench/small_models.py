"""Twenty-one small models, each with the shapes of its inputs and the number of its outputs."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn


class Net(nn.Module):
    """A function of layers."""

    def __init__(self, function: Callable[..., Any], **layers: nn.Module) -> None:
        super().__init__()
        for name, layer in layers.items():
            setattr(self, name, layer)
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.function(self, *inputs)


def _attention(s: Any, x: torch.Tensor) -> torch.Tensor:
    q, k, v = s.qkv(x).chunk(3, -1)
    return s.out(F.scaled_dot_product_attention(q, k, v, is_causal=True))


def _residual(s: Any, x: torch.Tensor) -> torch.Tensor:
    return x + s.second(F.gelu(s.first(s.norm(x))))


IMAGE, ROWS, WORDS = (1, 3, 12, 12), (2, 5, 8), (2, 6)
MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[tuple[int, ...], ...], int]] = {
    "linear": (lambda: nn.Linear(8, 4), (ROWS,), 1),
    "mlp": (lambda: nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3)), (ROWS,), 1),
    "convolution": (lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU()), (IMAGE,), 1),
    "batch norm": (
        lambda: nn.Sequential(nn.Conv2d(3, 4, 3, stride=2), nn.BatchNorm2d(4), nn.Hardswish()),
        (IMAGE,),
        1,
    ),
    "classifier": (
        lambda: Net(
            lambda s, x: s.head(F.relu(s.conv(x)).mean((2, 3))).softmax(-1),
            conv=nn.Conv2d(3, 8, 3, padding=1),
            head=nn.Linear(8, 5),
        ),
        (IMAGE,),
        1,
    ),
    "pools": (lambda: nn.Sequential(nn.MaxPool2d(2), nn.AvgPool2d(3)), (IMAGE,), 1),
    "depthwise": (
        lambda: nn.Sequential(nn.Conv2d(3, 3, 3, groups=3), nn.Conv2d(3, 6, 1), nn.ReLU6()),
        (IMAGE,),
        1,
    ),
    "attention": (lambda: Net(_attention, qkv=nn.Linear(8, 24), out=nn.Linear(8, 8)), (ROWS,), 1),
    "residual": (
        lambda: Net(
            _residual, norm=nn.LayerNorm(8), first=nn.Linear(8, 16), second=nn.Linear(16, 8)
        ),
        (ROWS,),
        1,
    ),
    "group norm": (lambda: nn.Sequential(nn.Conv2d(3, 8, 1), nn.GroupNorm(2, 8)), (IMAGE,), 1),
    "words": (
        lambda: Net(lambda s, i: s.out(s.table(i)), table=nn.Embedding(10, 8), out=nn.Linear(8, 4)),
        (WORDS,),
        1,
    ),
    "two outputs": (lambda: Net(lambda s, x: (s.a(x), s.b(x).tanh()), a=nn.Linear(8, 4),
                                b=nn.Linear(8, 4)), (ROWS,), 2),
    "an output of another": (
        lambda: Net(lambda s, x: (y := s.a(x), y.sigmoid()), a=nn.Linear(8, 4)), (ROWS,), 2
    ),
    "two inputs": (
        lambda: Net(lambda s, x, y: s.a(x) @ y, a=nn.Linear(8, 8)), (ROWS, (2, 8, 3)), 1
    ),
    "a dictionary": (lambda: Net(lambda s, x: {"y": s.a(x)}, a=nn.Linear(8, 4)), (ROWS,), 1),
    "the largest": (lambda: Net(lambda s, x: s.a(x).argmax(-1), a=nn.Linear(8, 4)), (ROWS,), 1),
    "top": (lambda: Net(lambda s, x: s.a(x).topk(2).values, a=nn.Linear(8, 4)), (ROWS,), 1),
    "kernels between": (
        lambda: Net(
            lambda s, x: s.b(s.a(x).cumprod(1)), a=nn.Linear(8, 8), b=nn.Linear(8, 4)
        ),
        (ROWS,),
        1,
    ),
    "kernels alone": (lambda: Net(lambda s, x: x.cumprod(1).erfinv()), (ROWS,), 1),
    "recurrent": (
        lambda: Net(lambda s, x: s.out(s.cell(x)[0]), cell=nn.GRU(8, 6), out=nn.Linear(6, 2)),
        (ROWS,),
        1,
    ),
    "upsampling": (lambda: nn.Upsample(scale_factor=2, mode="bilinear"), (IMAGE,), 1),
}  # fmt: skip


def made(name: str) -> tuple[nn.Module, list[torch.Tensor], int]:
    """A model, its inputs, and how many outputs it has."""
    make, shapes, outputs = MODELS[name]
    torch.manual_seed(0)
    model = make().eval()
    is_words = name == "words"
    inputs = [torch.randint(10, s) if is_words else torch.rand(s) * 0.9 for s in shapes]
    return model, inputs, outputs
