"""Scalar lifting on real models: all of the published result, and none of an attention's scales."""

from itertools import product
from typing import Any, cast

import pytest
import torch
from eager import EXACT, Function, assert_as_eager, lower
from rewrite_runs import applied, program_of
from torch.export import ExportedProgram, export

import stepwell
from deit import deit_small_depth2
from stepwell.dialects import aten
from stepwell.ir.core import WeightOp
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import History, parts_of, run_rewrites
from stepwell.translate.decompositions import constants
from stepwell.translate.lowerings.lowering import is_step, step
from stepwell.translate.rewrites.attention.recognize_attention import recognize_attention

LAYERS = 2


@pytest.fixture(scope="module")
def decomposed() -> ExportedProgram:
    module, inputs = deit_small_depth2()
    return export(module.eval(), inputs).run_decompositions()


def lift(program: Program, *, protect_attention: bool) -> tuple[int, History]:
    history = History()
    lifting = step(constants.lift_constant_scalar, protect_attention=protect_attention)
    return run_rewrites(program, (lifting,), history), history


def count(program: Program, cls: type) -> int:
    return sum(isinstance(op, cls) for op in program.module.walk())


def test_without_a_recognizer_every_scale_is_lifted(decomposed: ExportedProgram) -> None:
    program = stepwell.from_exported_program(decomposed)
    assert count(program, aten.MulScalar) == 2 * LAYERS
    applied, _ = lift(program, protect_attention=False)
    assert applied == 2 * LAYERS
    assert count(program, aten.MulScalar) == 0


def test_with_a_recognizer_to_come_no_attention_scale_is_lifted(
    decomposed: ExportedProgram,
) -> None:
    program = stepwell.from_exported_program(decomposed)
    applied, history = lift(program, protect_attention=True)
    assert applied == 0
    assert count(program, aten.MulScalar) == 2 * LAYERS
    assert all("attention" in record.reason for record in history.refusals.values())
    assert len(history.refusals) == 2 * LAYERS


