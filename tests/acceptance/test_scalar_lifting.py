"""Scalar lifting on real models: all of the published result, and none of an attention's scales."""

from __future__ import annotations

from itertools import product
from typing import Any, cast

import pytest
import torch
from torch.export import ExportedProgram, export

import stepwell
from deit import deit_small_depth2
from stepwell.dialects import aten
from stepwell.ir.core import WeightOp
from stepwell.ir.program import Program
from stepwell.ir.rewriting.cleanup import RemoveDeadCode
from stepwell.ir.rewriting.rewrite import History, parts_of, run_rewrites
from stepwell.translate.decompositions import constants
from stepwell.translate.lowerings.lowering import is_step, step
from stepwell.translate.rewrites.attention.recognize_attention import RecognizeAttention

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
    recognizers = [i for i, held in enumerate(steps) if isinstance(held, RecognizeAttention)]
    for index, held in enumerate(steps):
        is_lifting = is_step(held, constants.lift_constant_scalar)
        if is_lifting and recognizers and index < max(recognizers):
            assert cast(Any, held).protect_attention


# What stands between the multiplier and QKᵀ, by the axes it leaves the tensor with: each entry
# is (lines, value after). All keep the shape `[1, 2, 4, 8]`.
TYPE = "tensor<1x2x4x8xf32>"
BETWEEN = {
    "nothing": "",
    "expand": f"%{{n}} = aten.expand.default(%{{v}}, [1, 2, 4, 8]) : ({TYPE}) -> {TYPE}\n",
    "views": (
        f"%{{n}}a = aten.view.default(%{{v}}, [2, 4, 8]) : ({TYPE}) -> tensor<2x4x8xf32>\n"
        f"%{{n}} = aten.view.default(%{{n}}a, [1, 2, 4, 8]) : (tensor<2x4x8xf32>) -> {TYPE}\n"
    ),
    "permutes": (
        f"%{{n}}a = aten.permute.default(%{{v}}, [0, 2, 1, 3]) : ({TYPE}) -> tensor<1x4x2x8xf32>\n"
        f"%{{n}} = aten.permute.default(%{{n}}a, [0, 2, 1, 3]) : (tensor<1x4x2x8xf32>) -> {TYPE}\n"
    ),
    "transposes": (
        f"%{{n}}a = aten.transpose.int(%{{v}}, 2, 3) : ({TYPE}) -> tensor<1x2x8x4xf32>\n"
        f"%{{n}} = aten.transpose.int(%{{n}}a, 3, 2) : (tensor<1x2x8x4xf32>) -> {TYPE}\n"
    ),
    "casts": (
        f"%{{n}}a = aten._to_copy.default(%{{v}}, dtype=f64) : ({TYPE}) -> tensor<1x2x4x8xf64>\n"
        f"%{{n}} = aten._to_copy.default(%{{n}}a, dtype=f32) : (tensor<1x2x4x8xf64>) -> {TYPE}\n"
    ),
    "clone": f"%{{n}} = aten.clone.default(%{{v}}) : ({TYPE}) -> {TYPE}\n",
    "slice": f"%{{n}} = aten.slice.Tensor(%{{v}}, 0, 0, 1, 1) : ({TYPE}) -> {TYPE}\n",
    "rotation": (
        f"%{{n}}a = aten.slice.Tensor(%{{v}}, 3, 0, 4, 1) : ({TYPE}) -> tensor<1x2x4x4xf32>\n"
        f"%{{n}}b = aten.slice.Tensor(%{{v}}, 3, 4, 8, 1) : ({TYPE}) -> tensor<1x2x4x4xf32>\n"
        f"%{{n}}c = aten.neg.default(%{{n}}b) : (tensor<1x2x4x4xf32>) -> tensor<1x2x4x4xf32>\n"
        f"%{{n}}d = aten.cat.default([%{{n}}c, %{{n}}a], -1) : "
        f"(tensor<1x2x4x4xf32>, tensor<1x2x4x4xf32>) -> {TYPE}\n"
        f"%{{n}} = aten.add.Tensor(%{{v}}, %{{n}}d) : ({TYPE}, {TYPE}) -> {TYPE}\n"
    ),
    "split heads": (
        f"%{{n}}a = aten.unsqueeze.default(%{{v}}, 2) : ({TYPE}) -> tensor<1x2x1x4x8xf32>\n"
        f"%{{n}} = aten.squeeze.dim(%{{n}}a, 2) : (tensor<1x2x1x4x8xf32>) -> {TYPE}\n"
    ),
}


def attention(before_q: str, before_k: str, scaled: str) -> str:
    """Attention with layout ops between its multipliers and products; `scaled`: q, k or scores."""
    lines: list[str] = []

    def scale(value: str, type_: str, active: bool) -> str:
        if not active:
            return value
        lines.append(f"%{value}s = aten.mul.Scalar(%{value}, 0.35355339) : ({type_}) -> {type_}\n")
        return f"{value}s"

    def between(value: str, kind: str, name: str) -> str:
        text = BETWEEN[kind].format(v=value, n=name)
        lines.append(text)
        return name if text else value

    q = between(scale("q", TYPE, scaled == "q"), before_q, "q1")
    k = between(scale("k", TYPE, scaled == "k"), before_k, "k1")
    scores = "tensor<1x2x4x4xf32>"
    lines.append(
        f"%kt = aten.transpose.int(%{k}, -2, -1) : ({TYPE}) -> tensor<1x2x8x4xf32>\n"
        f"%scores = aten.matmul.default(%{q}, %kt) : ({TYPE}, tensor<1x2x8x4xf32>) -> {scores}\n"
    )
    last = scale("scores", scores, scaled == "scores")
    lines.append(
        f"%w = aten._softmax.default(%{last}, -1, false) : ({scores}) -> {scores}\n"
        f"%o = aten.matmul.default(%w, %v) : ({scores}, {TYPE}) -> {TYPE}\n"
        f"%y = aten.mul.Scalar(%o, 3.0) : ({TYPE}) -> {TYPE}\n"
    )
    return (
        f"func.func @forward(%q: {TYPE}, %k: {TYPE}, %v: {TYPE}) -> {TYPE} {{\n"
        + "".join(lines)
        + f"func.return %y : {TYPE}\n}}"
    )


