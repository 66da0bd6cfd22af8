"""RelabelInput and RelabelOutput: beyond the documented example, and what they leave alone."""

from typing import Any

import pytest

from stepwell.translate.rewrites.cmsis import MERGE_TRANSPOSES
from stepwell.translate.rewrites.cmsis.layout.relabel_ports import RelabelInput, RelabelOutput

IN = 'stepwell.inputs = [{name = "x", dim_order = array<i64: 0, 2, 3, 1>}]'
OUT = 'stepwell.outputs = [{name = "y", dim_order = array<i64: 0, 2, 3, 1>}]'
Q = """%q = cmsis.quantize_per_tensor(%x) {scale = 0.5 : f64, zero_point = 0 : i64,
    quant_min = -128 : i64, quant_max = 127 : i64, dtype = "int8"}
    : (tensor<1x2x3x4xf32>) -> tensor<1x2x3x4xi8>"""
TURN = """%y = cmsis.transpose(%q) {perm = array<i64: 0, 2, 3, 1>}
    : (tensor<1x2x3x4xi8>) -> tensor<1x3x4x2xi8>"""
BACK = """%t = cmsis.transpose(%x) {perm = array<i64: 0, 3, 1, 2>}
    : (tensor<1x3x4x2xi8>) -> tensor<1x2x3x4xi8>"""
D = """%y = cmsis.dequantize_per_tensor(%t) {scale = 0.5 : f64, zero_point = 0 : i64,
    quant_min = -128 : i64, quant_max = 127 : i64, dtype = "int8"}
    : (tensor<1x2x3x4xi8>) -> tensor<1x2x3x4xf32>"""


def entering(attributes: str, *lines: str, taken: str = "%x: tensor<1x2x3x4xf32>") -> str:
    gives = "tensor<1x3x4x2xi8>"
    body = "\n".join(lines)
    return (
        f"func.func @forward({taken}) -> {gives} attributes {{{attributes}}} {{\n"
        f"{body}\nfunc.return %y : {gives}\n}}"
    )


def leaving(attributes: str, *lines: str, returned: str = "%y", gives: str = "") -> str:
    gives = gives or "tensor<1x2x3x4xf32>"
    body = "\n".join(lines)
    listed = f"({gives})" if "," in gives else gives
    return (
        f"func.func @forward(%x: tensor<1x3x4x2xi8>) -> {listed} attributes {{{attributes}}} {{\n"
        f"{body}\nfunc.return {returned} : {gives}\n}}"
    )


def test_an_output_that_lies_as_it_is_asked_for_is_relabeled(apply: Any):
    """Both transposes are one, or none."""
    done = apply(leaving(OUT, BACK, D), RelabelOutput(), *MERGE_TRANSPOSES)
    assert done.ops() == ["cmsis.dequantize_per_tensor", "cmsis.relabel"]


def test_an_output_that_lies_otherwise_is_transposed_as_integers(apply: Any):
    read = D.replace("%t", "%x").replace("1x2x3x4", "1x3x4x2")
    done = apply(leaving(OUT, read, gives="tensor<1x3x4x2xf32>"), RelabelOutput())
    assert done.ops() == ["cmsis.transpose", "cmsis.dequantize_per_tensor", "cmsis.relabel"]


def test_an_input_that_is_read_as_it_was_exported_is_transposed_as_integers(apply: Any):
    text = entering(IN, Q.replace("%q", "%y")).replace("tensor<1x3x4x2xi8>", "tensor<1x2x3x4xi8>")
    assert apply(text, RelabelInput()).ops() == [
        "cmsis.relabel", "cmsis.quantize_per_tensor", "cmsis.transpose",
    ]  # fmt: skip


def test_a_row_major_input_is_transposed(refused: Any):
    refused(entering('stepwell.inputs = [{name = "x"}]', Q, TURN), RelabelInput())