def test_the_published_pipeline_leaves_no_scalar_and_makes_fewer_delegates() -> None:
    module, inputs = deit_small_depth2()
    exported = export(module.eval(), inputs)
    for program in (exported, exported.run_decompositions()):
        lowered = stepwell.lower(program, "xnnpack", stepwell.PIPELINES["xnnpack-published"])
        outside = lowered.report.outside
        assert not [name for name in outside if name.endswith(".Scalar") and "eq" not in name]
        # The published 62 → 50 of twelve layers is 12 → 10 of two; what stays is their guards.
        assert lowered.report.delegates <= 10
        assert outside["aten.where.self"] == LAYERS
        (output,), expected = lowered.run(*inputs), module(*inputs)
        torch.testing.assert_close(output, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", sorted(stepwell.PIPELINES))
def test_scalars_lifted_ahead_of_a_recognizer_spare_attention(name: str) -> None:
    steps = [held for whole in stepwell.PIPELINES[name].steps for held in (whole, *parts_of(whole))]
    recognizers = [i for i, held in enumerate(steps) if is_step(held, recognize_attention)]
    for index, held in enumerate(steps):
        is_lifting = is_step(held, constants.lift_constant_scalar)
        if is_lifting and recognizers and index < max(recognizers):
            assert cast(Any, held).protect_attention


BETWEEN = {
    "nothing": "%y = aten.clone.default(%x)",
    "expand": "%y = aten.expand.default(%x, [1, 2, 4, 8])",
    "views": "%a = aten.view.default(%x, [2, 4, 8]); %y = aten.view.default(%a, [1, 2, 4, 8])",
    "permutes": "%a = aten.permute.default(%x, [0, 2, 1, 3]);"
    " %y = aten.permute.default(%a, [0, 2, 1, 3])",
    "transposes": "%a = aten.transpose.int(%x, 2, 3); %y = aten.transpose.int(%a, 3, 2)",
    "casts": "%a = aten._to_copy.default(%x, dtype=f64); %y = aten._to_copy.default(%a, dtype=f32)",
    "slice": "%y = aten.slice.Tensor(%x, 0, 0, 1, 1)",
    "rotation": """
        %a = aten.slice.Tensor(%x, 3, 0, 4, 1); %b = aten.slice.Tensor(%x, 3, 4, 8, 1)
        %c = aten.neg.default(%b); %d = aten.cat.default([%c, %a], -1)
        %y = aten.add.Tensor(%x, %d)""",
    "split heads": "%a = aten.unsqueeze.default(%x, 2); %y = aten.squeeze.dim(%a, 2)",
}
"""What stands between a multiplier and QKᵀ; all keep the shape `[1, 2, 4, 8]`."""


def attention(scaled: str, between: str) -> str:
    """Attention with layout ops between a multiplier, of q, k or the scores, and the products."""
    scale = "%{0}s = aten.mul.Scalar(%{0}, 0.35355339)\n"
    text = "%q: f32[1, 2, 4, 8]; %k: f32[1, 2, 4, 8]; %v: f32[1, 2, 4, 8]\n"
    q, k, scores = "q", "k", "scores"
    if scaled in "qk":
        text += scale.format(scaled)
        text += BETWEEN[between].replace("%x", f"%{scaled}s") + "\n"
        q, k = ("y", "k") if scaled == "q" else ("q", "y")
    text += f"%t = aten.transpose.int(%{k}, -2, -1); %scores = aten.matmul.default(%{q}, %t)\n"
    if scaled == "scores":
        text, scores = text + scale.format("scores"), "scoress"
    text += f"%w = aten._softmax.default(%{scores}, -1, false)\n"
    return text + "%o = aten.matmul.default(%w, %v); %z = aten.mul.Scalar(%o, 3.0)"


@pytest.mark.parametrize(("scaled", "between"), [*product("qk", BETWEEN), ("scores", "nothing")])
def test_layout_between_a_scale_and_its_product_does_not_defeat_the_guard(
    scaled: str, between: str
) -> None:
    lifting = step(constants.lift_constant_scalar, protect_attention=True)
    done = applied(attention(scaled, between), lifting)
    assert done.count == 1, "the multiplication behind the attention is lifted, its scale is not"
    assert done.ops().count("aten.mul.Scalar") == 1
    assert any("attention" in reason for reason in done.reasons)


def test_a_lifted_number_is_a_constant_of_the_torch_program() -> None:
    program = program_of("%a = aten.mul.Scalar(%x: f32[3, 4], 0.3); %y = aten.sub.Scalar(%a, 2.5)")
    lift(program, protect_attention=False)
    back = program.to_exported_program()
    targets = [str(node.target) for node in back.graph.nodes if node.op == "call_function"]
    assert targets == ["aten.mul.Tensor", "aten.sub.Tensor"]
    kept = {**back.state_dict, **back.constants}
    assert sorted(float(tensor) for tensor in kept.values()) == [pytest.approx(0.3), 2.5]
    x = torch.randn(3, 4)
    assert torch.equal(back.module()(x), x * 0.3 - 2.5)
    assert torch.equal(stepwell.from_exported_program(back).run(x)[0], x * 0.3 - 2.5)


def test_equal_numbers_share_one_constant() -> None:
    text = "%y0: f32[4]\n"
    text += "\n".join(f"%y{i + 1} = aten.mul.Scalar(%y{i}, 0.5)" for i in range(5))
    done = applied(text, step(constants.lift_constant_scalar, protect_attention=False))
    assert done.count == 5
    assert count(done.program, WeightOp) == 1


def test_a_lifted_multiplication_outside_delegates_runs() -> None:
    # XNNPACK has no int32 multiply of this form: both stay with the runtime's kernels.
    model = Function(lambda x, n: (torch.relu(x * 0.7), n * 3))
    inputs = (torch.randn(4, 5), torch.arange(6, dtype=torch.int32).reshape(2, 3))
    lowered = lower(model, *inputs, pipeline=stepwell.PIPELINES["xnnpack-published"])
    assert lowered.report.outside.total() >= 1
    assert_as_eager(lowered, model, *inputs, **EXACT)
