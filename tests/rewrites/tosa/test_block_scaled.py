"""Block-scaled types are chosen, adopted, lowered and not cast twice."""

from typing import Any

import pytest
from rewrite_cases import cases

from stepwell.dialects.tosa_mxfp.executorch import PAYLOADS
from stepwell.translate.decompositions import executorch_mx
from stepwell.translate.lowerings.lowering import step
from stepwell.translate.rewrites.mxfp.choose_mx_form import ChooseMxForm
from stepwell.translate.rewrites.mxfp.choose_mxfp import (
    ChooseMxConv2d,
    ChooseMxLinear,
    ChooseMxMatmul,
)

HELD = {"f8e4m3": "f8E4M3FN", "f8e5m2": "f8E5M2"}
"""ExecuTorch's words for payloads that torch has a type of; the others' codes are bytes."""

# Nothing is computed, so that ExecuTorch need not be there.
test_adopt_executorch_mx = cases(step(executorch_mx.adopt_executorch_mx), run=False)("""
blocks of another size -> refused: blocks have 16 elements
    %y = tosa_mxfp.linear.default(%x: f32[2, 32], %c: buffer f8E4M3FN[1, 3, 32], %s: buffer f8E8M0FNU[1, 3, 2], none, 16, "f8e4m3")
no payload -> refused: not an MX payload
    %y = tosa_mxfp.linear.default(%x: f32[2, 32], %c: buffer f8E4M3FN[1, 3, 32], %s: buffer f8E8M0FNU[1, 3, 1], none, 32, "f3")
scales that are floats -> refused: the scales are torch.float32
    %y = tosa_mxfp.linear.default(%x: f32[2, 32], %c: buffer f8E4M3FN[1, 3, 32], %s: buffer f32[1, 3, 1], none, 32, "f8e4m3")
scales that are truths -> refused: the scales are torch.bool
    %y = tosa_mxfp.linear.default(%x: f32[2, 32], %c: buffer f8E4M3FN[1, 3, 32], %s: buffer i1[1, 3, 1], none, 32, "f8e4m3")
codes of run time -> refused: computed at run time
    %y = tosa_mxfp.linear.default(%x: f32[2, 32], %c: f8E4M3FN[1, 3, 32], %s: buffer f8E8M0FNU[1, 3, 1], none, 32, "f8e4m3")
scales of run time -> refused: computed at run time
    %y = tosa_mxfp.linear.default(%x: f32[2, 32], %c: buffer f8E4M3FN[1, 3, 32], %s: f8E8M0FNU[1, 3, 1], none, 32, "f8e4m3")
""")


@pytest.mark.parametrize("codes", ["f8E4M3FN", "f8E5M2", "ui8", "i8", "f32"])
@pytest.mark.parametrize("word", PAYLOADS)
def test_codes_are_taken_in_the_dtype_of_their_payload_only(
    word: str, codes: str, asked: Any
) -> None:
    blocks = 1 + ((word, codes) == ("f4e2m1", "ui8"))  # Two codes stand in a byte.
    text = f"""%y = tosa_mxfp.linear.default(%x: f32[2, {32 * blocks}], %c: {codes}[1, 3, 32],
        %s: buffer f8E8M0FNU[1, 3, {blocks}], none, 32, "{word}") -> f32[2, 3]"""
    count, (found,) = asked(text, step(executorch_mx.adopt_executorch_mx))
    taken = codes == HELD.get(word, "ui8")
    assert ("computed at run time" if taken else f"codes of {PAYLOADS[word]}") in found
    assert count == 0


KINDS = frozenset(("mx_common", "mx_fp8e4m3", "mx_fp4e2m1"))

test_operators_of_a_target_without_types = cases(ChooseMxForm(frozenset(("mxfp",))))("""
a target with operators alone gets operators -> writes "operators"
    %y = stepwell_mx.matmul_t.default(%a: f32[1, 2, 32], %b: f32[1, 3, 32], "fp8e4m3", "fp8e4m3", "types")
two payloads have no operators -> refused: needs block-scaled types
    %y = stepwell_mx.matmul_t.default(%a: f32[1, 2, 32], %b: f32[1, 3, 32], "fp8e4m3", "fp4e2m1", "types")
a convolution needs an extension of its own -> refused: needs the extensions +mxfp+mxfp_conv
    %y = stepwell_mx.conv2d.default(%x: f32[1, 32, 4, 4], %w: f32[8, 32, 1, 1], none, [1, 1], [0, 0], [1, 1], 1, "fp8e4m3", "fp8e4m3", "operators")
""")

test_forms_of_a_target_with_both = cases(ChooseMxForm(KINDS | {"mxfp"}))("""
a target with both keeps the form -> unchanged
    - %y = stepwell_mx.matmul_t.default(%a: f32[1, 2, 32], %b: f32[1, 3, 32], "fp8e4m3", "fp8e4m3", "operators")
    - %y = stepwell_mx.matmul_t.default(%a: f32[1, 2, 32], %b: f32[1, 3, 32], "fp8e4m3", "fp8e4m3", "types")
a convolution without its extension gets types -> writes "types"
    %y = stepwell_mx.conv2d.default(%x: f32[1, 32, 4, 4], %w: f32[8, 32, 1, 1], none, [1, 1], [0, 0], [1, 1], 1, "fp8e4m3", "fp8e4m3", "operators")
""")

