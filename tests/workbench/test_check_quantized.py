"""`check` on quantized programs: bounds in units of a scale, bounds that the values give."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pytest
import torch
from rewrite_runs import program_of
from short_ir import program_text
from xdsl.ir import Operation

import stepwell
from quantized import cnn_per_channel, cnn_per_tensor, mlp_dynamic
from stepwell.dialects import aten
from stepwell.dialects.quant import QuantizeCast, StorageCast
from stepwell.dialects.quant.types import storage_element
from stepwell.ir.program import Program
from stepwell.ir.rewriting.pipeline import Pipeline
from stepwell.ir.rewriting.rewrite import Bound, Rewrite, Rewriter
from stepwell.ir.types import with_element
from stepwell.ir.weights import WeightStore
from stepwell.translate.lowerings.lowering import step
from stepwell.translate.lowerings.xnnpack import quantized_layers
from stepwell.translate.rewrites.quant import TYPE_QUANTIZATION
from stepwell.validation.check import check
from stepwell.validation.engine import check_artifact
from stepwell.validation.recording import record
from stepwell.validation.result import CheckResult, StepVerdict
from stepwell.validation.samples import Sample


def only(*steps: Any) -> Pipeline:
    return Pipeline("planted", steps)


@dataclass(frozen=True)
class ShiftQuantized(Rewrite[Any]):
    """Wrong by `shift` units: every quantized value, once."""

    shift: int
    name: ClassVar[str] = "shift-quantized"
    anchors: ClassVar[tuple[type[Operation], ...]] = (QuantizeCast,)
    bound: ClassVar[Bound] = Bound(units=1, reason="rounded once")

    def match(self, op: Any, program: Program) -> Any:
        is_done = any(isinstance(use.operation, StorageCast) for use in op.result.uses)
        return None if is_done else op

    def build(self, match: Any, rw: Rewriter) -> None:
        made = match.result.type
        cast = rw.insert(QuantizeCast(match.input, made)).results[0]
        held = made.element_type.data
        stored = rw.insert(StorageCast(cast, with_element(made, storage_element(held))))
        given = stored.results[0]
        moved = rw.insert(aten.AddScalar.make(given, self.shift, result_types=[given.type]))
        rw.replace(match, [rw.insert(StorageCast(moved.results[0], made)).results[0]])


QUANTIZED = """
    %q = quant.qcast(%x: f32[64]) -> i8<0.5>[64]; %r = quant.dcast(%q)
    %y = aten.mul.Scalar(%r, 1000.0)"""


def shifted(shift: int) -> CheckResult:
    steps = only(ShiftQuantized(shift))
    return check(program_of(QUANTIZED), "xnnpack", steps, artifact=False)


def test_one_unit_is_accepted_where_it_is_declared_whatever_becomes_of_it_further_down() -> None:
    result = shifted(1)
    assert result.ok, str(result)
    (step,) = result.steps
    assert step.samples >= 3 and step.applications == 1
    assert "1 unit of its scale" in step.bound


def test_two_units_are_found_where_one_is_declared() -> None:
    result = shifted(2)
    assert result.findings[0].rewrite == "shift-quantized"
    assert result.findings[0].largest == 2
    assert "1 unit of its scale" in result.findings[0].bound


@pytest.mark.parametrize("make", [cnn_per_tensor, cnn_per_channel, mlp_dynamic])
def test_lowering_a_quantized_model_keeps_every_promise(make: Any) -> None:
    exported = make()
    result = check(exported, "xnnpack", inputs=exported.example_inputs[0])
    assert result.ok, str(result)
    (step,) = (step for step in result.steps if step.name == "lower-quantized")
    assert step.deviation > 0 and step.samples >= 3


def layer(bias: str) -> str:
    """A static linear layer whose input has steps of 1, products of 1/8, and the result of 1/32."""
    return f"""
        %t: weight "w" i8[3, 4]; %b: weight f32[3]
        %w = quant.scast(%t) -> i8<0.125>[3, 4]; %r = quant.dcast(%w)
        %q = quant.qcast(%f: f32[2, 4]) -> i8<1.0>[2, 4]; %x = quant.dcast(%q)
        %y = aten.linear.default(%x, %r{bias})
        %z = quant.qcast(%y) -> i8<0.03125>[2, 3]; %s = quant.dcast(%z)"""


def checked(text: str, rewrite: Rewrite[Any]) -> StepVerdict:
    """The verdict on one rewrite; weights ±1, and biases that lie between two steps."""
    weights = WeightStore()
    weights.add("w", torch.tensor([[1, -1, 1, 1], [1, 1, -1, 1], [-1, 1, 1, 1]]).char())
    weights.add("b", torch.tensor([0.3, -0.2, 0.19]))
    source = Program(program_text(text), weights)
    (verdict,) = check(source, "xnnpack", only(rewrite), artifact=False).steps
    assert verdict.applications == 1 and verdict.samples >= 3
    return verdict


def test_a_bias_in_coarse_steps_moves_a_result_by_the_units_derived_for_it() -> None:
    verdict = checked(layer(", %b"), step(quantized_layers.quantized_linear))
    assert verdict.ok and "3 units of its scale" in verdict.bound

    @dataclass(frozen=True)
    class Fixed(type(step(quantized_layers.quantized_linear))):
        """With the class's one unit instead of what the values give."""

        def bound_at(self, match: Any, value: Any) -> Bound:
            return self.bound

    assert not checked(layer(", %b"), Fixed()).ok


