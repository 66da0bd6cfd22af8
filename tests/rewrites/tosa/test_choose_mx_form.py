"""ChooseMxForm: a product keeps the form that the target has, or takes the other."""

from typing import Any

import pytest

from stepwell.translate.rewrites.mxfp.choose_mx_form import ChooseMxForm

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