test_forms_of_a_convolution = cases(ChooseMxForm(KINDS | {"mxfp", "mxfp_conv"}))("""
a target with the extension keeps the form -> unchanged
    %y = stepwell_mx.conv2d.default(%x: f32[1, 32, 4, 4], %w: f32[8, 32, 1, 1], none, [1, 1], [0, 0], [1, 1], 1, "fp8e4m3", "fp8e4m3", "operators")
""")

test_a_target_without_the_payload = cases(ChooseMxForm(frozenset(("mx_common", "mx_fp4e2m1"))))("""
operators name what they need -> refused: needs the extensions +mxfp
    %y = stepwell_mx.matmul_t.default(%a: f32[1, 2, 32], %b: f32[1, 3, 32], "fp8e4m3", "fp8e4m3", "operators")
types name what they need -> refused: needs the extensions +mx_common+mx_fp8e4m3
    %y = stepwell_mx.matmul_t.default(%a: f32[1, 2, 32], %b: f32[1, 3, 32], "fp8e4m3", "fp8e4m3", "types")
""")


test_choose_mxfp = cases(ChooseMxLinear)("""
products of every float become mx -> stepwell_mx.linear.default
    - %y = aten.linear.default(%x: f32[2, 64], %w: weight f32[3, 64])
    - %y = aten.linear.default(%x: f16[2, 64], %w: weight f16[3, 64])
    - %y = aten.linear.default(%x: bf16[2, 64], %w: weight bf16[3, 64])
doubles -> refused: no MX product of float64
    %y = aten.linear.default(%x: f64[2, 64], %w: weight f64[3, 64])
a weight computed at run time -> refused: computed at run time
    %y = aten.linear.default(%x: f32[2, 64], %w: f32[3, 64])
dynamic rows become mx -> stepwell_mx.linear.default
    %y = aten.linear.default(%x: f32[s0, 64], %w: weight f32[3, 64])
""")


test_choose_mx_matmul = cases(ChooseMxMatmul)("""
products of every float become mx -> aten.permute.default, stepwell_mx.matmul_t.default
    - %y = aten.bmm.default(%a: f32[2, 3, 40], %b: f32[2, 40, 5])
    - %y = aten.bmm.default(%a: f16[2, 3, 40], %b: f16[2, 40, 5])
    - %y = aten.bmm.default(%a: bf16[2, 3, 40], %b: bf16[2, 40, 5])
""")


test_choose_mx_conv2d = cases(ChooseMxConv2d)("""
a convolution becomes mx -> stepwell_mx.conv2d.default
    %y = aten.convolution.default(%x: f32[1, 32, 5, 5], %w: weight f32[8, 32, 3, 3], none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1)
a weight computed at run time -> refused: computed at run time
    %y = aten.convolution.default(%x: f32[1, 32, 5, 5], %w: f32[8, 32, 3, 3], none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1)
a depthwise convolution -> refused: one channel and 31 zeros
    %y = aten.convolution.default(%x: f32[1, 32, 5, 5], %w: weight f32[32, 1, 3, 3], none, [1, 1], [0, 0], [1, 1], false, [0, 0], 32)
a gray image is convolved in mx -> stepwell_mx.conv2d.default
    %y = aten.convolution.default(%x: f32[1, 1, 5, 5], %w: weight f32[8, 1, 3, 3], none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1)
a transposed convolution -> refused: no transposed MX convolution
    %y = aten.convolution.default(%x: f32[1, 32, 5, 5], %w: weight f32[32, 8, 3, 3], none, [1, 1], [0, 0], [1, 1], true, [0, 0], 1)
a convolution of one axis -> refused: have two spatial axes
    %y = aten.convolution.default(%x: f32[1, 32, 5], %w: weight f32[8, 32, 3], none, [1], [0], [1], false, [0], 1)
images of symbolic size -> refused: the shape is symbolic
    %y = aten.convolution.default(%x: f32[1, 32, s0, 5], %w: weight f32[8, 32, 1, 1], none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1)
""")


test_choose_mx_linear_fp8e4m3_fp4e2m1 = cases(ChooseMxLinear("fp8e4m3", "fp4e2m1"))("""
a form that two payloads lack -> refused: needs block-scaled types
    %y = aten.linear.default(%x: f32[2, 64], %w: weight f32[3, 64])
""")


test_choose_mx_conv2d_mxint8_mxint8 = cases(ChooseMxConv2d("mxint8", "mxint8"))("""
a form that two payloads lack -> refused: has no mxint8
    %y = aten.convolution.default(%x: f32[1, 32, 5, 5], %w: weight f32[8, 32, 3, 3], none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1)
""")


test_a_layer_that_is_not_chosen = cases(ChooseMxLinear(chosen=lambda op: False))("""
a layer that is not chosen -> unchanged
    %y = aten.linear.default(%x: f32[2, 64], %w: weight f32[3, 64])
""")

test_operands_of_two_types = cases(ChooseMxLinear, run=False)("""
operands of two types -> refused: float32 by float16
    %y = aten.linear.default(%x: f32[2, 64], %w: weight f16[3, 64])
""")
