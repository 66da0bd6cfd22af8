"""`check` and contracts name a rewrite whose new nodes lose special values on a family of CPUs."""

import sys
from collections import Counter
from pathlib import Path

import pytest
import torch
from contract_driver import documented, families_for, steps_of
from eager import exported as exported_of
from sampled import sampled

import stepwell
from stepwell.dialects import aten
from stepwell.ir.context import Context
from stepwell.ir.declared.bounds import roundings
from stepwell.ir.declared.engine_behavior import engines
from stepwell.ir.rewriting.pipeline import Pipeline, exact_ops
from stepwell.program import from_exported_program
from stepwell.targets.table import find_target
from stepwell.translate.decompositions.values import Value
from stepwell.translate.lowerings.lowering import lowers, step
from stepwell.translate.rules import read_rules
from stepwell.validation.check import check
from stepwell.validation.checked import Checked
from stepwell.validation.contracts.draft import draft_of
from stepwell.validation.contracts.trial import try_variant
from stepwell.validation.result import CheckResult

sys.path.insert(0, str(Path(__file__).parent))
from forms import FORMS
from measuring import exported as exported_forms
from planted_engine_losses import PLANTED, exported


@lowers("aten.cosh.default", to="aten", bound=roundings("an exp"), sample=("2x3xf32",))
def cosh_by_exp(x: Value) -> Value:
    growing, falling = x.call(aten.ExpDefault), x.call(aten.NegDefault).call(aten.ExpDefault)
    return growing.call(aten.AddTensor, falling).call(aten.MulScalar, 0.5)


COSH = Pipeline("experiment", (step(cosh_by_exp),))
EXAMPLE = """
func.func @forward(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
    %y = aten.cosh.default(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>
    func.return %y : tensor<2x3xf32>
}
"""
OF_NAN = "xnnpack.exp makes 0 of NaN: the replacement gives 0 for NaN, not NaN"
AT_89 = "as in PyTorch's arithmetic: the replacement gives inf for 89.1, not 2.48089e+38"
EARLY = "xnnpack.exp makes inf of 88.6: the replacement gives inf for 88.6, not 1.50474e+38"


def of_cosh(**options: object) -> CheckResult:
    return check(exported("planted-cosh-by-exp"), "xnnpack", COSH, artifact=False, **options)


@pytest.mark.parametrize("engine", engines())
def test_check_names_what_an_experiment_loses_on_an_engine(engine: str) -> None:
    """On whatever CPU this runs; `xnnpack.exp` of NEON keeps a NaN."""
    found = [str(f) for f in of_cosh(engine=engine).findings if f.step == "cosh-by-exp"]
    said = {
        text for text in (OF_NAN, AT_89, EARLY) if any(f"on {engine} {text}" in f for f in found)
    }
    assert said >= {AT_89, EARLY}, found
    assert (OF_NAN in said) == ("neon" not in engine), found
    assert all("aten.cosh.default" in text and "\n  at eager.py:" in text for text in found)


def test_where_activations_are_finite_an_overflow_is_still_a_finding() -> None:
    found = str(of_cosh(engine="xnnpack/avx2", numerics="finite").findings)
    assert EARLY in found and "NaN" not in found


def test_without_an_engine_check_says_that_the_experiment_was_left_out() -> None:
    result = of_cosh()
    assert result.ok and any(
        "cosh-by-exp at " in line and " of NaN" in line for line in result.skipped
    )


def test_a_contract_names_the_pass_its_claim_the_input_and_every_family() -> None:
    verdict = try_variant((step(cosh_by_exp),), draft_of(EXAMPLE), engines=engines())
    assert verdict.outcome == "wrong"
    claim = "cosh-by-exp at aten.cosh.default claims the classes of PyTorch's numbers; on NaN: "
    where = "on xnnpack/avx, xnnpack/avx2, xnnpack/avx512, xnnpack/sse "
    assert verdict.why == claim + where + OF_NAN