def test_without_a_bias_one_unit_suffices_at_any_scale() -> None:
    verdict = checked(layer(""), step(quantized_layers.quantized_linear))
    assert verdict.ok and "1 unit of its scale" in verdict.bound


def test_a_dynamic_layer_with_another_weight_is_found() -> None:
    @dataclass(frozen=True)
    class Doubled(type(step(quantized_layers.dynamic_linear))):
        """Wrong: the node gives twice its result."""

        def build(self, match: Any, rw: Rewriter) -> None:
            made = match.op.results[0].type
            given = rw.insert(type(match.op).make(*match.op.operands, result_types=[made]))
            twice = rw.insert(aten.MulScalar.make(given.results[0], 2.0, result_types=[made]))
            rw.replace(match.op, [twice.results[0]])

        def match(self, op: Any, program: Program) -> Any:
            is_done = any(isinstance(use.operation, aten.MulScalar) for use in op.results[0].uses)
            return None if is_done else super().match(op, program)

    exported = mlp_dynamic()
    steps = only(TYPE_QUANTIZATION, Doubled())
    result = check(exported, "xnnpack", steps, inputs=exported.example_inputs[0], artifact=False)
    assert result.findings[0].rewrite == "lower-dynamic-linear"


ROUNDED = """
    %e = aten.exp.default(%x: f32[65536])
    %q = quant.qcast(%e) -> i8<0.125:-128>[65536]; %r = quant.dcast(%q)"""


def test_an_engine_may_round_what_lies_on_the_edge_either_way_and_nothing_else() -> None:
    lowered = stepwell.lower(program_of(ROUNDED), "xnnpack")
    func = lowered.program.method()
    x = torch.randn(65536, generator=torch.Generator().manual_seed(0))
    sample = Sample("random", (x,), True)
    recordings = {"forward": [record(func, lowered.program.weights, sample)]}
    (exact,) = recordings["forward"][0].outcome.outputs

    def verdict(moved: torch.Tensor) -> bool:
        target = replace(lowered.target, runner=lambda a, inputs, method: (moved,))
        ((found,), _, _) = check_artifact(target, lowered.program, recordings, {})
        return found.ok

    on_the_edge = exact.clone()
    on_the_edge[7] += 0.125
    assert verdict(exact) and verdict(on_the_edge)
    assert not verdict(torch.zeros_like(exact)) and not verdict(exact * 1.5)
