"""Where a linear layer's bias is kept: every form, every kind of layer, right on its cores."""

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

from .conftest import ROWS, TOKENS, Net, graph, linear, net_of, parameter, pt2e


def shared_weight(bias: bool = False) -> nn.Module:
    net = Net(lambda s, x: s.a(x) + s.b(F.relu(x)), a=nn.Linear(12, 12), b=nn.Linear(12, 12))
    net.b.weight = net.a.weight
    if bias:
        net.b.bias = net.a.bias
    return net


LAYERS = {
    "plain": graph(ROWS, lambda s, x: s.a(x), a=linear(12, 7)),
    "no bias": graph(ROWS, lambda s, x: s.a(x), a=linear(12, 7, bias=False)),
    "one row": graph((12,), lambda s, x: s.a(x), a=linear(12, 7)),
    "tokens": graph(TOKENS, lambda s, x: s.a(x), a=linear(12, 7)),
    "shared weight": graph(ROWS, lambda s, x: s.a(x), a=shared_weight),
    "shared weight and bias": graph(ROWS, lambda s, x: s.a(x), a=lambda: shared_weight(True)),
    "weight used elsewhere": graph(ROWS, lambda s, x: s.a(x) + s.a.weight[0], a=linear(12, 12)),
    "x @ W": graph(ROWS, lambda s, x: x @ s.w, w=parameter(12, 7)),
    "W.t()": graph(ROWS, lambda s, x: F.linear(x, s.w.t(), s.b), w=parameter(12, 7),
        b=parameter(7)),
    "addmm": graph(ROWS, lambda s, x: torch.addmm(s.b, x, s.w), w=parameter(12, 7), b=parameter(7)),
    "after a reshape": graph(ROWS, lambda s, x: s.a(x.reshape(8, 6)), a=linear(6, 5)),
    "after a permute": graph(TOKENS, lambda s, x: s.a(x.permute(0, 2, 1)), a=linear(5, 3)),
}  # fmt: skip


def linears(program: Any) -> list[QuantizedLinear]:
    return [op for op in program.module.walk() if isinstance(op, QuantizedLinear)]


def build(name: str) -> tuple[nn.Module, torch.Tensor]:
    return net_of(LAYERS[name], 5)


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
    result = lower_for("cortex-m55")(pt2e(module, (x,), calibrations=0), bias_form="both")
    on_mve = result.program.run(x)[0]
    result.program.module.attributes[TARGET] = StringAttr("cortex-m4")
    assert torch.equal(result.program.run(x)[0], on_mve)
    result.check(x)


@pytest.mark.parametrize("name", LAYERS)
def test_both_single_forms_compute_the_same_bits(name: str, lower_for: Any) -> None:
    module, x = build(name)
    exported = pt2e(module, (x,), calibrations=0)
    forms = [lower_for(cpu)(exported).program.run(x)[0] for cpu in ("cortex-m55", "cortex-m4")]
    assert torch.equal(*forms)


@pytest.mark.parametrize(
    ("made_for", "read_on", "lacks"),
    [("cortex-m4", "cortex-m55", "no kernel_sum"), ("cortex-m55", "cortex-m4", "no bias")],
)
def test_a_form_that_the_core_does_not_read_is_refused(
    made_for: str, read_on: str, lacks: str, lower_for: Any
) -> None:
    module, x = build("plain")
    program = lower_for(made_for).module(module, x).program
    program.module.attributes[TARGET] = StringAttr(read_on)
    with pytest.raises(StepwellError, match=lacks):
        program.verify()


def test_sums_at_run_time_are_refused_because_the_operator_has_no_scratch(lower_for: Any) -> None:
    module, x = build("plain")
    result = lower_for("cortex-m4")(pt2e(module, (x,), calibrations=0), bias_form=BiasForm.RUN_TIME)
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
    exported = pt2e(module, (x,), calibrations=0)
    sizes = {
        form: sum(
            map(len, emit(lower_for("cortex-m55")(exported, bias_form=form).program).constants)
        )
        for form in ("kernel-sum", "both")
    }
    assert sizes["both"] - sizes["kernel-sum"] == 7 * 4
