"""`Inspector.calculate_numeric_gap` compares what a `.pte` of ours gives with the model itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import stepwell


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


def gap(lowered: Any, inputs: list[Any], folder: Path) -> Any:
    """The table of the stock Inspector, of a `.pte` that the stock runtime ran."""
    from executorch.devtools import Inspector
    from executorch.runtime import Runtime

    (folder / "m.pte").write_bytes(lowered.to_pte())
    record = lowered.to_etrecord()
    record.save(str(folder / "m.etrecord"))
    told = {"enable_etdump": True, "debug_buffer_size": 1 << 24}
    program: Any = Runtime.get().load_program(str(folder / "m.pte"), **told)
    program.load_method("forward").execute(inputs)
    program.write_etdump_result_to_file(str(folder / "m.etdp"), str(folder / "m.bin"))
    inspector = Inspector(
        etdump_path=str(folder / "m.etdp"),
        etrecord=str(folder / "m.etrecord"),
        debug_buffer_path=str(folder / "m.bin"),
    )
    return inspector, inspector.calculate_numeric_gap("L1")


@pytest.mark.parametrize("name", MODELS)
def test_the_gap_of_each_output_is_found_and_small(name: str, tmp_path: Path) -> None:
    made, shapes, outputs = MODELS[name]
    torch.manual_seed(0)
    model = made().eval()
    is_words = name == "words"
    inputs = [torch.randint(10, s) if is_words else torch.rand(s) * 0.9 for s in shapes]
    exported = torch.export.export(model, tuple(inputs))
    _, found = gap(stepwell.lower(exported, "xnnpack"), inputs, tmp_path)
    assert len(found) == outputs
    # A sum over all elements, of float kernels that round in another order.
    assert all(value < 1e-3 for (value,) in found["gap"])
    flat = torch.utils._pytree.tree_leaves(model(*inputs))
    wanted = sorted(y.double().abs().sum().item() for y in flat)
    for column in ("aot_intermediate_output", "runtime_intermediate_output"):
        sums = sorted(y.double().abs().sum().item() for y in found[column])
        assert sums == pytest.approx(wanted, rel=1e-3, abs=1e-4)


def test_a_gap_that_is_there_is_seen(tmp_path: Path) -> None:
    """The program's bias is another than the model's by 1, in each of 2 × 5 × 4 elements."""
    torch.manual_seed(0)
    model, inputs = nn.Linear(8, 4).eval(), [torch.rand(ROWS)]
    lowered = stepwell.lower(torch.export.export(model, tuple(inputs)), "xnnpack")
    lowered.to_pte()
    pte = stepwell.lower(torch.export.export(_raised(model), tuple(inputs)), "xnnpack").to_pte()

    class Other:
        to_etrecord = staticmethod(lowered.to_etrecord)
        to_pte = staticmethod(lambda: pte)

    _, found = gap(Other, inputs, tmp_path)
    ((value,),) = found["gap"]
    assert value == pytest.approx(40, rel=1e-4)


def _raised(model: nn.Linear) -> nn.Module:
    other = nn.Linear(8, 4).eval()
    with torch.no_grad():
        other.weight.copy_(model.weight)
        other.bias.copy_(model.bias + 1)
    return other


def test_events_within_a_delegate_still_lead_to_the_model(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3)).eval()
    inputs = [torch.rand(ROWS)]
    lowered = stepwell.lower(torch.export.export(model, tuple(inputs)), "xnnpack")
    inspector, _ = gap(lowered, inputs, tmp_path)
    events = [event for block in inspector.event_blocks for event in block.events]
    within = [event.op_types for event in events if event.is_delegated_op]
    assert [types for types in within if "linear.default" in types]
    assert all(any(event.stack_traces) for event in events if event.is_delegated_op)
