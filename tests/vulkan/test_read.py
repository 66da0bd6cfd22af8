"""Delegates of ExecuTorch's Vulkan flow: read, interpreted, compared with eager; damaged ones."""

import random
from collections.abc import Callable
from functools import cache
from typing import Any, cast

import pytest
import torch
from executorch.backends.vulkan.partitioner.vulkan_partitioner import VulkanPartitioner
from executorch.backends.vulkan.patterns import fusable_patterns
from executorch.exir import to_edge_transform_and_lower
from torch import Tensor, nn
from torch.nn import functional as F

import stepwell
from stepwell.backends.executorch.reading.read import read_container
from stepwell.backends.vulkan.schema import read_graph
from stepwell.dialects.executorch import DelegateOp, OpaqueDelegateOp
from stepwell.ir.diagnostics import ParseFailure, StepwellError, UnsupportedError
from stepwell.ir.dtypes import f16
from stepwell.ir.types import element
from stepwell.validation.artifacts import validate

for _pattern in fusable_patterns.values():
    # Every lowering exports the graphs of rotary embeddings anew, which takes seconds.
    _pattern.get_graphs_fn = None

FAMILIES: dict[str, Callable[..., Any]] = {
    "binary": lambda x, t, i, m: (t + 2 * t[0], t / (t.abs() + 1), t - 1.5, torch.minimum(t, -t)),
    "compared": lambda x, t, i, m: torch.where((t > 0) & (t <= 1), t, -t.pow(2)),
    "unary": lambda x, t, i, m: (t.sigmoid() + t.cos(), F.gelu(t), F.hardswish(t), t.clamp(0, 1)),
    "convolution": lambda x, t, i, m: F.relu6(m["norm"](m["conv"](x))),
    "depthwise": lambda x, t, i, m: F.relu(m["depthwise"](x)),
    "transposed": lambda x, t, i, m: m["transposed"](x),
    "linear": lambda x, t, i, m: (m["linear"](t), t @ t.transpose(1, 2)),
    "norms": lambda x, t, i, m: (m["layer_norm"](t), m["group_norm"](x)),
    "pools": lambda x, t, i, m: (F.max_pool2d(x, 3, 2, 1), F.avg_pool2d(x, 2)),
    "reduced": lambda x, t, i, m: (t.mean(1), t.sum(-1, keepdim=True), t.amax(2), t.argmax(1)),
    "softmax": lambda x, t, i, m: (t.softmax(-1), t.log_softmax(1)),
    "views": lambda x, t, i, m: (t.flip(1).permute(2, 0, 1), *t.view(2, 3, 16).split(2, 1)[::-1]),
    "slices": lambda x, t, i, m: (torch.cat([t[:, 1:], t[:, :1]], 1), t[:, 2], F.pad(t, (1, 2))),
    "repeated": lambda x, t, i, m: (t.repeat(1, 2, 1), t[:1].expand(3, 6, 8)),
    "tables": lambda x, t, i, m: (m["table"](i), t.index_select(1, i[0]), t.gather(2, i[:, None])),
    "resized": lambda x, t, i, m: (
        F.interpolate(x, scale_factor=2),
        F.interpolate(x, scale_factor=2.0, mode="bilinear"),
        F.pixel_shuffle(x, 2),
    ),
    "integers": lambda x, t, i, m: (i + 3, (i * 2).sum(1), i == 1),
    "filled": lambda x, t, i, m: t * torch.arange(8, dtype=torch.float32) + torch.ones_like(t),
}
"""Functions of an image, tokens, indices and layers, by the family of operators."""


class Families(nn.Module):
    """All families as one model, because lowering takes a second."""

    def __init__(self) -> None:
        super().__init__()
        layers: dict[str, nn.Module] = {
            "conv": nn.Conv2d(8, 12, 3, 2, 1, bias=False),
            "norm": nn.BatchNorm2d(12),
            "depthwise": nn.Conv2d(8, 8, 3, padding=1, groups=8),
            "transposed": nn.ConvTranspose2d(8, 4, 3, 2),
            "linear": nn.Linear(8, 5),
            "layer_norm": nn.LayerNorm(8),
            "group_norm": nn.GroupNorm(2, 8),
            "table": nn.Embedding(8, 8),
        }
        self.layers = nn.ModuleDict(layers)

    def forward(self, x: Tensor, t: Tensor, i: Tensor) -> dict[str, Any]:
        return {name: function(x, t, i, self.layers) for name, function in FAMILIES.items()}


INPUTS = (torch.randn(1, 8, 8, 8), torch.randn(2, 6, 8), torch.tensor([[1, 3], [5, 0]]))


def lowered(model: nn.Module, inputs: tuple[Any, ...], shapes: Any = None, **options: Any) -> bytes:
    """Return the `.pte` of the stock flow."""
    with torch.no_grad():
        exported = torch.export.export(model.eval(), inputs, dynamic_shapes=shapes)
        edge = to_edge_transform_and_lower(exported, partitioner=[VulkanPartitioner(options)])
        return bytes(edge.to_executorch().buffer)


@cache
def families() -> tuple[nn.Module, bytes, stepwell.Program]:
    """Return the model of all families, its file, and the program that is read."""
    torch.manual_seed(0)
    model = Families()
    data = lowered(model, INPUTS)
    return model, data, stepwell.read_pte(data)


