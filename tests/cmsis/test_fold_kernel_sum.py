"""Where a linear layer's bias is kept: every form, every kind of layer, right on its cores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from xdsl.dialects.builtin import StringAttr

from stepwell.backends.cortex_m.emit import emit
from stepwell.dialects.cmsis.ops import QuantizedLinear
from stepwell.dialects.cmsis.ops.base import TARGET
from stepwell.ir.core import WeightOp
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.dtypes import i32
from stepwell.ir.types import element
from stepwell.translate.pt2e.cortex_m_quantizer import CortexMQuantizer
from stepwell.translate.rewrites.cmsis import BiasForm


class Net(nn.Module):
    def __init__(self, forward: Callable[..., torch.Tensor], **layers: Any) -> None:
        super().__init__()
        for name, layer in layers.items():
            setattr(self, name, layer)
        self.function = forward

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(self, x)


def shared_weight(bias: bool = False) -> nn.Module:
    net = Net(lambda s, x: s.a(x) + s.b(F.relu(x)), a=nn.Linear(12, 12), b=nn.Linear(12, 12))
    net.b.weight = net.a.weight
    if bias:
        net.b.bias = net.a.bias
    return net


def parameter(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.randn(shape) * 0.3)


LAYERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "plain": (lambda: nn.Linear(12, 7), (4, 12)),
    "no bias": (lambda: nn.Linear(12, 7, bias=False), (4, 12)),
    "one row": (lambda: nn.Linear(12, 7), (12,)),
    "tokens": (lambda: nn.Linear(12, 7), (2, 5, 12)),
    "shared weight": (shared_weight, (4, 12)),
    "shared weight and bias": (lambda: shared_weight(True), (4, 12)),
    "weight used elsewhere": (
        lambda: Net(lambda s, x: s.a(x) + s.a.weight[0], a=nn.Linear(12, 12)),
        (4, 12),
    ),
    "x @ W": (lambda: Net(lambda s, x: x @ s.w, w=parameter(12, 7)), (4, 12)),
    "W.t()": (
        lambda: Net(lambda s, x: F.linear(x, s.w.t(), s.b), w=parameter(12, 7), b=parameter(7)),
        (4, 12),
    ),
    "addmm": (
        lambda: Net(lambda s, x: torch.addmm(s.b, x, s.w), w=parameter(12, 7), b=parameter(7)),
        (4, 12),
    ),
    "after a reshape": (
        lambda: Net(lambda s, x: s.a(x.reshape(8, 6)), a=nn.Linear(6, 5)),
        (4, 12),
    ),
    "after a permute": (
        lambda: Net(lambda s, x: s.a(x.permute(0, 2, 1)), a=nn.Linear(5, 3)),
        (2, 5, 12),
    ),
}


def linears(program: Any) -> list[QuantizedLinear]:
    return [op for op in program.module.walk() if isinstance(op, QuantizedLinear)]


def build(name: str) -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(5)
    make, shape = LAYERS[name]
    return make(), torch.randn(shape)


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("cpu", ["cortex-m55", "cortex-m4", "cortex-m0"])
def test_a_layer_keeps_what_its_core_reads_and_nothing_else(
    name: str, cpu: str, lower_for: Any
) -> None:
    module, x = build(name)
    result = lower_for(cpu).module(module, x)
    assert not result.floats
    result.check(x)
    for op in linears(result.program):
        if cpu == "cortex-m55":
            assert op.kernel_sum is not None and op.bias is None
        else:
            assert op.kernel_sum is None
    named = [op for op in result.program.module.walk() if isinstance(op, WeightOp)]
    integers = [op for op in named if element(op.result.type) == i32]
    assert len(integers) <= len(linears(result.program)), "a replaced constant is still named"


@pytest.mark.parametrize("name", LAYERS)
def test_the_form_with_both_is_right_on_every_core(name: str, lower_for: Any) -> None:
    module, x = build(name)
    result = lower_for("cortex-m55")(quantize(module, x), bias_form="both")
    on_mve = result.program.run(x)[0]
    result.program.module.attributes[TARGET] = StringAttr("cortex-m4")
    assert torch.equal(result.program.run(x)[0], on_mve)
    result.check(x)


@pytest.mark.parametrize("name", LAYERS)
def test_both_single_forms_compute_the_same_bits(name: str, lower_for: Any) -> None:
    module, x = build(name)
    exported = quantize(module, x)
    forms = [lower_for(cpu)(exported).program.run(x)[0] for cpu in ("cortex-m55", "cortex-m4")]
    assert torch.equal(*forms)


def test_a_bias_form_program_is_refused_on_mve(lower_for: Any) -> None:
    module, x = build("plain")
    program = lower_for("cortex-m4").module(module, x).program
    program.module.attributes[TARGET] = StringAttr("cortex-m55")
    with pytest.raises(StepwellError, match="no kernel_sum"):
        program.verify()


def test_a_kernel_sum_program_is_refused_on_dsp(lower_for: Any) -> None:
    module, x = build("plain")
    program = lower_for("cortex-m55").module(module, x).program
    program.module.attributes[TARGET] = StringAttr("cortex-m4")
    with pytest.raises(StepwellError, match="no bias"):
        program.verify()


def test_sums_at_run_time_are_refused_because_the_operator_has_no_scratch(lower_for: Any) -> None:
    module, x = build("plain")
    result = lower_for("cortex-m4")(quantize(module, x), bias_form=BiasForm.RUN_TIME)
    assert any("no scratch operand" in r.reason for r in result.refusals)


@pytest.mark.parametrize("cpu", ["cortex-m55", "cortex-m4"])
@pytest.mark.parametrize("name", ["plain", "no bias", "one row", "tokens"])
def test_a_scale_for_each_row_lowers_exactly_to_a_pointwise_convolution(
    name: str, cpu: str, lower_for: Any, quantized: Any
) -> None:
    module, x = build(name)
    exported = quantized(module, (x,), CortexMQuantizer(per_channel_linear=True))
    result = lower_for(cpu)(exported)
    result.check(x)
    assert result.ops["cmsis.quantized_conv2d_nhwc"] == 1
    assert result.ops["cmsis.quantized_linear"] == 0
    assert not result.floats


def test_the_sums_take_the_place_of_the_bias_in_the_bytes(lower_for: Any) -> None:
    module, x = build("plain")
    exported = quantize(module, x)
    sizes = {
        form: sum(
            map(len, emit(lower_for("cortex-m55")(exported, bias_form=form).program).constants)
        )
        for form in ("kernel-sum", "both")
    }
    assert sizes["both"] - sizes["kernel-sum"] == 7 * 4


def quantize(module: nn.Module, x: torch.Tensor) -> Any:
    from torch.export import export
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    graph = export(module.eval(), (x,), strict=False).module(check_guards=False)
    prepared = prepare_pt2e(graph, CortexMQuantizer())
    prepared(x)
    return export(convert_pt2e(prepared), (x,), strict=False)
