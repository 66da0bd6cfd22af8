"""IntegerPorts: ports only quantized become integers, and what stands in the way of it."""

from typing import Any

import pytest

import stepwell
from stepwell.ir.rewriting.rewrite import History
from stepwell.translate.rewrites.cmsis.layout.integer_ports import IntegerPorts

Q, OTHER = "!quant.uniform<i8:f32, 0.5:3>", "!quant.uniform<i8:f32, 0.25>"
IN = f"%q = quant.qcast %x : tensor<4xf32> to tensor<4x{Q}>"
OUT = f"%y = quant.dcast %q : tensor<4x{Q}> to tensor<4xf32>"


def text(*lines: str) -> str:
    body = "\n".join(lines)
    return (
        "func.func @forward(%x: tensor<4xf32>) -> tensor<4xf32> attributes "
        f'{{stepwell.inputs = [{{name = "x"}}], stepwell.outputs = [{{name = "y"}}]}} {{\n'
        f"{body}\nfunc.return %y : tensor<4xf32>\n}}"
    )


def applied(programs: Any, io: Any, *lines: str) -> Any:
    program, _ = programs(text(*lines))
    IntegerPorts(io).apply(program, History())
    return program


def test_one_port_is_an_integer_and_the_other_stays_a_float(programs: Any):
    func = applied(programs, {"x": "int8"}, IN, OUT).method()
    taken, given = func.function_type.inputs.data[0], func.function_type.outputs.data[0]
    assert (str(taken), str(given)) == ("tensor<4xi8>", "tensor<4xf32>")
    assert func.attributes["cmsis.input_quantization"].data[0].data == "scale=0.5 zero_point=3"


@pytest.mark.parametrize(
    ("io", "lines", "reason"),
    [
        ("int8", (IN, OUT, "%n = aten.neg.default(%x) : (tensor<4xf32>) -> tensor<4xf32>"),
         "aten.neg.default reads it as floats"),
        ("int8", (IN, OUT, f"%p = quant.qcast %x : tensor<4xf32> to tensor<4x{OTHER}>"),
         "it is quantized in 2 ways"),
        ("int8", ("%y = aten.neg.default(%x) : (tensor<4xf32>) -> tensor<4xf32>",),
         "aten.neg.default gives floats"),
        ("int16", (IN, OUT), "the program quantizes it to int8"),
        ("uint32", (IN, OUT), "there is no element type 'uint32'"),
        ({"z": "int8"}, (IN, OUT), "there is no input or output 'z'"),
    ],
)  # fmt: skip
def test_what_cannot_be_an_integer_says_why(
    programs: Any, io: Any, lines: tuple[str, ...], reason: str
):
    with pytest.raises(stepwell.StepwellError, match=reason):
        applied(programs, io, *lines)


def test_an_input_that_nothing_reads_says_so(programs: Any):
    constant = "%y = aten.zeros.default([4]) : () -> tensor<4xf32>"
    with pytest.raises(stepwell.StepwellError, match="nothing reads it"):
        applied(programs, {"x": "int8"}, constant)
