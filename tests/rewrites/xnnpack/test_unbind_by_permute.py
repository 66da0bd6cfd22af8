"""UnbindByPermute: what it leaves alone, and that no later step takes it back."""

import torch
from rewrite_cases import cases
from torch import Tensor, nn

import stepwell
from stepwell.dialects.xnnpack import StaticSlice
from stepwell.ir.types import dims
from stepwell.translate.decompositions import views

test_unbind_by_permute = cases(
    views,
    """
unbind-by-permute: a long axis -> unchanged
    %p0, %p1, %p2, %p3, %p4 = aten.unbind.int(%x: f32[3, 4, 5], -1)
    %y = aten.cat.default([%p0, %p1, %p2, %p3, %p4], 0)
unbind-by-permute: an axis in the middle -> unchanged
    %p0, %p1, %p2, %p3 = aten.unbind.int(%x: f32[3, 4, 2], 1)
    %y = aten.cat.default([%p0, %p1, %p2, %p3], 0)
unbind-by-permute: it leaves -> refused: int64
    %p0, %p1 = aten.unbind.int(%x: i64[3, 4, 2], -1)
    %y = aten.cat.default([%p0, %p1], 0)
unbind-by-permute: a part nobody reads -> unchanged
    %p0, %p1 = aten.unbind.int(%x: f32[3, 4, 2], -1)
    %y = aten.cat.default([%p0], 0)
""",
)


class Rotary(nn.Module):
    """Neighboring pairs turned by an angle, between two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 64)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        real, imaginary = self.layer(x).view(1, 8, 4, 8, 2).unbind(-1)
        turned = (real * cos - imaginary * sin, real * sin + imaginary * cos)
        return self.layer(torch.stack(turned, -1).view(1, 8, 64))


def test_rotary_embeddings_are_sliced_in_blocks() -> None:
    model = Rotary().eval()
    inputs = (torch.randn(1, 8, 64), torch.randn(1, 8, 1, 8), torch.randn(1, 8, 1, 8))
    lowered = stepwell.lower(torch.export.export(model, inputs), "xnnpack")
    slices = [op for op in lowered.program.module.walk() if isinstance(op, StaticSlice)]
    assert [dims(op.output.type)[-1] for op in slices] == [8, 8]
    torch.testing.assert_close(lowered.run(*inputs)[0], model(*inputs))
