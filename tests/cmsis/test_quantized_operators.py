"""Operators that the library has none like: in parts they are the same function, and all int8."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.export import export

from stepwell.translate.pt2e.decompose_for_annotation import decompose


class Images(nn.Module):
    """Resizes and pools of images."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(2, 3, 3, padding=1)
        self.up = nn.ConvTranspose2d(3, 3, 3, 2, 1, output_padding=1, groups=3)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        x = self.stem(x)
        return (
            F.interpolate(x, scale_factor=3.0, mode="bilinear"),
            F.interpolate(x, (5, 9), mode="bilinear", align_corners=True),
            F.interpolate(x, (9, 5), mode="bicubic"),
            F.interpolate(x, (9, 5)),
            F.interpolate(x[0], scale_factor=2.0, mode="linear"),
            F.adaptive_max_pool2d(x, (3, 2)),
            F.adaptive_max_pool2d(x, (4, 3)),
            F.adaptive_avg_pool2d(x, (3, 4)),
            F.group_norm(F.interpolate(x, (4, 3), mode="bicubic"), 3),
            F.max_pool2d(x, 4, 3, ceil_mode=True),
            self.up(x),
        )


class Rows(nn.Module):
    """Functions of rows and choices among them."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.words, self.norm = nn.Linear(6, 8), nn.Embedding(5, 8), nn.RMSNorm(8)

    def forward(self, x: Tensor, at: Tensor) -> tuple[Tensor, ...]:
        x = self.stem(x)
        return (
            F.log_softmax(x, -1),
            F.glu(x, -1),
            torch.where(x > 0.1, x, 0.5),
            x.masked_fill(x <= -0.2, -0.25),
            torch.where(x > x.flip(1), x, self.words(at)),
            torch.max(x, 1).values,
            torch.min(x, 1, keepdim=True).indices,
            x.var(-1),
            x.amin((0, 2)),
            self.norm(x),
        )


IMAGES = (Images, (torch.linspace(-2, 2, 2 * 8 * 6).reshape(1, 2, 8, 6).sin(),))
ROWS = (
    Rows,
    (torch.linspace(-3, 3, 30).reshape(1, 5, 6).cos(), torch.tensor([[0, 4, 2, 1, 3]])),
)


@pytest.mark.parametrize("module, inputs", [IMAGES, ROWS], ids=["images", "rows"])
def test_decomposed_operators_are_the_same_function(module: type[nn.Module], inputs: Any) -> None:
    torch.manual_seed(0)
    model = module().eval()
    parts = decompose(export(model, inputs).module(check_guards=False))
    left = {str(node.target) for node in parts.graph.nodes if node.op == "call_function"}
    for name in ("softmax", "bilinear", "adaptive", "masked_fill", "max.dim", "var", "glu", "norm"):
        assert not any(name in target for target in left)
    for made, wanted in zip(parts(*inputs), model(*inputs), strict=True):
        torch.testing.assert_close(made, wanted)


def test_a_choice_of_integers_and_a_norm_of_computed_scale_are_the_same_functions() -> None:
    class Computed(nn.Module):
        def forward(self, x: Tensor, at: Tensor) -> tuple[Tensor, ...]:
            scale = x.mean((0, 2, 3))
            return at.masked_fill(at > 1, 7), F.group_norm(x, 2, scale, scale), F.prelu(x, scale)

    inputs = torch.randn(1, 4, 3, 2), torch.tensor([0, 1, 2])
    model = Computed()
    parts = decompose(export(model, inputs).module(check_guards=False))
    for made, wanted in zip(parts(*inputs), model(*inputs), strict=True):
        torch.testing.assert_close(made, wanted)


def test_attention_reads_the_buffer_that_a_step_has_written() -> None:
    class Cached(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("keys", torch.zeros(1, 3, 4))

        def forward(self, x: Tensor) -> Tensor:
            self.keys[:, 1:] = x[:, 1:]
            return F.scaled_dot_product_attention(x, self.keys, self.keys)

    x = torch.randn(1, 3, 4)
    parts, model = decompose(export(Cached(), (x,)).module(check_guards=False)), Cached()
    assert [name for name, _ in parts.named_buffers()] == ["keys"]
    for factor in (1, 2):
        torch.testing.assert_close(parts(factor * x), model(factor * x))


@pytest.mark.parametrize("module, inputs", [IMAGES, ROWS], ids=["images", "rows"])
def test_decomposed_operators_are_int8(module: type[nn.Module], inputs: Any, lower: Any) -> None:
    torch.manual_seed(0)
    result = lower.module(module(), *inputs)
    assert not result.floats, result.refusals
    result.check(*inputs)


def test_a_norm_of_groups_takes_images_channels_last(lower: Any) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(2, 4, 1), nn.GroupNorm(2, 4), nn.InstanceNorm2d(4, affine=True))
    x = torch.randn(1, 2, 6, 5).to(memory_format=torch.channels_last)
    result = lower.module(model.to(memory_format=torch.channels_last), x)
    assert not result.floats, result.refusals
    result.check(x)
