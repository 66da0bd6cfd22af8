"""What engines do with special values, as measured, and who uses it."""

import math
import sys
from pathlib import Path

import pytest
import torch
from eager import Model, lower
from eager import exported as exported_as_it_is
from sampled import sampled

import stepwell
import stepwell.dialects.xnnpack
from stepwell.ir.declared.engine_behavior import engine_behavior, engines

sys.path.insert(0, str(Path(__file__).parent))
from engine_classes import losses_by_engine
from forms import FORMS, Form, declared
from measuring import by_parts, judge
from measuring import exported as exported_forms
from planted_engine_losses import PLANTED, exported


def lowered(function: Model, *inputs: torch.Tensor) -> stepwell.Program:
    """A function's program of XNNPACK's nodes."""
    return lower(function, *inputs).program


def test_a_node_follows_the_engine_that_is_asked_for() -> None:
    program = lowered(torch.exp, torch.zeros(8))
    x = torch.tensor([math.nan, math.inf, -math.inf, 0.0, 1.0, 88.5, 89.0, -200.0])
    assert torch.equal(program.run(x)[0].nan_to_num(7), x.exp().nan_to_num(7))
    for engine in engines():
        (got,) = program.run(x, engine=engine)
        changes = engine_behavior("xnnpack.exp", "f32", engine).changes
        at_nan = [change.result for change in changes if math.isnan(change.operands[0][0])]
        assert [str(got[0].item())] == ([str(float(r)) for r in at_nan] or ["nan"])
        assert torch.equal(got[[2, 3, 4, 6]], x.exp()[[2, 3, 4, 6]])


def test_denormal_numbers_are_flushed_as_measured() -> None:
    program = lowered(torch.sqrt, torch.zeros(2))
    for engine in engines():
        assert program.run(torch.tensor([1e-40, 4.0]), engine=engine)[0].tolist() == [0.0, 2.0]


def test_a_result_is_flushed_only_where_it_is_denormal() -> None:
    program = lowered(torch.div, torch.zeros(3), torch.zeros(3))
    x, y = torch.tensor([[3e38, 1e38, 1e-30], [3e38, 2e38, 3e38]])
    for engine in engines():
        assert program.run(x, y, engine=engine)[0].tolist() == [1.0, 0.5, 0.0]


def test_a_result_at_a_limit_is_at_the_limit_of_the_node() -> None:
    x = torch.tensor([math.nan, 1.0, 8.0], dtype=torch.half)
    program = lowered(lambda x: (x + x).clamp(-3.0, 6.0), torch.zeros_like(x))
    for engine, nan in (("xnnpack/avx2", "-3.0"), ("xnnpack/neon", "nan")):
        assert [str(n) for n in program.run(x, engine=engine)[0].tolist()] == [nan, "2.0", "6.0"]


def test_a_report_says_of_each_node_on_which_cpus_it_makes_other_numbers() -> None:
    def lines(x: torch.Tensor) -> torch.Tensor:
        return x.sum(-1, keepdim=True).sin() + x.relu()

    program = exported_as_it_is(lines, torch.ones(2, 4))
    report = stepwell.lower(program, "xnnpack").report
    assert report.deviations == ()
    assert report.engine_losses == {
        "xnnpack.fully_connected f32": ("xnnpack/sse",),
        "xnnpack.sine f32": engines(),
    }
    assert "engine     other special values on xnnpack/sse: xnnpack.fully_connected f32" in str(
        report
    )
    assert not stepwell.lower(program, "tosa-1.0+fp").report.engine_losses


def test_an_engine_that_was_not_measured_is_refused() -> None:
    program = lowered(torch.exp, torch.zeros(2))
    with pytest.raises(stepwell.StepwellError, match="xnnpack/avx512"):
        program.run(torch.zeros(2), engine="xnnpack/altivec")


def test_a_program_without_nodes_of_the_engine_is_refused() -> None:
    program = stepwell.from_exported_program(exported("planted-cosh-by-exp"))
    with pytest.raises(stepwell.StepwellError, match="lower it first"):
        program.run(torch.zeros(4, 14), engine="xnnpack/avx512")


