"""Block-scaled types are chosen, adopted, lowered and not cast twice."""

from typing import Any

import pytest
from rewrite_cases import cases

from stepwell.dialects.tosa_mxfp.executorch import PAYLOADS
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import History, run_rewrites
from stepwell.ir.syntax.text import parse_module, to_text
from stepwell.ir.weights import WeightStore
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


def reasons(
    block: int = 32,
    word: str = "f8e4m3",
    computed: bool = False,
    scaled: bool = False,
    codes: str = "f8E4M3FN",
    scale: str = "f8E8M0FNU",
) -> list[str]:
    """Why the rewrite refuses; nothing is computed, so that ExecuTorch need not be there."""
    x, y = "tensor<2x32xf32>", "tensor<2x3xf32>"
    c, s = f"tensor<1x3x32x{codes}>", f"tensor<1x3x1x{scale}>"
    extra = f", %c: {c}" if computed else ""
    line = "" if computed else f'%c = stepwell.weight <"codes"> "buffer" : {c}'
    extra += f", %s: {s}" if scaled else ""
    scales = "" if scaled else f'%s = stepwell.weight <"scales"> "buffer" : {s}'
    text = f"""func.func @forward(%x: {x}{extra}) -> {y} {{
  {line}
  {scales}
  %y = tosa_mxfp.linear.default(%x, %c, %s, none, {block}, "{word}") : ({x}, {c}, {s}) -> {y}
  func.return %y : {y}
}}
"""
    program = Program(parse_module(text), WeightStore())
    before, history = to_text(program.module), History()
    assert run_rewrites(program, (step(executorch_mx.adopt_executorch_mx),), history) == 0
    assert to_text(program.module) == before
    return [record.reason for record in history.refusals.values()]


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        ({"block": 16}, "blocks have 16 elements"),
        ({"word": "f3"}, "not an MX payload"),
        ({"scale": "f32"}, "its scales are torch.float32"),
        ({"scale": "i1"}, "its scales are torch.bool"),
        ({"computed": True}, "computed at run time"),
        ({"scaled": True}, "computed at run time"),
    ],
)
def test_payload_without_form_is_refused(case: dict[str, Any], reason: str) -> None:
    (found,) = reasons(**case)
    assert reason in found


@pytest.mark.parametrize("codes", ["f8E4M3FN", "f8E5M2", "ui8", "i8", "f32"])
@pytest.mark.parametrize("word", PAYLOADS)
def test_codes_are_taken_in_the_dtype_of_their_payload_only(word: str, codes: str) -> None:
    (found,) = reasons(word=word, codes=codes, computed=True)
    taken = codes == HELD.get(word, "ui8")
    assert ("computed at run time" if taken else f"those of {PAYLOADS[word]}") in found


BOTH = frozenset(("mxfp", "mx_common", "mx_fp8e4m3", "mx_fp4e2m1"))


def text(payload: str = "fp8e4m3", second: str = "fp8e4m3", form: str = "operators") -> str:
    a, b, y = (f"tensor<{shape}xf32>" for shape in ("1x2x32", "1x3x32", "1x2x3"))
    return f"""func.func @forward(%a: {a}, %b: {b}) -> {y} {{
  %y = stepwell_mx.matmul_t.default(%a, %b, "{payload}", "{second}", "{form}") : ({a}, {b}) -> {y}
  func.return %y : {y}
}}
"""


def test_a_target_with_operators_alone_gets_operators(apply: Any) -> None:
    done = apply(
        """
        %y = stepwell_mx.matmul_t.default(%a: f32[1, 2, 32], %b: f32[1, 3, 32], "fp8e4m3", "fp8e4m3", "types")
        """,
        ChooseMxForm(frozenset(("mxfp",))),
    )
    assert '"operators"' in done.text


@pytest.mark.parametrize("form", ["operators", "types"])
def test_a_target_with_both_keeps_the_form(refused: Any, form: str) -> None:
    refused(text(form=form), ChooseMxForm(BOTH))


def test_a_target_without_the_payload_names_what_it_needs(refused: Any) -> None:
    only = frozenset(("mx_common", "mx_fp4e2m1"))
    refused(
        """
        %y = stepwell_mx.matmul_t.default(%a: f32[1, 2, 32], %b: f32[1, 3, 32], "fp8e4m3", "fp8e4m3", "operators")
        """,
        ChooseMxForm(only),
        "needs +mxfp",
    )
    refused(
        """
        %y = stepwell_mx.matmul_t.default(%a: f32[1, 2, 32], %b: f32[1, 3, 32], "fp8e4m3", "fp8e4m3", "types")
        """,
        ChooseMxForm(only),
        "needs +mx_common+mx_fp8e4m3",
    )


def test_two_payloads_have_no_operators(refused: Any) -> None:
    refused(
        """
        %y = stepwell_mx.matmul_t.default(%a: f32[1, 2, 32], %b: f32[1, 3, 32], "fp8e4m3", "fp4e2m1", "types")
        """,
        ChooseMxForm(frozenset(("mxfp",))),
        "needs block-scaled types",
    )


def test_a_convolution_needs_an_extension_of_its_own(apply: Any, refused: Any) -> None:
    kinds = frozenset(("mx_common", "mx_fp8e4m3"))
    assert (
        '"types"'
        in apply(
            """
        %y = stepwell_mx.conv2d.default(%x: f32[1, 32, 4, 4], %w: f32[8, 32, 1, 1], none, [1, 1], [0, 0], [1, 1], 1, "fp8e4m3", "fp8e4m3", "operators")
        """,
            ChooseMxForm(kinds | {"mxfp"}),
        ).text
    )
    refused(
        """
        %y = stepwell_mx.conv2d.default(%x: f32[1, 32, 4, 4], %w: f32[8, 32, 1, 1], none, [1, 1], [0, 0], [1, 1], 1, "fp8e4m3", "fp8e4m3", "operators")
        """,
        ChooseMxForm(frozenset(("mxfp",))),
        "needs +mxfp+mxfp_conv",
    )
    refused(
        """
        %y = stepwell_mx.conv2d.default(%x: f32[1, 32, 4, 4], %w: f32[8, 32, 1, 1], none, [1, 1], [0, 0], [1, 1], 1, "fp8e4m3", "fp8e4m3", "operators")
        """,
        ChooseMxForm(kinds | {"mxfp", "mxfp_conv"}),
    )


def linear(held: str = "f32", computed: bool = False) -> str:
    x, w, y = (f"tensor<{shape}x{held}>" for shape in ("2x64", "3x64", "2x3"))
    extra = f", %w: {w}" if computed else ""
    line = "" if computed else f'%w = stepwell.weight <"w"> "parameter" : {w}'
    return f"""func.func @forward(%x: {x}{extra}) -> {y} {{
  {line}
  %y = aten.linear.default(%x, %w) : ({x}, {w}) -> {y}
  func.return %y : {y}
}}
"""


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


def test_a_layer_that_is_not_chosen_stays(refused: Any) -> None:
    refused(linear(), ChooseMxLinear(chosen=lambda op: False))


def test_operands_of_two_types_stay(programs: Any) -> None:
    text = linear().replace("tensor<3x64xf32>", "tensor<3x64xf16>")
    program, _ = programs(text)
    op = next(op for op in program.method().walk() if op.name == "aten.linear.default")
    assert "float32 by float16" in ChooseMxLinear().match(op, program).reason  # pyright: ignore