def test_lower_with_a_check_on_an_engine_refuses_the_experiment() -> None:
    with pytest.raises(stepwell.StepwellError, match=r"check: cosh-by-exp: .*makes 0 of NaN"):
        stepwell.lower(exported("planted-cosh-by-exp"), "xnnpack", COSH, check="xnnpack/avx2")


@pytest.mark.parametrize("name", PLANTED)
def test_check_names_each_planted_rewrite_on_an_engine(name: str) -> None:
    pipeline = Pipeline("planted", (PLANTED[name](),))
    found = [
        finding.what
        for engine in ("xnnpack/avx2", "xnnpack/neon")
        for finding in check(
            exported(name), "xnnpack", pipeline, artifact=False, engine=engine
        ).findings
    ]
    assert any(" makes " in what and "on xnnpack/" in what for what in found), found


def test_an_engine_of_another_target_is_refused() -> None:
    with pytest.raises(stepwell.StepwellError, match="runs no programs of target tosa"):
        check(exported("planted-cosh-by-exp"), "tosa-1.0+fp", engine="xnnpack/avx2")


def test_rewrites_of_other_targets_are_tried_on_no_engine() -> None:
    names = list(documented())
    assert families_for(steps_of("canonicalize.powers: power-to-root")) == engines()
    assert any(not families_for(steps_of(name)) for name in names if name.startswith("tosa."))


OF_INTEGERS = """
rule cosh-of-integers-by-exp
    Its operand is no float.
Before:
    %y = aten.cosh.default(%x) : (tensor<$*S x i64>) -> tensor<$*S x f32>
After:
    %f = aten._to_copy.default(%x, dtype=f32) : … -> tensor<$*S x f32>
    %y = aten.exp.default(%f)
"""


AS_STOCK = {
    "expand-log1p-of-power": "it applies where another summand is NaN too",
    "decompose-for-kernels": "the decompositions of the stock flow",
}
"""Rewrites whose own replacement loses a special value on an engine, and why that is right."""


@pytest.mark.parametrize(
    "dtype",
    sampled((torch.float32, torch.float16, torch.bfloat16), torch.float32),
    ids=str,
)
def test_every_application_in_the_lowering_of_every_form_keeps_special_values(
    dtype: torch.dtype,
) -> None:
    target, found, counts = find_target("xnnpack"), list[str](), Counter[str]()
    options = target.settings(target.chosen({}))
    for start in range(0, len(FORMS), 40):
        some = FORMS[start : start + 40]
        program = from_exported_program(exported_forms(some, dtype))
        steps = stepwell.PIPELINES["xnnpack"].steps
        program.context = Context("xnnpack", options, exact_ops(steps), judges=False)
        run = Checked(program, 1 << 28, engines=engines())
        run.start(([list(form.inputs(dtype)) for form in some],), 0)
        run.recordings = {name: runs[:1] for name, runs in run.recordings.items()}
        for one in steps:
            run.step(one)
        found += [
            str(each)
            for each in run.findings
            if each.what.startswith("on xnnpack/") and each.rewrite not in AS_STOCK
        ]
        for name, counted in program.context.statistics.items():
            counts.update({f"{name}: {k}": n for k, n in counted.items() if "on engines" in k})
    assert not found
    assert not [line for line in counts if ": not tried" in line]
    assert any(line.endswith(": tried on engines") for line in counts)


def test_the_statistics_say_why_an_application_was_not_tried() -> None:
    exported = exported_of(torch.cosh, torch.arange(4))
    (rule,) = read_rules(OF_INTEGERS, {"__name__": __name__})
    program = from_exported_program(exported)
    program.context = Context("xnnpack", {}, judges=False)
    run = Checked(program, 1 << 28, engines=engines())
    run.start((torch.arange(4),), 0)
    run.step(rule())
    (counted,) = (found for found in program.context.statistics.values() if found)
    assert dict(counted) == {
        "not tried on engines: no operand is a float that may be any number": 1
    }