@pytest.mark.parametrize(
    ("scaled", "between"), [*product(("q", "k"), BETWEEN), ("scores", "nothing")]
)
def test_layout_between_a_scale_and_its_product_does_not_defeat_the_guard(
    scaled: str, between: str
) -> None:
    text = attention(
        between if scaled == "q" else "nothing", between if scaled == "k" else "nothing", scaled
    )
    inputs = [torch.randn(1, 2, 4, 8) for _ in range(3)]
    program = stepwell.parse(text)
    before = program.run(*inputs)
    applied, history = lift(program, protect_attention=True)
    assert applied == 1, "the multiplication behind the attention is lifted, its scale is not"
    assert count(program, aten.MulScalar) == 1
    assert any("attention" in record.reason for record in history.refusals.values())
    torch.testing.assert_close(program.run(*inputs), before, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("type_", "op", "number", "reason"),
    [
        ("i32", "mul", "0.5", "promotes"),
        ("i32", "add", "1.5", "promotes"),
        ("f16", "mul", "0.3", "not exact"),
        ("bf16", "mul", "0.3", "not exact"),
    ],
)
def test_a_number_that_would_promote_or_round_stays(
    type_: str, op: str, number: str, reason: str
) -> None:
    result = "f32" if type_ == "i32" else type_
    program = stepwell.parse(
        f"func.func @forward(%x: tensor<3x{type_}>) -> tensor<3x{result}> {{\n"
        f"%y = aten.{op}.Scalar(%x, {number}) : (tensor<3x{type_}>) -> tensor<3x{result}>\n"
        f"func.return %y : tensor<3x{result}>\n}}"
    )
    applied, history = lift(program, protect_attention=False)
    assert applied == 0
    assert [reason in record.reason for record in history.refusals.values()] == [True]


def test_a_number_exact_in_half_precision_is_lifted() -> None:
    program = stepwell.parse(
        "func.func @forward(%x: tensor<3xf16>) -> tensor<3xf16> {\n"
        "%y = aten.mul.Scalar(%x, 0.25) : (tensor<3xf16>) -> tensor<3xf16>\n"
        "func.return %y : tensor<3xf16>\n}"
    )
    x = torch.randn(3).half()
    assert lift(program, protect_attention=False)[0] == 1
    assert torch.equal(program.run(x)[0], x * 0.25)


def test_a_lifted_number_is_a_constant_of_the_torch_program() -> None:
    program = stepwell.parse(
        "func.func @forward(%x: tensor<3x4xf32>) -> tensor<3x4xf32> {\n"
        "%a = aten.mul.Scalar(%x, 0.3) : (tensor<3x4xf32>) -> tensor<3x4xf32>\n"
        "%y = aten.sub.Scalar(%a, 2.5) : (tensor<3x4xf32>) -> tensor<3x4xf32>\n"
        "func.return %y : tensor<3x4xf32>\n}"
    )
    lift(program, protect_attention=False)
    back = program.to_exported_program()
    targets = [str(node.target) for node in back.graph.nodes if node.op == "call_function"]
    assert targets == ["aten.mul.Tensor", "aten.sub.Tensor"]
    kept = {**back.state_dict, **back.constants}
    assert sorted(float(tensor) for tensor in kept.values()) == [pytest.approx(0.3), 2.5]
    x = torch.randn(3, 4)
    assert torch.equal(back.module()(x), x * 0.3 - 2.5)
    again = stepwell.from_exported_program(back)
    assert torch.equal(again.run(x)[0], x * 0.3 - 2.5)


def test_equal_numbers_share_one_constant() -> None:
    text = "func.func @forward(%x: tensor<4xf32>) -> tensor<4xf32> {\n"
    value = "x"
    for index in range(5):
        text += f"%a{index} = aten.mul.Scalar(%{value}, 0.5) : (tensor<4xf32>) -> tensor<4xf32>\n"
        value = f"a{index}"
    program = stepwell.parse(text + f"func.return %{value} : tensor<4xf32>\n}}")
    assert lift(program, protect_attention=False)[0] == 5
    RemoveDeadCode().apply(program, History())
    assert count(program, WeightOp) == 1


def test_a_lifted_multiplication_outside_delegates_runs() -> None:
    # XNNPACK has no int32 multiply of this form: both stay with the runtime's kernels.
    class Mixed(torch.nn.Module):
        def forward(self, x: torch.Tensor, n: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return torch.relu(x * 0.7), n * 3

    inputs = (torch.randn(4, 5), torch.arange(6, dtype=torch.int32).reshape(2, 3))
    exported = export(Mixed(), inputs)
    lowered = stepwell.lower(exported, "xnnpack", stepwell.PIPELINES["xnnpack-published"])
    assert lowered.report.outside.total() >= 1
    for ours, theirs in zip(lowered.run(*inputs), Mixed()(*inputs), strict=True):
        assert torch.equal(ours, theirs)
