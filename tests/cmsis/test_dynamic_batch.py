"""A batch known only at run time: lowered, run at any size, written where operators resize."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.export import Dim

import stepwell
from stepwell.backends.cortex_m.emit import to_pte
from stepwell.backends.cortex_m.read import read_pte
from stepwell.dialects.cmsis.ops import QuantizedLinear
from stepwell.ir.diagnostics import InputMismatch, UnsupportedError
from stepwell.ir.rewriting.rewrite import History
from stepwell.translate.importer.from_torch import from_exported_program
from stepwell.translate.rewrites.sizes.pin_symbolic_sizes import PinSymbolicSizes

from .conftest import converted


def quantized(module: nn.Module, x: torch.Tensor) -> Any:
    sizes = ({0: Dim("batch", min=1, max=16)},)
    return converted(module, (x,), None, 0, sizes)


def mlp() -> nn.Module:
    torch.manual_seed(0)
    return mlp_of(12)


def mlp_of(features: int) -> nn.Module:
    layers = nn.Linear(features, 10), nn.ReLU(), nn.Linear(10, 8), nn.Sigmoid(), nn.Linear(8, 4)
    return nn.Sequential(*layers)


def test_kernel_sums_fold_and_the_program_runs_at_any_batch(lower: Any) -> None:
    exported = quantized(mlp(), torch.randn(4, 12))
    result = lower(exported)
    assert not result.floats
    linears = [op for op in result.program.module.walk() if isinstance(op, QuantizedLinear)]
    folded = [op.kernel_sum is not None for op in linears]
    assert folded == [lower.cpu == "cortex-m55"] * 3
    for batch in (1, 4, 16):
        result.check(torch.randn(batch, 12))


def test_bytes_are_refused_where_the_device_would_keep_the_planned_size(lower: Any) -> None:
    result = lower(quantized(mlp(), torch.randn(4, 12)))
    with pytest.raises(UnsupportedError, match="does not resize") as caught:
        to_pte(result.program)
    named = {problem.fact.split(":")[0] for problem in caught.value.problems}
    assert named == {"cmsis.quantized_linear", "cmsis.quantized_activation"}
    assert all(problem.help and 'sizes="max"' in problem.help for problem in caught.value.problems)


@pytest.mark.parametrize(("sizes", "batch"), [("max", 16), (3, 3)])
def test_a_pinned_batch_is_written_and_no_other_is_taken(
    lower: Any, sizes: Any, batch: int
) -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), mlp_of(64))
    exported = quantized(module, torch.randn(2, 3, 6, 6))
    lowered = stepwell.lower(exported, lower.cpu, sizes=sizes)
    assert not lowered.report.outside
    x = torch.randn(batch, 3, 6, 6)
    back = read_pte(lowered.to_pte())
    assert torch.equal(back.run(x)[0], lowered.program.run(x)[0])
    same_batch = from_exported_program(exported)
    PinSymbolicSizes.of(sizes).apply(same_batch, History())
    wanted = exported.module(check_guards=False)(x)
    assert torch.equal(same_batch.run(x)[0], wanted)
    unit = float(wanted.abs().max()) / 127
    assert float((back.run(x)[0] - wanted).abs().max()) <= 2.01 * unit
    with pytest.raises(InputMismatch, match=f"dimension 0 is 5, must be {batch}"):
        back.run(torch.randn(5, 3, 6, 6))


def test_operators_that_resize_are_written_with_the_bound_planned(lower: Any) -> None:
    class Flipped(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.flip([-1])

    exported = quantized(Flipped(), torch.randn(4, 6))
    result = lower(exported)
    data = to_pte(result.program)
    assert result.ops["cmsis.quantize_per_tensor"] == 1
    assert not result.floats
    back = read_pte(data)
    graph = exported.module(check_guards=False)
    for batch in (1, 5, 16):
        x = torch.randn(batch, 6)
        assert torch.equal(back.run(x)[0], result.program.run(x)[0])
        assert torch.equal(stepwell.lower(exported, lower.cpu).run(x)[0], graph(x))


def test_a_convolution_of_a_dynamic_batch_stays_a_right_float_and_says_why(lower: Any) -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU())
    exported = quantized(module, torch.randn(2, 3, 6, 6))
    result = lower(exported)
    assert any("known only at run time" in r.reason for r in result.refusals)
    graph = exported.module(check_guards=False)
    for batch in (1, 3):
        x = torch.randn(batch, 3, 6, 6)
        unit = float(graph(x).abs().max()) / 127
        assert float((result.program.run(x)[0] - graph(x)).abs().max()) <= 1.01 * unit
