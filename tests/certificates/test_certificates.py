"""A certificate holds, and one that lies is refused, from texts alone."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from eager import Function, Model, exported
from honest import stored
from torch import nn
from torch.nn import functional

import stepwell
from stepwell.ir.rewriting.pipeline import Pipeline
from stepwell.translate.rules import read_rules
from stepwell.validation.certificates.audit import verify_certificate
from stepwell.validation.certificates.certificate import Certificate
from stepwell.validation.certificates.checker.expressions import (
    PRIME,
    Arithmetic,
    of_number,
    variable,
)

X = torch.randn(2, 3, 4)


def mixed(x: Any, linear: nn.Module) -> Any:
    """An op of each kind that the planted rules are about."""
    y = functional.relu(linear(x)).permute(0, 2, 1)
    z = torch.softmax(y - x.transpose(1, 2), -1)
    return (z.abs() * 0.5).reshape(2, 12).mean(-1, keepdim=True) + z.flip([1])[:, :1, 0]


WRONG = {
    "a sign": "%y = aten.sub.Tensor(%x, %z) → %y = aten.add.Tensor(%x, %z)",
    "an activation": "%y = aten.relu.default(%x) → %y = aten.neg.default(%x)",
    "a limit": "%y = aten.relu.default(%x) → %y = aten.clamp.default(%x, 0, 6)",
    "an axis": "%y = aten.softmax.int(%x, -1) → %y = aten._softmax.default(%x, 1, false)",
    "places": "%y = aten.flip.default(%x, [1]) → %y = aten.roll.default(%x, [1], [1])",
    "a factor": "%y = aten.mul.Scalar(%x, 0.5) → %y = aten.mul.Scalar(%x, 0.5000001)",
    "a loss": "%y = aten.abs.default(%x) → %y = %x",
    "a fold": "%y = aten.mean.dim(%x, [-1], true) → %y = aten.amax.default(%x, [-1], true)",
    "a bias": "%y = aten.linear.default(%x, %w, %b) → %y = aten.linear.default(%x, %w)",
    "a weight": "%y = aten.linear.default(%x, %w, %b) → %t = aten.t.default(%w); "
    "%m = aten.linear.default(%x, %t); %y = aten.add.Tensor(%m, %b)",
}


def program() -> stepwell.Program:
    return stepwell.from_exported_program(exported(Function(mixed, nn.Linear(4, 4)), X))


def rule(text: str) -> Any:
    before, _, after = text.partition(" → ")
    lines = ["rule planted", "    Wrong.", "Before:", f"    {before}", "After:"]
    lines += [f"    {line}" for line in after.split("; ")]
    (found,) = read_rules("\n".join(lines) + "\n", globals())
    return found


@pytest.fixture(scope="module")
def lowered() -> stepwell.Lowered:
    return stepwell.lower(program(), "xnnpack", certify=True)


def residual(x: Any) -> Any:
    """A quantized value is read by a sum, and by what is computed for the sum."""
    x = stored(x, 0.05, 3)
    return stored(x + stored(torch.softmax(x, -1).cumsum(-1), 0.02, 0), 0.07, 1)


def twice(x: Any) -> Any:
    """A value is stored in the same way twice, and each is read."""
    return stored(stored(x, 0.05, 3)[..., 0], 0.05, 3), stored(x, 0.05, 3)[..., 1]


@pytest.mark.parametrize("model", (residual, twice))
def test_statements_relate_values_that_are_equal(model: Model) -> None:
    source = stepwell.from_exported_program(exported(model, X))
    lowered = stepwell.lower(source, "cortex-m55", certify=True)
    found = verify_certificate(lowered.certificate, lowered.program, source=source)
    assert found.ok, found
    left = {entry.rewrite for entry in lowered.certificate.entries if entry.by == "run"}
    assert left == {"lower-boundary"}  # Its kernel wraps beyond 32 bits.


def test_a_lowering_that_changes_its_ports_has_no_certificate() -> None:
    exported = torch.export.export(Function(twice), (X,))
    with pytest.raises(stepwell.StepwellError, match="another signature") as raised:
        stepwell.lower(exported, "cortex-m55", certify=True, io="int8")
    assert "io=" in str(raised.value)


def test_a_lowering_is_proved_and_checked_from_its_json(lowered: stepwell.Lowered) -> None:
    made = lowered.certificate
    assert made is not None
    assert made.proved == len(made.entries) > 5, str(made)
    again = Certificate.from_json(made.to_json())
    found = verify_certificate(again, lowered.program)
    assert found.is_proved, found
    assert found.proved + found.implied == made.proved


def planted(kind: str) -> tuple[Certificate, Any]:
    """A lowering with a wrong application, and its certificate, which says that it is proved."""
    from stepwell.ir.rewriting.rewrite import History
    from stepwell.validation.certificates.certificate import certificate
    from stepwell.validation.certificates.recorder import StatementRecorder

    work = program()
    recorder = StatementRecorder(work)
    Pipeline("wrong", (rule(WRONG[kind])(),)).run(
        work, recorder.behind, history=History(watch=recorder)
    )
    honest = certificate(recorder, "none")
    assert honest.entries, "it was applied"
    lies = tuple(replace(e, by="reals") if e.statement else e for e in honest.entries)
    return replace(honest, entries=lies), work


@pytest.mark.parametrize("kind", WRONG)
def test_a_wrong_application_is_refused(kind: str) -> None:
    lying, work = planted(kind)
    found = verify_certificate(lying, work)
    assert not found.ok
    assert "it is not so" in found.faults[0]


def test_a_certificate_without_an_application_is_refused(lowered: stepwell.Lowered) -> None:
    made = lowered.certificate
    assert made is not None
    at = next(n for n, entry in enumerate(made.entries) if entry.statement)
    less = replace(made, entries=(*made.entries[:at], *made.entries[at + 1 :]))
    assert not verify_certificate(less).ok


def test_a_certificate_of_another_end_is_refused(lowered: stepwell.Lowered) -> None:
    made = lowered.certificate
    assert made is not None
    other = replace(made, end=made.end.replace("perm=[0, 2, 1]", "perm=[0, 1, 2]", 1))
    assert other.end != made.end
    assert not verify_certificate(other).ok
    torch.manual_seed(0)
    elsewhere = stepwell.lower(program(), "xnnpack").program
    assert verify_certificate(made, elsewhere).ok
    other_weights = stepwell.lower(program(), "xnnpack").program
    assert "differs in type or elements" in str(verify_certificate(made, other_weights))


@pytest.mark.parametrize("kind", ["bits", "reals"])
def test_expressions_that_are_equal_have_equal_numbers(kind: str) -> None:
    reading = Arithmetic(kind == "bits")
    x, w = (reading.made(variable(n, (3, 4), 0), torch.float32) for n in "xw")
    with torch.no_grad():
        same = functional.linear(x, w), (w @ x.mT).mT
        other = functional.linear(x, w), functional.linear(w, x)
        folded = functional.linear(x * 0.1, w), functional.linear(x, w * 0.1)
    assert torch.equal(*(reading.numbers(each) for each in same))
    assert not torch.equal(*(reading.numbers(each) for each in other))
    assert torch.equal(*(reading.numbers(each) for each in folded)) == (kind == "reals")


@pytest.mark.parametrize("value", [1 / 6, 0.1, -1 / 197, 3.0, 32**-0.5, 2**-1.25, 0.3])
def test_a_constant_is_the_simplest_number_that_rounds_to_it(value: float) -> None:
    wide = of_number(value, 53, (PRIME, 0))
    single = torch.tensor(value, dtype=torch.float32).item()
    assert of_number(single, 24, (PRIME, 0)) == wide
    assert of_number(-value, 53, (PRIME, 0)) == PRIME - wide


@pytest.mark.parametrize(
    "ask",
    [
        lambda x: x.sum().item(),
        lambda x: bool(x.sum() > 0),
        lambda x: x.numpy(),
        lambda x: x.tolist(),
        lambda x: torch.zeros(3).add_(x),
        lambda x: torch.bernoulli(x),
    ],
)
def test_nothing_reads_the_elements_of_a_shadow(ask: Any) -> None:
    x = Arithmetic(False).made(variable("x", (3,), 0), torch.float32)
    with pytest.raises(RuntimeError):
        ask(x)
