"""Random programs with state, with dynamic sizes and in int8 keep their meaning to the artifact."""

from __future__ import annotations

import copy
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, note, settings

import stepwell
from quantized import quantize
from stepwell.backends.executorch.running.runner import PteSession
from stepwell.ir.rewriting.rewrite import Bound
from stepwell.validation.compare import differs

sys.path.insert(0, str(Path(__file__).parent))
from kinds import Layers, Sized, WithState, layered, sized, stateful

KERNELS = Bound(1e-4, 2e-5, "float kernels reassociate and approximate")
EXACT = Bound(1e-6, 1e-7)
few = settings(max_examples=4, suppress_health_check=list(HealthCheck))
many = settings(suppress_health_check=list(HealthCheck))


def agree(got: Any, wanted: torch.Tensor, bound: Bound) -> None:
    difference = differs(wanted, got, bound, against="tensor")
    assert difference is None, str(difference)


def state_survives(module: WithState, calls: list[torch.Tensor]) -> None:
    """Three calls: outputs, and what is left in an input that is written to."""
    note(" ".join(module.words))
    exported = torch.export.export(copy.deepcopy(module), (calls[0].clone(),))
    program = stepwell.from_exported_program(exported)
    again = stepwell.parse(str(program), program.weights)
    lowered = stepwell.lower(program, "xnnpack")
    sessions = [program.start(), again.start(), lowered.program.start()]
    artifact = PteSession.load(lowered.to_pte())
    for call in calls:
        given_ = call.clone()
        wanted = module(given_)
        for session, bound in zip(sessions, (EXACT, EXACT, KERNELS), strict=True):
            agree(session.run(call.clone())[0], wanted, bound)
        written = call.clone()
        agree(artifact.run(written)[0], wanted, KERNELS)
        agree(written, given_, KERNELS)


def sizes_survive(drawn: Sized) -> None:
    """One program and one artifact, at every size."""
    note(" ".join(drawn.words))
    rows = torch.export.Dim("rows", min=3, max=12)
    example = torch.randn(drawn.sizes[0], drawn.width)
    exported = torch.export.export(drawn.module, (example,), dynamic_shapes=({0: rows},))
    program = stepwell.from_exported_program(exported)
    program.verify()
    again = stepwell.parse(str(program), program.weights)
    assert str(again) == str(program)
    lowered = stepwell.lower(program, "xnnpack")
    artifact = PteSession.load(lowered.to_pte())
    for size in drawn.sizes:
        x = torch.randn(size, drawn.width)
        wanted = drawn.module(x)
        agree(again.run(x)[0], wanted, EXACT)
        agree(lowered.program.run(x)[0], wanted, KERNELS)
        agree(artifact.run(x)[0], wanted, KERNELS)


def integers_survive(module: Layers, inputs: tuple[torch.Tensor, ...], target: str) -> None:
    """Every application of every rewrite within its bound, and the artifact on its engine."""
    note(" ".join(module.words))
    exported = quantize(module, inputs, **({"per_channel": True} if "cortex" in target else {}))
    program = stepwell.from_exported_program(exported)
    agree(program.run(*inputs)[0], exported.module()(*inputs), EXACT)
    result = stepwell.check(program, target, inputs=inputs)
    assert result.ok, str(result)


@few
@given(stateful())
def test_state_survives_to_the_runtime(drawn: tuple[WithState, list[torch.Tensor]]) -> None:
    state_survives(*drawn)


@few
@given(sized())
def test_dynamic_sizes_survive_to_the_runtime(drawn: Sized) -> None:
    sizes_survive(drawn)


@settings(few, max_examples=2)
@given(layered())
def test_int8_survives_xnnpack(drawn: Any) -> None:
    integers_survive(drawn[0], drawn[1], "xnnpack")


@pytest.mark.slow
@many
@given(stateful())
def test_state_survives_in_many_programs(drawn: tuple[WithState, list[torch.Tensor]]) -> None:
    state_survives(*drawn)


@pytest.mark.slow
@many
@given(sized())
def test_dynamic_sizes_survive_in_many_programs(drawn: Sized) -> None:
    sizes_survive(drawn)


@pytest.mark.slow
@many
@given(layered())
def test_int8_survives_xnnpack_in_many_programs(drawn: Any) -> None:
    integers_survive(drawn[0], drawn[1], "xnnpack")


@pytest.mark.slow
@many
@given(layered())
def test_int8_survives_cortex_m_in_many_programs(drawn: Any) -> None:
    integers_survive(drawn[0], drawn[1], "cortex-m55")


@pytest.mark.slow
@many
@given(layered())
def test_int8_survives_tosa_in_many_programs(drawn: Any) -> None:
    integers_survive(drawn[0], drawn[1], "tosa-1.0+fp+int")
