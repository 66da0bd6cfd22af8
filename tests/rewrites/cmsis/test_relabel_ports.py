"""RelabelInput and RelabelOutput: beyond the documented example, and what they leave alone."""

from typing import Any

import pytest

from stepwell.translate.rewrites.cmsis.placing.relabel_ports import RelabelInput, RelabelOutput

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


def test_an_output_that_lies_as_it_is_asked_for_is_relabelled(apply: Any):
    done = apply(leaving(OUT, BACK, D), RelabelOutput())
    assert done.ops() == ["cmsis.dequantize_per_tensor", "cmsis.relabel"]


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


def test_what_was_not_transposed_is_not_relabelled(refused: Any):
    read = D.replace("%t", "%x").replace("1x2x3x4", "1x3x4x2")
    refused(leaving(OUT, read, gives="tensor<1x3x4x2xf32>"), RelabelOutput())


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
