"""Element types that kernels refuse are known before the program runs, and are what they refuse."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.export import export

import stepwell
from stepwell.backends.executorch.kernels.generate_kernel_dtypes import is_limit, probes, verdicts
from stepwell.backends.executorch.kernels.kernel_calls import kernel_limit
from stepwell.backends.executorch.kernels.kernel_dtypes import PROBED, REFUSED, SITUATIONS
from stepwell.backends.executorch.kernels.situations import EMPTY_RESULT
from stepwell.backends.executorch.kernels.stock import LLM, QUANTIZED, RUNTIME
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.diagnostics import UnsupportedError
from stepwell.ir.syntax.text import parse_module


def test_most_kernels_are_probed_and_every_refusal_is_of_a_kernel() -> None:
    assert len(PROBED) > 180
    assert REFUSED.keys() <= PROBED <= {*RUNTIME, *QUANTIZED, *LLM}


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


class LogSoftmax(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.log_softmax(x, -1)


class Logit(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.logit(x)


@pytest.mark.parametrize(
    ("module", "x"),
    [
        (LogSoftmax(), torch.randn(2, 3, dtype=torch.float64)),
        (Logit(), torch.rand(2, 3, dtype=torch.float16) * 0.8 + 0.1),
    ],
    ids=["log_softmax f64", "logit f16"],
)
def test_a_type_that_a_kernel_refuses_is_decomposed_or_refused_before_it_runs(
    module: nn.Module, x: torch.Tensor
) -> None:
    exported = export(module, (x,))
    lowered = stepwell.lower(exported, "xnnpack")
    try:
        data = lowered.to_pte()
    except UnsupportedError as error:
        assert "element types" in str(error)
        return
    assert data
    (found,) = lowered.run(x)
    torch.testing.assert_close(found, module(x), rtol=2e-3, atol=2e-3)


def test_the_type_that_runs_is_not_refused() -> None:
    program = stepwell.from_exported_program(export(LogSoftmax(), (torch.randn(2, 3),)))
    lowered: Any = stepwell.lower(program, "xnnpack")
    for op in lowered.program.module.walk():
        if op.name.startswith("aten."):
            assert kernel_limit(op) is None


@pytest.mark.parametrize("dtype", [torch.uint16, torch.uint64, torch.float8_e4m3fn])
def test_what_kernels_have_no_code_for_is_copied_or_refused_before_it_runs(
    dtype: torch.dtype,
) -> None:
    class Function(nn.Module):
        def __init__(self, permuted: bool) -> None:
            super().__init__()
            self.permuted = permuted

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.permute(1, 0) if self.permuted else x[:, 1:].unsqueeze(0).expand(2, 3, 3)

    x = torch.arange(12.0).view(3, 4).to(dtype)
    copied = stepwell.lower(export(Function(False), (x,)), "xnnpack").run(x)[0]
    assert copied.dtype == dtype
    assert torch.equal(copied.float(), Function(False)(x).float())
    with pytest.raises(UnsupportedError, match=r"aten.permute.default: its kernel does not take"):
        stepwell.lower(export(Function(True), (x,)), "xnnpack").to_pte()


@pytest.mark.parametrize("axes", [(1,), (1, 2)])
def test_a_crop_of_symbolic_size_is_refused_before_it_runs(axes: tuple[int, ...]) -> None:
    class Crop(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.pad(x, [2, 0, -2, 3])

    x = torch.ones(6, 7, 5, dtype=torch.int8)
    shapes = ({axis: torch.export.Dim.AUTO(max=32) for axis in axes},)
    with pytest.raises(UnsupportedError, match="crops nothing"):
        stepwell.lower(export(Crop(), (x,), dynamic_shapes=shapes), "xnnpack")


@pytest.mark.parametrize("axes", [(), (1,), (3, 1)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64])
def test_a_roll_of_symbolic_size_runs_along_all_axes_and_along_some(
    axes: tuple[int, ...], dtype: torch.dtype
) -> None:
    class Roll(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.roll([-3] * max(len(axes), 1), axes)

    x = torch.randn(4, 5, 1, 7).mul(9).to(dtype)
    shapes = ({1: torch.export.Dim.AUTO(max=9)},)
    lowered = stepwell.lower(export(Roll(), (x,), dynamic_shapes=shapes), "xnnpack")
    for given in (x, x[:, :2].contiguous()):
        assert torch.equal(lowered.run(given)[0], Roll()(given))


@pytest.mark.parametrize(("batch", "limited"), [(2, False), (0, True)])
def test_a_result_is_empty_where_every_result_is(batch: int, limited: bool) -> None:
    """In evaluation batch norm's second and third result are empty always."""
    x, vector, nothing = f"tensor<{batch}x3x4x4xf32>", "tensor<3xf32>", "tensor<0xf32>"
    types = f"({x}, {vector}, {vector}) -> ({x}, {nothing}, {nothing})"
    call = "aten._native_batch_norm_legit_no_training.default(%x, none, none, %m, %v, 0.1, 1.0e-5)"
    module = parse_module(f"""func.func @forward(%x: {x}, %m: {vector}, %v: {vector}) -> {x} {{
  %y, %a, %b = {call} : {types}
  func.return %y : {x}
}}
""")
    (op,) = [op for op in module.walk() if isinstance(op, SchemaOp)]
    assert (EMPTY_RESULT in (kernel_limit(op) or "")) == limited
