"""The notation of tests means the MLIR that it abbreviates, and a table fails with one line."""

import pytest
import torch
from rewrite_cases import cases
from short_ir import program_text

from stepwell.ir.syntax.text import parse_module, structurally_equal
from stepwell.translate.canonicalize.clamps import RULES

LONG_FORMS = {
    "%y = aten.clamp.default(%x: f32[2, 3], 2, 1)": """
func.func @forward(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
  %y = aten.clamp.default(%x, 2, 1) : (tensor<2x3xf32>) -> tensor<2x3xf32>
  func.return %y : tensor<2x3xf32>
}""",
    """
    # Its result is not the last one.
    %x: i8<0.5:3>[4], %z: f32[2*s0]
    %r = quant.dcast(%x); %s = aten.neg.default(%z); return %r""": """
func.func @forward(%x: tensor<4x!quant.uniform<i8:f32, 0.5:3>>, %z: tensor<?xf32, #stepwell.shape<["2*s0"]>>) -> tensor<4xf32> {
  %r = quant.dcast %x : tensor<4x!quant.uniform<i8:f32, 0.5:3>> to tensor<4xf32>
  %s = aten.neg.default(%z) : (tensor<?xf32, #stepwell.shape<["2*s0"]>>) -> tensor<?xf32, #stepwell.shape<["2*s0"]>>
  func.return %r : tensor<4xf32>
}""",
    '%y = aten.mul.Scalar(%w: constant "w#ones" f32[2], %n: int<n>)': """
func.func @forward(%late: tensor<?xf32, #stepwell.shape<["n"]>>) -> tensor<2xf32> {
  %w = stepwell.weight <"w#ones"> "constant" : tensor<2xf32>
  %n = aten.sym_size.int(%late, 0) : (tensor<?xf32, #stepwell.shape<["n"]>>) -> !stepwell.int<"n">
  %y = aten.mul.Scalar(%w, %n) : (tensor<2xf32>, !stepwell.int<"n">) -> tensor<2xf32>
  func.return %y : tensor<2xf32>
}""",
    """
    %q = quant.qcast(%x: f32[3, 2]) -> i8<-7:7; :1, {0.5, 0.25}>[3, 2]
    %y = quant.dcast %q : i8<-7:7; :1, {0.5, 0.25}>[3, 2] to f32[3, 2]""": """
func.func @forward(%x: tensor<3x2xf32>) -> tensor<3x2xf32> {
  %q = quant.qcast %x : tensor<3x2xf32> to tensor<3x2x!quant.uniform<i8<-7:7>:f32:1, {0.5, 0.25}>>
  %y = quant.dcast %q : tensor<3x2x!quant.uniform<i8<-7:7>:f32:1, {0.5, 0.25}>> to tensor<3x2xf32>
  func.return %y : tensor<3x2xf32>
}""",
}


@pytest.mark.parametrize("short", LONG_FORMS)
def test_short_form_means_its_long_form(short: str):
    assert structurally_equal(program_text(short), parse_module(LONG_FORMS[short]))


@pytest.mark.parametrize(
    ("outcome", "found"),
    [
        ("aten.maximum.default", "applied 0 times"),
        ("refused: jumps", "refused: the bounds are not numbers in order"),
        ("unchanged", "refused: the bounds are not numbers in order"),
        ("applied", "applied 0 times"),
    ],
)
def test_case_with_another_outcome_fails_with_what_was_found(outcome: str, found: str):
    text = f"""
merge-clamps: bounds out of order -> {outcome}
    %a = aten.clamp.default(%x: f32[2, 3], 2, 1)
    %y = aten.clamp.default(%a, 0, 6)
"""
    test = cases(RULES)(text)
    (mark,) = test.pytestmark  # pyright: ignore[reportFunctionMemberAccess]
    (case,) = mark.args[1]
    torch.manual_seed(0)
    with pytest.raises(pytest.fail.Exception, match="merge-clamps: bounds out of order") as failed:
        test(case)
    assert found in str(failed.value) and "\n" not in str(failed.value)


def test_unknown_name_of_a_rewrite_is_reported():
    with pytest.raises(ValueError, match="no rewrite"):
        cases(RULES)("merge-clips: a subject -> unchanged\n    %y = aten.neg.default(%x: f32[2])")
