"""xDSL's e-graph passes apply proved rules to stepwell's dialects."""

from pathlib import Path

import pytest
from xdsl.dialects import pdl

pytest.importorskip("z3", reason="the extra `prove` is not installed")

from stepwell.integrations.xdsl.opt import opt
from stepwell.integrations.xdsl.pdl_patterns import ABSENT, pdl_module

PASSES = "eqsat-create-eclasses,saturate-by-rules,eqsat-add-costs{default=1},eqsat-extract"


def saturated(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    file = tmp_path / "program.mlir"
    file.write_text(text)
    assert opt([str(file), "-p", PASSES]) == 0
    return capsys.readouterr().out


def program(*lines: str) -> str:
    body = "\n".join(f"  {line} : (tensor<4xf32>) -> tensor<4xf32>" for line in lines)
    head = "func.func @forward(%x: tensor<4xf32>) -> tensor<4xf32> {"
    return f"{head}\n{body}\n  func.return %y : tensor<4xf32>\n}}\n"


def test_the_patterns_are_valid() -> None:
    module, left = pdl_module()
    module.verify()
    assert len(list(module.ops)) >= 8
    assert all(left.values())


def test_an_equal_value_is_shared_over_two_rules(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = program("%a = aten.mul.Scalar(%x, 1)", "%y = aten.celu.default(%a)")
    out = saturated(text, tmp_path, capsys)
    assert "aten.mul.Scalar" not in out


def test_an_argument_that_a_pattern_does_not_state_prevents_a_match(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    module, _ = pdl_module()
    named = [op for op in module.walk() if isinstance(op, pdl.ApplyNativeConstraintOp)]
    assert any(op.constraint_name.data.startswith(ABSENT) for op in named)
    text = program("%a = aten.mul.Scalar(%x, 1)", "%y = aten.celu.default(%a, 2.0)")
    out = saturated(text, tmp_path, capsys)
    assert "aten.celu.default(%x, 2.0)" in out
    assert "aten.elu" not in out