def test_a_node_without_an_entry_may_make_anything_of_a_nan() -> None:
    found = engine_behavior("xnnpack.of_tomorrow", "f32", engines()[0])
    assert not found.is_known
    assert not found.keeps([(0.0, 1.0, True)])
    assert not found.keeps([(0.0, 1.0, False)])


def test_what_an_operand_cannot_be_is_not_lost() -> None:
    found = [engine_behavior("xnnpack.exp", "f32", engine) for engine in engines()]
    assert all(behavior.keeps([(-10.0, 10.0, False)]) for behavior in found)
    assert not all(behavior.keeps([(-10.0, 10.0, True)]) for behavior in found)


@pytest.mark.parametrize("name", sampled(PLANTED, *list(PLANTED)[::3]))
def test_a_rewrite_that_loses_a_class_on_an_engine_is_named(name: str) -> None:
    program, rule = exported(name), PLANTED[name]()
    assert losses_by_engine(stepwell.from_exported_program(program), [rule])
    report = stepwell.lower(program, "xnnpack", lambda own: own.before("normalize", rule)).report
    reasons = [refusal.reason for refusal in report.refusals if refusal.rewrite == name]
    assert len(reasons) == 1 and " on xnnpack/" in reasons[0]


def test_a_loss_of_a_rewrite_is_listed_where_it_is_allowed() -> None:
    name = "planted-cosh-by-exp"
    lowering = stepwell.lower(
        exported(name),
        "xnnpack",
        lambda own: own.before("normalize", PLANTED[name]()),
        numerics="finite",
    )
    assert [taken.rewrite for taken in lowering.report.deviations] == [name]
    assert "xnnpack.exp on xnnpack/" in lowering.report.deviations[0].loses


AS_STOCK = frozenset(
    (
        "exp(x)",
        "log(x)",
        "rsqrt(x)",
        "sin(x)",
        "cos(x)",
        "sigmoid(x)",
        "silu(x)",
        "x * sigmoid(1.702 x)",
        "glu(x)",
        "swiglu",
        "maximum(x, y)",
        "minimum(x, y)",
        "maximum(x, weight)",
        "minimum(weight, x)",
        "logaddexp(x, y)",
        "std(x, -1)",
        "max_pool2d(image)",
        "max_pool2d(image, padded)",
        "avg_pool2d(image)",
        "avg_pool2d(image, inside)",
        "interpolate(bilinear)",
        "interpolate(bilinear, corners)",
        "log1p(exp(-|x|))",
    )
)
"""Forms whose node the stock flow makes too, with the same loss on the same engine."""
LIMITED = ("xnnpack/sse",)
"""Engines whose matrix kernels limit results, and lose a NaN (`docs/semantics.md`)."""


@pytest.mark.slow
def test_lowerings_lose_no_class_on_an_engine_but_as_the_stock_flow_does() -> None:
    families = [engine for engine in engines() if engine not in LIMITED]

    def run(some: list[Form]) -> list[torch.Tensor]:
        program = stepwell.lower(exported_forms(some, torch.float32), "xnnpack").program
        inputs = [list(form.inputs(torch.float32)) for form in some]
        outputs = [program.run(inputs, engine=engine) for engine in families]
        return [torch.stack(list(of)) for of in zip(*outputs, strict=True)]

    found = [
        made
        for start in range(0, len(FORMS), 40)
        for made in by_parts(FORMS[start : start + 40], run)
    ]
    worse: set[tuple[str, str]] = set()
    for form, made in zip(FORMS, found, strict=True):
        assert isinstance(made, torch.Tensor), (form.name, made)
        for engine, result in zip(families, made, strict=True):
            verdict = judge(result, None, form, torch.float32)
            if verdict is not None and bool(verdict.worse.any()):
                worse.add((form.name, engine))
    assert len({engine for _, engine in worse}) == len(families)
    allowed = AS_STOCK | {form.name for form in FORMS if declared(form.name, torch.float32)}
    assert {(name, engine) for name, engine in worse if name not in allowed} == set()
