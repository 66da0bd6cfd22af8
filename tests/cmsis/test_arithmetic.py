import math
import subprocess
import sys

import pytest
import torch
from executorch.backends.cortex_m.passes import passes_utils as stock
from hypothesis import given
from hypothesis import strategies as st

from stepwell.dialects.cmsis import arithmetic
from stepwell.dialects.cmsis.ops.softmax import softmax_parameters, softmax_row_is_safe
from stepwell.dialects.cmsis.target import CPUS, Isa, fully_connected_scratch, target
from stepwell.ir.diagnostics import UnsupportedError


@given(st.floats(1e-9, 1e6))
def test_a_multiplier_is_the_one_executorch_computes_and_within_half_a_unit(scale: float) -> None:
    ours = arithmetic.quantize_multiplier(scale)
    assert (ours.multiplier, ours.shift) == stock.quantize_multiplier_aot(scale)
    assert abs(ours.real / scale - 1) <= 2**-31


def test_a_mantissa_that_rounds_up_to_one_moves_into_the_shift() -> None:
    just_below = math.nextafter(1.0, 0.0)
    assert arithmetic.quantize_multiplier(just_below) == arithmetic.Multiplier(1 << 30, 1)


@given(st.floats(1e-6, 10.0))
def test_softmax_parameters_are_the_ones_executorch_computes(scale: float) -> None:
    from executorch.backends.cortex_m.passes.aten_to_cortex_m_pass import (
        _compute_softmax_params,
    )

    ours = softmax_parameters(scale)
    assert (ours.input.multiplier, ours.input.shift, ours.diff_min) == _compute_softmax_params(
        scale
    )


def test_kernel_sums_hold_the_bias_and_the_offsets() -> None:
    weight = torch.randint(-128, 128, (5, 7), dtype=torch.int8)
    bias = torch.randint(-1000, 1000, (5,), dtype=torch.int32)
    expected = 3 * (weight.int() + 2).sum(1) + bias
    assert torch.equal(arithmetic.kernel_sum(weight, bias, 3, 2), expected.reshape(1, 5).int())


def test_accumulator_bounds_are_reached_by_an_input_and_never_passed() -> None:
    weight = torch.randint(-128, 128, (4, 6))
    bias = torch.randint(-99, 99, (4,))
    low, high = arithmetic.accumulator_bounds(weight, bias, -100, 155)
    best = torch.where(weight > 0, 155, -100)
    worst = torch.where(weight > 0, -100, 155)
    assert torch.equal(high, (weight * best).sum(1) + bias)
    assert torch.equal(low, (weight * worst).sum(1) + bias)


def test_the_longest_softmax_row_that_cannot_overflow_is_511() -> None:
    assert softmax_row_is_safe(511)
    assert not softmax_row_is_safe(512)


CORES = {
    Isa.SCALAR: "cortex-m0 cortex-m0plus cortex-m3 cortex-m23",
    Isa.DSP: "cortex-m4 cortex-m7 cortex-m33 cortex-m35p",
    Isa.MVE: "cortex-m55 cortex-m85",
}


@pytest.mark.parametrize(
    ("cpu", "isa"), [(cpu, isa) for isa, cpus in CORES.items() for cpu in cpus.split()]
)
def test_each_cpu_has_the_instruction_set_cmsis_nn_resolves_it_to(cpu: str, isa: Isa) -> None:
    from executorch.backends.cortex_m.library import cmsis_nn

    member = getattr(cmsis_nn.CortexM, "M" + cpu.removeprefix("cortex-m").upper())
    assert cmsis_nn.resolve_backend(member).name == isa.name
    assert target(cpu).isa is isa
    assert cpu in CPUS


def test_buffer_sizes_are_known_where_nothing_else_was_imported() -> None:
    asked = (
        "from stepwell.dialects.cmsis.target import Isa, fully_connected_scratch as size;"
        "print(size(Isa.MVE, inner=64, outputs=10))"
    )
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True)
    assert done.stdout.strip() == "40", done.stderr


def test_a_core_can_be_asked_for_without_its_best_extension() -> None:
    assert target("cortex-m55+dsp").isa is Isa.DSP
    assert str(target("cortex-m55+dsp")) == "cortex-m55+dsp"
    assert str(target("cortex-m55+mve")) == "cortex-m55"


def test_an_extension_the_core_lacks_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="cortex-m4 has no mve"):
        target("cortex-m4+mve")
    with pytest.raises(UnsupportedError, match="cortex-m99 is not"):
        target("cortex-m99")


def test_only_mve_needs_scratch_for_a_fully_connected_layer() -> None:
    sizes = {isa: fully_connected_scratch(isa, inner=64, outputs=10) for isa in Isa}
    assert sizes == {Isa.PORTABLE: 0, Isa.SCALAR: 0, Isa.DSP: 0, Isa.MVE: 40}
