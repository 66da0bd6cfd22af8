"""The rules that discovery found in programs of the zoo, on real lowerings."""

from collections import Counter

import pytest
import torch
from torch import Tensor, nn

import stepwell


def nodes(lowered: stepwell.Lowered) -> Counter[str]:
    return Counter(op.name for op in lowered.program.module.walk())


class Joined(nn.Module):
    """`count` parts of an image, one after another along an axis."""

    def __init__(self, count: int, axis: int) -> None:
        super().__init__()
        self.count, self.axis = count, axis

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x * float(k + 2) for k in range(self.count)], self.axis)


@pytest.mark.parametrize(("count", "joins"), [(5, 1), (6, 2), (8, 2), (9, 2), (12, 3), (13, 3)])
def test_parts_are_concatenated_by_as_few_nodes_as_possible(count: int, joins: int) -> None:
    x = torch.randn(2, 3, 4)
    module = Joined(count, 1)
    lowered = stepwell.lower(torch.export.export(module, (x,)), "xnnpack")
    found = sum(n for name, n in nodes(lowered).items() if "concatenate" in name)
    assert found == joins == -(-(count - 1) // 4)
    (made,) = lowered.run(x)
    torch.testing.assert_close(made, module(x), rtol=0, atol=0)


def test_a_concatenation_that_is_returned_too_is_kept() -> None:
    class Both(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            inner = torch.cat([x + 1, x * 2], 1)
            return inner, torch.cat([inner, x.exp()], 1)

    x = torch.randn(2, 3)
    lowered = stepwell.lower(torch.export.export(Both(), (x,)), "xnnpack")
    assert nodes(lowered)["xnnpack.concatenate2"] == 2
    for made, wanted in zip(lowered.run(x), Both()(x), strict=True):
        torch.testing.assert_close(made, wanted)


def test_concatenations_along_two_axes_stay_two() -> None:
    class Corner(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            row = torch.cat([x.sin(), x.cos()], 1)
            return torch.cat([row, row.exp()], 0)

    x = torch.randn(2, 3)
    lowered = stepwell.lower(torch.export.export(Corner(), (x,)), "xnnpack")
    assert nodes(lowered)["xnnpack.concatenate2"] == 2
    torch.testing.assert_close(lowered.run(x)[0], Corner()(x))


@pytest.mark.parametrize("target", ["xnnpack", "tosa-1.0+fp"])
def test_the_unet_has_no_slice_of_a_slice(target: str) -> None:
    from stepwell.model_zoo.catalogue.models import select

    (entry,) = select(["examples/diffusion.diffusion_unet"])
    made = entry.make()
    assert made.module is not None
    exported = torch.export.export(made.module, made.inputs)
    program = stepwell.lower(exported, target).program
    slices = [
        op for op in program.module.walk() if op.name.endswith(("static_slice", "tosa.slice"))
    ]
    assert slices
    assert not any(op.operands[0].owner in slices for op in slices)


def test_a_pool_by_a_norm_clamps_no_absolute_value() -> None:
    x = torch.randn(1, 3, 8, 8, 8)
    module = nn.LPPool3d(2, 2)
    lowered = stepwell.lower(torch.export.export(module, (x,)), "xnnpack")
    ops = list(lowered.program.module.walk())
    clamps = [op for op in ops if op.name == "xnnpack.clamp"]
    assert not any(getattr(op.operands[0].owner, "name", "") == "xnnpack.abs" for op in clamps)
    torch.testing.assert_close(lowered.run(x)[0], module(x))


def test_a_loss_that_ignores_a_class_negates_no_condition() -> None:
    given = torch.randn(4, 5), torch.tensor([0, 1, 4, -100])
    module = nn.NLLLoss()
    lowered = stepwell.lower(torch.export.export(module, given), "tosa-1.0+fp+int")
    assert not nodes(lowered)["tosa.logical_not"]
    torch.testing.assert_close(lowered.run(*given)[0], module(*given))
