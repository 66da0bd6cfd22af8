"""CUSTOM: an operator that somebody wrote, out into a flatbuffer and back."""

from pathlib import Path
from typing import Any

import pytest
import torch
from eager import lower
from short_ir import program_text
from torch import Tensor

import stepwell
from stepwell.ir.diagnostics import StepwellError, UnsupportedError
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import History
from stepwell.translate.rewrites.tosa.operators.lower_custom import LowerCustom

from . import graphs

LIBRARY = torch.library.Library("stepwell_tosa", "DEF")
LIBRARY.define("gate(Tensor x, Tensor y, float slope, *, int[] taps=[1, 2]) -> (Tensor, Tensor)")
LIBRARY.define("packed(Tensor x, int shift) -> Tensor")
LIBRARY.define("nameless(Tensor x) -> Tensor")
LIBRARY.define("typed(Tensor x, ScalarType dtype) -> Tensor")
LIBRARY.define("written(Tensor(a!) x) -> ()")
LIBRARY.define("joined(Tensor[] xs, Tensor? y=None) -> Tensor")
LIBRARY.define("given(Tensor x, Tensor? y=None) -> Tensor")


def gate(x: Tensor, y: Tensor, slope: float, *, taps: list[int] | None = None) -> Any:
    return x * slope + y, (x - y) * sum(taps or [1, 2])


LIBRARY.impl("gate", gate, "CompositeExplicitAutograd")
LIBRARY.impl("packed", lambda x, shift: x * 2.0**shift, "CompositeExplicitAutograd")
LIBRARY.impl("nameless", torch.neg, "CompositeExplicitAutograd")
LIBRARY.impl("typed", lambda x, dtype: x + 1.0, "CompositeExplicitAutograd")
LIBRARY.impl("joined", lambda xs, y=None: xs[0] + 1, "CompositeExplicitAutograd")
LIBRARY.impl("given", lambda x, y=None: x + 1, "CompositeExplicitAutograd")
LIBRARY.impl("written", lambda x: None, "CompositeExplicitAutograd")
OPS: Any = torch.ops.stepwell_tosa


@pytest.fixture(scope="module", autouse=True)
def registered() -> None:
    stepwell.register_op(OPS.gate.default, tosa="com.example::gate")
    for op in (OPS.typed, OPS.joined, OPS.given):
        stepwell.register_op(op.default, tosa=f"com.example::{op.__name__}")
    stepwell.register_op(
        OPS.packed.default,
        tosa="com.example::packed",
        tosa_attributes=(
            lambda held: bytes([held["shift"], 0xFF]),
            lambda data: {"shift": data[0]},
        ),
    )


def gated(x: Tensor) -> Any:
    """Both operators between others."""
    a, b = OPS.gate(x.relu(), x, 0.5, taps=[3, 4])
    return OPS.packed(a + b, 3), b


X = torch.randn(2, 5)


def lowered(target: str = "tosa-1.0+fp") -> Any:
    return lower(gated, X, target=target)


def test_a_registered_operator_is_one_custom_with_its_names_and_bytes() -> None:
    program = lowered().program
    gate, packed = (op for op in program.module.walk() if op.name == "tosa.custom")
    assert gate.domain_name.data == "com.example" and gate.operator_name.data == "gate"
    assert gate.implementation_attrs.data == '{"slope":0.5,"taps":[3,4]}'
    assert packed.implementation_attrs.data.encode("latin-1") == b"\x03\xff"
    for found, wanted in zip(program.run(X), gated(X), strict=True):
        assert torch.equal(found, wanted)


def test_a_flatbuffer_comes_back_as_the_same_program() -> None:
    data = lowered().to_tosa()
    program = stepwell.read_tosa(data)
    for found, wanted in zip(program.run(X), gated(X), strict=True):
        assert torch.equal(found, wanted)
    again = stepwell.parse(str(program), weights=program.weights)
    assert [op.name for op in again.module.walk()] == [op.name for op in program.module.walk()]


def test_upstreams_tool_reads_the_flatbuffer(tmp_path: Path) -> None:
    source, target = tmp_path / "model.tosa", tmp_path / "model.mlir"
    source.write_bytes(lowered().to_tosa())
    assert not graphs.tosa_opt(graphs.deserialize(source), output=target)
    text = target.read_text()
    assert text.count("tosa.custom") == 2 and 'operator_name = "gate"' in text


def test_the_reference_model_has_none_and_says_so() -> None:
    with pytest.raises(StepwellError, match=r"com\.example::gate is not registered"):
        lowered().run(X)


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda x: OPS.nameless(x), "it has no lowering|TOSA has no operator"),
        (lambda x: OPS.typed(x, torch.float32), "the arguments cannot be encoded as bytes"),
    ],
)
def test_what_has_no_name_or_no_bytes_is_refused(function: Any, reason: str) -> None:
    with pytest.raises(UnsupportedError, match=reason):
        graphs.lowered(function, X, target="tosa-1.0+fp")


@pytest.mark.parametrize(
    ("op", "given", "reason"),
    [
        ("nameless", {"tosa": "gate"}, "not a domain::operator"),
        ("nameless", {"tosa": "com.example::gate"}, "registered as CUSTOM already"),
        ("written", {"tosa": "com.example::written"}, "writes to its arguments"),
        ("nameless", {"tosa_attributes": (str, str)}, "needs tosa="),
    ],
)
def test_a_registration_that_cannot_be_is_an_error(op: str, given: Any, reason: str) -> None:
    with pytest.raises(StepwellError, match=reason):
        stepwell.register_op(getattr(OPS, op).default, **given)


def test_a_name_that_nobody_registered_is_named() -> None:
    program = lowered().program
    text = str(program).replace('"com.example"', '"com.nobody"')
    with pytest.raises(StepwellError, match="no implementation of"):
        stepwell.parse(text, weights=program.weights).run(X)


LEFT = {
    "a number of run time": (
        "packed.default(%x: f32[2], %n: int<2>)",
        "an argument is known only at run time",
    ),
    "any length": ("packed.default(%x: f32[s], 3)", "symbolic"),
    "doubles": ("packed.default(%x: f64[2], 3)", "no element type float64"),
    "a list": ("joined.default([%x: f32[2]], %x)", "xs is a list of tensors"),
    "what is not given": ("given.default(%x: f32[2])", "y is a list of tensors, or"),
}


@pytest.mark.parametrize("name", LEFT)
def test_what_custom_does_not_name_is_left(name: str) -> None:
    call, reason = LEFT[name]
    program, history = Program(program_text(f"%y = stepwell_tosa.{call}")), History()
    assert LowerCustom().apply(program, history) == 0
    (record,) = history.refusals.values()
    assert reason in record.reason
