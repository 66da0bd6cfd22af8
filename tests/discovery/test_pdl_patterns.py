"""xDSL's e-graph passes apply proved rules to stepwell's dialects."""

from pathlib import Path

import pytest
import torch
from xdsl.dialects import pdl

pytest.importorskip("z3", reason="the extra `prove` is not installed")

from sampled import sampled

import stepwell
from stepwell.integrations.xdsl.opt import opt
from stepwell.integrations.xdsl.pdl_patterns import NotExported, pattern_of, pdl_module
from stepwell.ir.diagnostics import StepwellError
from stepwell.translate.rules import read_rules
from stepwell.translate.rules.examples import examples_of
from stepwell.validation.rules.verdicts import rules

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
    assert len(list(module.ops)) >= 20
    assert all(left.values())


def test_an_equal_value_is_shared_over_two_rules(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = program("%a = aten.mul.Scalar(%x, 1)", "%y = aten.celu.default(%a)")
    out = saturated(text, tmp_path, capsys)
    assert "aten.mul.Scalar" not in out


def test_an_argument_that_a_pattern_states_as_its_default_prevents_a_match(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = program("%a = aten.mul.Scalar(%x, 1)", "%y = aten.celu.default(%a, 2.0)")
    out = saturated(text, tmp_path, capsys)
    assert "aten.celu.default(%x, 2.0)" in out
    assert "aten.elu" not in out


@pytest.mark.parametrize(("order", "is_left"), [("[0, -1]", False), ("[-1, 0]", True)])
def test_a_condition_on_an_argument_holds_for_the_number_of_its_example(
    order: str, is_left: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = program(f"%y = aten.permute.default(%x, {order})").replace("<4x", "<4x4x")
    assert ("aten.permute" in saturated(text, tmp_path, capsys)) is is_left


NEAR = {
    "it states types": (
        """
rule floor-of-integers
    Nothing.
Before:
    %y = aten.floor.default(%x) : (tensor<$*S x i32>) -> tensor<$*S x i32>
After:
    %y = %x
for $S = [3]
""",
        "states types",
    ),
    "it is not of empty tensors": (
        """
rule relu-of-some
    Not of empty ones.
Before:
    %y = aten.relu.default(%x)
After:
    %y = aten.clamp.default(%x, 0, none)
not of empty tensors
""",
        "not of every tensor",
    ),
    "its op may have further arguments": (
        """
rule clamp-of-clamp
    Once is enough.
Before:
    %a = xnnpack.clamp(%x, output_min=0.0)
    %y = xnnpack.clamp(%a, output_min=0.0)
After:
    %y = xnnpack.clamp(%x, output_min=0.0)
""",
        "may have further arguments",
    ),
    "it computes an argument": (
        """
rule next-of
    Another number.
Before:
    %y = aten.mul.Scalar(%x, $c)
After:
    %y = aten.mul.Scalar(%x, absolute($c))
for $c = 2.0
""",
        "is computed",
    ),
}


@pytest.mark.parametrize("name", NEAR)
def test_what_pdl_cannot_state_is_not_exported(name: str) -> None:
    text, reason = NEAR[name]
    (rewrite,) = read_rules(text, {"__name__": __name__, "absolute": abs_of})
    with pytest.raises(NotExported, match=reason):
        pattern_of(rewrite, rewrite.rule, "it")


def abs_of(number: float) -> float:
    """|number|."""
    return abs(number)


def test_random_draws_are_not_taken_to_be_one(tmp_path: Path) -> None:
    file = tmp_path / "program.mlir"
    file.write_text(program("%a = aten.bernoulli.default(%x)", "%y = aten.bernoulli.default(%a)"))
    with pytest.raises(StepwellError, match=r"bernoulli\.default may give another result"):
        opt([str(file), "-p", PASSES])


def test_an_argument_that_is_the_default_is_no_difference(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    head = "func.func @forward(%x: tensor<4xf32>) -> tensor<4xf32> {"
    kind = "(tensor<4xf32>) -> tensor<4xf32>"
    text = f"""{head}
  %p = aten.relu.default(%x) : {kind}
  %q = aten.clamp.default(%x, 0, none) : {kind}
  %y = aten.add.Tensor(%p, %q) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  func.return %y : tensor<4xf32>
}}
"""
    assert saturated(text, tmp_path, capsys).count("aten.") == 2


def test_order_is_checked_where_no_class_of_equal_values_is() -> None:
    text = program("%y = aten.relu.default(%z)", "%z = aten.exp.default(%x)")
    with pytest.raises(StepwellError, match="used before it is defined"):
        stepwell.parse(text).verify()


@pytest.mark.parametrize("of", sampled(["f32", "f64", "f16", "i32"], "f32"))
def test_every_exported_rule_keeps_what_its_example_computes(
    of: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    module, _ = pdl_module()
    patterns = [op for op in module.ops if isinstance(op, pdl.PatternOp)]
    names = {op.sym_name.data.rpartition("_")[0] for op in patterns if op.sym_name}
    done = 0
    for name, rewrite in rules().items():
        if "".join(c if c.isalnum() else "_" for c in rewrite.name) not in names:
            continue
        for before, _ in examples_of(rewrite):
            try:
                first = stepwell.parse(before.replace("xf32>", f"x{of}>"))
                first.verify()
                inputs = [sample(type_) for type_ in first.method().function_type.inputs]
                wanted = first.run(*inputs)
            except (StepwellError, RuntimeError):
                continue  # The op does not take this type.
            last = stepwell.parse(saturated(str(first), tmp_path, capsys))
            for one, other in zip(wanted, last.run(*inputs), strict=True):
                torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True, msg=name)
            done += 1
    assert done >= 4


def sample(type_: object) -> torch.Tensor:
    """Numbers of a tensor type, special ones among them."""
    from stepwell.ir.dtypes import torch_dtype
    from stepwell.ir.types import dims, element

    shape = [int(n) for n in dims(type_)]  # pyright: ignore
    dtype = torch_dtype(element(type_))  # pyright: ignore
    values = torch.tensor([float("nan"), -0.0, float("inf"), -3.0, 2.5, 100.0])
    found = values.repeat(1 + torch.Size(shape).numel())[: torch.Size(shape).numel()]
    found = found if dtype.is_floating_point else found.nan_to_num(1, 7, -7)
    return found.to(dtype).reshape(shape)
