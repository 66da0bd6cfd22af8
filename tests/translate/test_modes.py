"""What stands under a mode of torch, or a vmap, is in the program like any other ops."""

import pytest
import torch
from torch import Tensor, nn

import stepwell

X = torch.linspace(-1, 1, 8).reshape(2, 4)


class Base(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(4, 4)
        self.register_buffer("seen", torch.zeros(2, 4))


class WithoutGradients(Base):
    """As rotary embeddings are often written: part of forward needs no gradient."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            angles = x.cos()
            both, last = angles * 2, torch.unbind(angles, 0)[1]
        return self.layer(x) + both, last


class WithoutAutocast(Base):
    """As attention is often written: float32, whatever the caller has chosen."""

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", enabled=False):
            y = self.layer(x.float())
            with torch.no_grad():
                y = y + 1
        return y * 2


class Autocast(Base):
    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.layer(x) + 1


class MappedOverRows(Base):
    def forward(self, x: Tensor) -> Tensor:
        return torch.vmap(lambda row: self.layer(row).softmax(0) * row.sum())(x)


class WritesBetween(Base):
    """What is written in place has a view that was made under a mode."""

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            view = x.mul(2).view(4, 2)
            self.seen.add_(x)
        return view.relu_() + self.layer(x).view(4, 2) + self.seen.view(4, 2)


def allowed(model: type[Base]) -> float:
    """Nothing may differ, but that torch multiplies the rows of a vmap together."""
    return 1e-6 if model is MappedOverRows else 0.0


@pytest.mark.parametrize(
    "model", [WithoutGradients, WithoutAutocast, Autocast, MappedOverRows, WritesBetween]
)
def test_a_mode_of_torch_leaves_its_ops_and_their_meaning(model: type[Base]) -> None:
    exported = torch.export.export(model().eval(), (X,))
    marks = ("wrap_with", "_vmap_increment_nesting")
    assert any(mark in str(node.target) for node in exported.graph.nodes for mark in marks)
    program = stepwell.from_exported_program(exported)
    program.verify()
    expected = model().eval()(X)
    expected = expected if isinstance(expected, tuple) else (expected,)
    again = stepwell.parse(str(program), weights=program.weights)
    for found in (program.run(X), again.run(X)):
        for given, wanted in zip(found, expected, strict=True):
            torch.testing.assert_close(given, wanted, rtol=0, atol=allowed(model))
    returned = again.to_exported_program().module()(X)
    returned = returned[0] if len(expected) > 1 else returned
    torch.testing.assert_close(returned, expected[0], rtol=0, atol=allowed(model))


def test_only_what_chooses_types_is_rewritten_by_torch() -> None:
    names = {
        model: [
            op.name
            for op in stepwell.from_exported_program(
                torch.export.export(model().eval(), (X,))
            ).module.walk()
        ]
        for model in (WithoutAutocast, Autocast)
    }
    assert "aten.to.dtype" in names[WithoutAutocast]
    assert "aten._to_copy.default" not in names[WithoutAutocast]
    assert "aten._to_copy.default" in names[Autocast]
