"""UnbindByPermute: what it leaves alone, and that no later step takes it back."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import stepwell
from stepwell.dialects.xnnpack import StaticSlice
from stepwell.ir.types import dims
from stepwell.translate.decompositions import views
from stepwell.translate.lowerings.lowering import step


def unbound(shape: tuple[int, ...], axis: int, kind: str = "f32", *, used: int) -> tuple[str, ...]:
    whole = f"tensor<{'x'.join(map(str, shape))}x{kind}>"
    rest = [size for at, size in enumerate(shape) if at != axis % len(shape)]
    part = f"tensor<{'x'.join(map(str, rest))}x{kind}>"
    count = shape[axis]
    names = ", ".join(f"%p{index}" for index in range(count))
    parts = ", ".join([part] * count)
    total = f"tensor<{'x'.join(map(str, [rest[0] * used, *rest[1:]]))}x{kind}>"
    given = ", ".join(f"%p{index}" for index in range(used))
    types = ", ".join([part] * used)
    return (
        whole,
        total,
        f"{names} = aten.unbind.int(%x, {axis}) : ({whole}) -> ({parts})",
        f"%y = aten.cat.default([{given}], 0) : ({types}) -> {total}",
    )


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        (unbound((3, 4, views.SHORT + 1), -1, used=views.SHORT + 1), ""),
        (unbound((3, 4, 2), 1, used=4), ""),
        (unbound((3, 4, 2), -1, "i64", used=2), "int64"),
        (unbound((3, 4, 2), -1, used=1), ""),
    ],
    ids=["a long axis", "an axis in the middle", "integers", "a part nobody reads"],
)
def test_it_leaves(case: tuple[str, ...], reason: str, refused: Any, method: Any) -> None:
    whole, total, *lines = case
    refused(method(f"%x: {whole}", *lines, gives=total), step(views.unbind_by_permute), reason)


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