def leaves(value: Any) -> list[Any]:
    """Return the tensors of nested results in order."""
    return torch.utils._pytree.tree_leaves(value)  # pyright: ignore


@cache
def compared() -> dict[str, list[tuple[Tensor, Tensor]]]:
    """Return pairs of results by family: of eager PyTorch, and of the program that was read."""
    model, _, program = families()
    wanted = cast("dict[str, Any]", model(*INPUTS))
    found = iter(leaves(program.run(*INPUTS)))
    return {name: [(one, next(found)) for one in leaves(made)] for name, made in wanted.items()}


@pytest.mark.parametrize("name", FAMILIES)
def test_family_is_computed_as_in_eager(name: str) -> None:
    for wanted, found in compared()[name]:
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)


def test_halves_are_computed_within_their_rounding() -> None:
    model = nn.Sequential(nn.Conv2d(8, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 5))
    program = stepwell.read_pte(lowered(model, INPUTS[:1], force_fp16=True))
    wanted = cast(Tensor, model(INPUTS[0]))
    torch.testing.assert_close(program.run(INPUTS[0])[0], wanted, rtol=1e-2, atol=1e-2)
    (delegate,) = [op for op in program.module.walk() if isinstance(op, DelegateOp)]
    (linear,) = [op for op in delegate.body.block.ops if op.name == "aten.linear.default"]
    assert element(linear.results[0].type) == f16


def test_program_prints_parses_and_is_raised() -> None:
    _, _, program = families()
    program.verify()
    assert not any(isinstance(op, OpaqueDelegateOp) for op in program.module.walk())
    again = stepwell.parse(str(program), weights=program.weights)
    assert str(again) == str(program)
    raised = program.raise_to("aten")
    assert not any(isinstance(op, DelegateOp) for op in raised.module.walk())
    for one, other in zip(leaves(raised.run(*INPUTS)), leaves(program.run(*INPUTS)), strict=True):
        assert torch.equal(one, other)


def test_buffer_that_the_graph_returns_makes_the_delegate_opaque() -> None:
    class Counter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(4))

        def forward(self, x: Tensor) -> Tensor:
            self.count.add_(x)
            return self.count * 2

    program = stepwell.read_pte(lowered(Counter(), (torch.ones(4),)))
    (op,) = [op for op in program.module.walk() if isinstance(op, OpaqueDelegateOp)]
    assert op.reason is not None and "the runtime rejects it" in op.reason.data
    assert op.reason.data in str(program)


def test_buffer_on_the_gpu_is_state() -> None:
    class Memory(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("held", torch.full((2, 4), 0.5))

        def forward(self, x: Tensor) -> Tensor:
            self.held.copy_(torch.tanh(x + self.held))
            return self.held * 2

    x, model = torch.randn(2, 4), Memory()
    program = stepwell.read_pte(lowered(model, (x,), alias_buffer_mutations=True))
    program.verify()
    session, raised = program.start(), program.raise_to("aten").start()
    for _ in range(3):
        wanted = model(x)
        torch.testing.assert_close(session.run(x)[0], wanted)
        torch.testing.assert_close(raised.run(x)[0], wanted)


class Merged(nn.Module):
    """A kernel between two delegates; a size is computed from two."""

    def forward(self, x: Tensor) -> Tensor:
        x = x.reshape(x.shape[0] * x.shape[1], 4) + 1
        return torch.tan(x).repeat(2, 1).softmax(0)


SHAPES = ({1: torch.export.Dim("n", min=2, max=16)},)


def test_dynamic_sizes_are_those_that_are_given() -> None:
    pte = lowered(Merged(), (torch.randn(2, 5, 4),), SHAPES)
    with pytest.raises(UnsupportedError, match="largest=True"):
        stepwell.read_pte(pte)
    for size in (2, 7, 16):
        x = torch.randn(2, size, 4)
        program = stepwell.read_pte(pte, sizes={"forward": [x.shape]})
        torch.testing.assert_close(program.run(x)[0], Merged()(x), rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_file_of_dynamic_sizes_is_validated_at_several() -> None:
    x = torch.randn(2, 5, 4)
    exported = torch.export.export(Merged(), (x,), dynamic_shapes=SHAPES)
    found = validate(lowered(Merged(), (x,), SHAPES), exported)
    assert found.ok and "sizes" in str(found), str(found)


def test_damaged_payload_is_refused() -> None:
    _, data, _ = families()
    (method,) = read_container(data).methods
    payload = bytes(method.delegates[0].payload)
    for end in range(0, len(payload), max(1, len(payload) // 40)):
        with pytest.raises(ParseFailure):
            read_graph(payload[:end])


def test_flipped_bytes_raise_no_other_error() -> None:
    _, data, _ = families()
    start = data.index(b"VH00") - 4
    draw = random.Random(0)
    read = refused = 0
    for _ in range(60):
        damaged = bytearray(data)
        damaged[start + draw.randrange(3000)] ^= 1 << draw.randrange(8)
        try:
            stepwell.read_pte(damaged)
            read += 1
        except StepwellError:
            refused += 1
    assert read and refused
