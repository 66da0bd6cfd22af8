"""Element types that kernels refuse are known before the program runs, and are what they refuse."""

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from eager import EXACT, Function, Model, assert_as_eager, lower
from rewrite_runs import program_of

from stepwell.backends.executorch.kernels.kernel_calls import (
    EMPTY_RESULT,
    REFUSED,
    SITUATIONS,
    kernel_limit,
)
from stepwell.backends.executorch.kernels.kernel_tables import LLM, QUANTIZED, RUNTIME
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.diagnostics import UnsupportedError

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

from generate_kernel_dtypes import is_limit, probes, verdicts


def test_most_kernels_are_probed_and_every_refusal_is_of_a_kernel() -> None:
    probed = {probe.kernel for probe in probes()}
    assert len(probed) > 180
    assert REFUSED.keys() <= probed <= {*RUNTIME, *QUANTIZED, *LLM}


@pytest.mark.usefixtures("forked")
def test_a_sample_of_the_table_is_what_the_runtime_says() -> None:
    """One process probes calls of every type and calls at the edges of what a kernel takes."""
    every = probes()
    usual = [i for i, probe in enumerate(every) if not probe.situation]
    refused = [i for i in usual if every[i].kernel in REFUSED]
    plain = [i for i in refused if every[i].kernel not in QUANTIZED]
    quantized = [i for i in refused if every[i].kernel in QUANTIZED]
    limited = {kernel for stated in SITUATIONS.values() for kernel in stated}
    edges = [i for i, probe in enumerate(every) if probe.situation]
    near = [i for i in edges if every[i].kernel in limited]
    of_types = {*usual[::97], *plain[::3], *quantized[::97]}
    told = list(verdicts(sorted(of_types.union(edges[::211], near[::29]))))
    assert len({i for i, _, _, _ in told} & of_types) > 20
    assert {situation for _, situation, _, _ in told} & SITUATIONS.keys()
    for index, situation, text, verdict in told:
        kernel = every[index].kernel
        of_type = _stated(REFUSED.get(kernel, {}), text)
        if not situation:
            assert verdict == of_type, (every[index], text)
        elif verdict != "runs" and is_limit(situation, text):
            # Another call of the same situation may be the one that goes wrong.
            of_edge = _stated(SITUATIONS.get(situation, {}).get(kernel, {}), text)
            assert (of_type, of_edge) != ("runs", "runs"), (every[index], text)


def _stated(table: dict[str, str], text: str) -> str:
    return next((v for v, texts in table.items() if text in texts.split(", ")), "runs")


@pytest.mark.parametrize(
    ("function", "x"),
    [
        (lambda x: x.log_softmax(-1), torch.randn(2, 3, dtype=torch.float64)),
        (torch.logit, torch.rand(2, 3, dtype=torch.float16) * 0.8 + 0.1),
    ],
    ids=["log_softmax f64", "logit f16"],
)
def test_a_type_that_a_kernel_refuses_is_decomposed_or_refused_before_it_runs(
    function: Model, x: torch.Tensor
) -> None:
    lowered = lower(function, x)
    try:
        assert lowered.to_pte()
    except UnsupportedError as error:
        assert "element types" in str(error)
        return
    assert_as_eager(lowered, function, x, rtol=2e-3, atol=2e-3)


def test_the_type_that_runs_is_not_refused() -> None:
    lowered: Any = lower(lambda x: x.log_softmax(-1), torch.randn(2, 3))
    for op in lowered.program.module.walk():
        if op.name.startswith("aten."):
            assert kernel_limit(op) is None


@pytest.mark.parametrize("dtype", [torch.uint16, torch.uint64, torch.float8_e4m3fn])
def test_what_kernels_have_no_code_for_is_copied_or_refused_before_it_runs(
    dtype: torch.dtype,
) -> None:
    def expanded(x: torch.Tensor) -> torch.Tensor:
        return x[:, 1:].unsqueeze(0).expand(2, 3, 3)

    x = torch.arange(12.0).view(3, 4).to(dtype)
    (copied,) = lower(expanded, x).run(x)
    assert copied.dtype == dtype
    assert torch.equal(copied.float(), expanded(x).float())
    with pytest.raises(UnsupportedError, match=r"aten.permute.default: its kernel does not take"):
        lower(lambda x: x.permute(1, 0), x).to_pte()


@pytest.mark.parametrize("axes", [(1,), (1, 2)])
def test_a_crop_of_symbolic_size_is_a_slice(axes: tuple[int, ...]) -> None:
    x = torch.ones(6, 7, 5, dtype=torch.int8)
    dynamic = {axis: torch.export.Dim.AUTO(max=32) for axis in axes}
    pad = Function(lambda x: torch.nn.functional.pad(x, [2, 0, -2, 3]))
    lowered = lower(pad, x, dynamic=dynamic)
    for length in (2, 3, 7, 32):
        shape = (6, length, 5 if axes == (1,) else length)
        given = torch.randint(-128, 127, shape, dtype=torch.int8)
        assert_as_eager(lowered, pad, given, **EXACT)


@pytest.mark.parametrize("axes", [(), (1,), (3, 1)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64])
def test_a_roll_of_symbolic_size_runs_along_all_axes_and_along_some(
    axes: tuple[int, ...], dtype: torch.dtype
) -> None:
    x = torch.randn(4, 5, 1, 7).mul(9).to(dtype)
    roll = Function(lambda x: x.roll([-3] * max(len(axes), 1), axes))
    lowered = lower(roll, x, dynamic={1: torch.export.Dim.AUTO(max=9)})
    for given in (x, x[:, :2].contiguous()):
        assert_as_eager(lowered, roll, given, **EXACT)


@pytest.mark.parametrize(("batch", "limited"), [(2, False), (0, True)])
def test_a_result_is_empty_where_every_result_is(batch: int, limited: bool) -> None:
    """In evaluation batch norm's second and third result are empty always."""
    program = program_of(f"""
        %y, %a, %b = aten._native_batch_norm_legit_no_training.default(
            %x: f32[{batch}, 3, 4, 4], none, none, %m: f32[3], %v: f32[3], 0.1, 1.0e-5)""")
    (op,) = [op for op in program.module.walk() if isinstance(op, SchemaOp)]
    assert (EMPTY_RESULT in (kernel_limit(op) or "")) == limited
