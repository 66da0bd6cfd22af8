"""CUSTOM: an operator that somebody wrote, out into a flatbuffer and back."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import stepwell
from stepwell.ir.diagnostics import StepwellError, UnsupportedError
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import History
from stepwell.ir.syntax.text import parse_module
from stepwell.ir.weights import WeightStore
from stepwell.translate.rewrites.tosa.operators.lower_custom import LowerCustom

from .test_forms import TOSA_OPT

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


class Model(nn.Module):
    """Both operators between others."""

    def forward(self, x: Tensor) -> Any:
        a, b = OPS.gate(x.relu(), x, 0.5, taps=[3, 4])
        return OPS.packed(a + b, 3), b


X = torch.randn(2, 5)


def lowered(target: str = "tosa-1.0+fp") -> Any:
    return stepwell.lower(torch.export.export(Model(), (X,)), target)


def test_it_is_one_operator_with_its_names_and_bytes() -> None:
    program = lowered().program
    gate, packed = (op for op in program.module.walk() if op.name == "tosa.custom")
    assert gate.domain_name.data == "com.example" and gate.operator_name.data == "gate"
    assert gate.implementation_attrs.data == '{"slope":0.5,"taps":[3,4]}'
    assert packed.implementation_attrs.data.encode("latin-1") == b"\x03\xff"
    for found, wanted in zip(program.run(X), Model()(X), strict=True):
        assert torch.equal(found, wanted)


def test_a_flatbuffer_comes_back_as_the_same_program() -> None:
    data = lowered().to_tosa()
    program = stepwell.read_tosa(data)
    for found, wanted in zip(program.run(X), Model()(X), strict=True):
        assert torch.equal(found, wanted)
    again = stepwell.parse(str(program), weights=program.weights)
    assert [op.name for op in again.module.walk()] == [op.name for op in program.module.walk()]


def test_upstreams_tool_reads_the_flatbuffer(tmp_path: Path) -> None:
    source, target = tmp_path / "model.tosa", tmp_path / "model.mlir"
    source.write_bytes(lowered().to_tosa())
    read = f"--pass-pipeline=builtin.module(tosa-deserialize{{tosa-flatbuffer-filename={source}}})"
    subprocess.run([TOSA_OPT, read, "/dev/null", "-o", target], check=True, capture_output=True)
    text = target.read_text()
    assert text.count("tosa.custom") == 2 and 'operator_name = "gate"' in text


def test_the_reference_model_has_none_and_says_so() -> None:
    with pytest.raises(StepwellError, match=r"com\.example::gate is not registered"):
        lowered().run(X)


class Of(nn.Module):
    """One operator."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda x: OPS.nameless(x), "it has no lowering|TOSA has no operator"),
        (lambda x: OPS.typed(x, torch.float32), "its arguments have no bytes"),
    ],
)
def test_what_has_no_name_or_no_bytes_is_refused(function: Any, reason: str) -> None:
    with pytest.raises(UnsupportedError, match=reason):
        stepwell.lower(torch.export.export(Of(function), (X,)), "tosa-1.0+fp")


@pytest.mark.parametrize(
    ("op", "given", "reason"),
    [
        ("nameless", {"tosa": "gate"}, "not a domain::operator"),
        ("nameless", {"tosa": "com.example::gate"}, "registered as CUSTOM already"),
        ("written", {"tosa": "com.example::written"}, "writes to its arguments"),
        ("nameless", {"tosa_attributes": (str, str)}, "without its name"),
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


F, D, S = "tensor<2xf32>", "tensor<2xf64>", 'tensor<?xf32, #stepwell.shape<["s"]>>'
SIZE = f'%n = aten.sym_size.int(%x, 0) : ({F}) -> !stepwell.int<"2">'
LEFT = {
    "a number of run time": (
        F,
        f'packed.default(%x, %n) : ({F}, !stepwell.int<"2">) -> {F}',
        "what only the run knows",
    ),
    "any length": (S, f"packed.default(%x, 3) : ({S}) -> {S}", "symbolic"),
    "doubles": (D, f"packed.default(%x, 3) : ({D}) -> {D}", "no element type float64"),
    "a list": (F, f"joined.default([%x], %x) : ({F}, {F}) -> {F}", "xs is a list of tensors"),
    "what is not given": (F, f"given.default(%x) : ({F}) -> {F}", "y is a list of tensors, or"),
}


@pytest.mark.parametrize("name", LEFT)
def test_what_custom_does_not_name_is_left(name: str) -> None:
    x, call, reason = LEFT[name]
    lines = ([SIZE] if "%n" in call else []) + [
        f"%y = stepwell_tosa.{call}",
        f"func.return %y : {x}",
    ]
    text = "\n".join([f"func.func @forward(%x: {x}) -> {x} {{", *lines, "}"])
    program, history = Program(parse_module(text), WeightStore()), History()
    assert LowerCustom().apply(program, history) == 0
    (record,) = history.refusals.values()
    assert reason in record.reason