def test_a_value_computed_before_is_transposed(refused: Any):
    negated = "%n = aten.neg.default(%x) : (tensor<1x2x3x4xf32>) -> tensor<1x2x3x4xf32>"
    refused(entering(IN, negated, Q.replace("(%x)", "(%n)"), TURN), RelabelInput())


def test_a_step_of_another_kind_is_transposed(refused: Any):
    taken = "%x: tensor<1x2x3x4xi8>, %l: tensor<256xi8>"
    table = (
        "%q = cmsis.quantized_activation(%x, %l) : (tensor<1x2x3x4xi8>, tensor<256xi8>) "
        "-> tensor<1x2x3x4xi8>"
    )
    ports = IN.replace("}]", '}, {name = "l"}]')
    refused(entering(ports, table, TURN, taken=taken), RelabelInput())


def test_a_row_major_output_is_transposed(refused: Any):
    refused(leaving('stepwell.outputs = [{name = "y"}]', BACK, D), RelabelOutput())


SHORT = ("quant_min = -128 : i64, quant_max = 127 : i64, dtype = \"int8\"",
         "quant_min = -32768 : i64, quant_max = 32767 : i64, dtype = \"int16\"")  # fmt: skip


def test_integers_of_16_bits_have_no_transpose(refused: Any):
    line = Q.replace("%q", "%y").replace(*SHORT).replace("xi8", "xi16")
    text = entering(IN, line).replace("tensor<1x3x4x2xi8>", "tensor<1x2x3x4xi16>")
    refused(text, RelabelInput(), reason="the value is quantized to i16, not int8")


def test_a_volume_has_no_transpose(refused: Any):
    line = Q.replace("%q", "%y").replace("1x2x3x4", "1x2x3x4x5")
    ports = IN.replace("0, 2, 3, 1", "0, 2, 3, 4, 1")
    text = entering(ports, line, taken="%x: tensor<1x2x3x4x5xf32>")
    refused(
        text.replace("tensor<1x3x4x2xi8>", "tensor<1x2x3x4x5xi8>"), RelabelInput(), reason="5 axes"
    )


def test_an_order_in_which_the_elements_lie_as_they_did_is_none(refused: Any):
    line = Q.replace("%q", "%y").replace("1x2x3x4", "1x2x1x1")
    text = entering(IN, line, taken="%x: tensor<1x2x1x1xf32>")
    refused(text.replace("tensor<1x3x4x2xi8>", "tensor<1x2x1x1xi8>"), RelabelInput())


@pytest.mark.parametrize("first", [True, False])
def test_an_output_that_is_returned_row_major_too_is_transposed(refused: Any, first: bool):
    other = '{name = "z"}'
    ports = OUT.replace("[{", f"[{other}, {{") if first else OUT.replace("}]", f"}}, {other}]")
    gives = "tensor<1x2x3x4xf32>, tensor<1x2x3x4xf32>"
    refused(leaving(ports, BACK, D, returned="%y, %y", gives=gives), RelabelOutput())


def test_an_output_with_another_user_is_transposed(refused: Any):
    read = D.replace("%y", "%r")
    negated = "%y = aten.neg.default(%r) : (tensor<1x2x3x4xf32>) -> tensor<1x2x3x4xf32>"
    refused(leaving(OUT, BACK, read, negated), RelabelOutput())


def test_a_value_of_a_branch_has_no_port(refused: Any):
    """Its argument 0 is not the method's, which does lie as the transposition asks."""
    held, made = "tensor<1x2x3x4xf32>", "tensor<1x3x4x2xi8>"
    arm = f"^bb0(%b: {held}):\n{Q}\n{TURN}\ncontrol.yield %y : {made}"
    arm = arm.replace("(%x)", "(%b)")
    text = entering(
        IN.replace("}]", '}, {name = "c"}]'),
        f'%y = "control.cond"(%c, %x) ({{\n{arm}\n}}, {{\n{arm}\n}}) : (tensor<i1>, {held}) -> {made}',
        taken=f"%x: {held}, %c: tensor<i1>",
    )
    refused(text, RelabelInput())
