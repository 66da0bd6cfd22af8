"""Layout ops without copies, and where elements move."""

from typing import Any

import pytest
from rewrite_cases import cases

import stepwell
from stepwell.ir.rewriting.rewrite import History
from stepwell.translate.lowerings.cmsis import borders
from stepwell.translate.rewrites.cmsis import MERGE_TRANSPOSES, MERGE_VIEWS
from stepwell.translate.rewrites.cmsis.layout import slice_as_part
from stepwell.translate.rewrites.cmsis.layout.absorb_flatten import AbsorbFlatten
from stepwell.translate.rewrites.cmsis.layout.integer_ports import IntegerPorts
from stepwell.translate.rewrites.cmsis.layout.lower_permute import LowerPermute
from stepwell.translate.rewrites.quant import CANCEL_CASTS

test_layout = cases(AbsorbFlatten, slice_as_part)("""
absorb-flatten: another order of the image is absorbed too -> quant.scast, aten.view.default, quant.scast, quant.scast, cmsis.quantized_linear
    %w = quant.scast(%ws: weight "w" i8[1, 12]) -> i8<0.25>[1, 12]
    %t = cmsis.transpose(%x: i8<0.5:3>[2, 2, 2, 3], perm=[0, 2, 3, 1]) -> i8<0.5:3>[2, 2, 3, 2]
    %r = quant.scast(%t) -> i8[2, 2, 3, 2]; %v = aten.view.default(%r, [2, 12])
    %f = quant.scast(%v) -> i8<0.5:3>[2, 12]
    %y = cmsis.quantized_linear(%f, %w, input_offset=-3, filter_offset=0, output_offset=-1, requantize_multipliers=[1073741824], requantize_shifts=[-3], activation_max=127, activation_min=-128) -> i8<2.0:-1>[2, 1]
absorb-flatten: rows that are part of an image -> unchanged
    %w = quant.scast(%ws: weight "w" i8[1, 6]) -> i8<0.25>[1, 6]
    %t = cmsis.transpose(%x: i8<0.5:3>[2, 2, 2, 3], perm=[0, 3, 1, 2]) -> i8<0.5:3>[2, 3, 2, 2]
    %r = quant.scast(%t) -> i8[2, 3, 2, 2]; %v = aten.view.default(%r, [4, 6])
    %f = quant.scast(%v) -> i8<0.5:3>[4, 6]
    %y = cmsis.quantized_linear(%f, %w, input_offset=-3, filter_offset=0, output_offset=-1, requantize_multipliers=[1073741824], requantize_shifts=[-3], activation_max=127, activation_min=-128) -> i8<2.0:-1>[4, 1]
absorb-flatten: an order that moves the batch -> unchanged
    %w = quant.scast(%ws: weight "w" i8[1, 12]) -> i8<0.25>[1, 12]
    %t = cmsis.transpose(%x: i8<0.5:3>[2, 2, 2, 3], perm=[1, 0, 2, 3]) -> i8<0.5:3>[2, 2, 2, 3]
    %r = quant.scast(%t) -> i8[2, 2, 2, 3]; %v = aten.view.default(%r, [2, 12])
    %f = quant.scast(%v) -> i8<0.5:3>[2, 12]
    %y = cmsis.quantized_linear(%f, %w, input_offset=-3, filter_offset=0, output_offset=-1, requantize_multipliers=[1073741824], requantize_shifts=[-3], activation_max=127, activation_min=-128) -> i8<2.0:-1>[2, 1]
absorb-flatten: without a transposition there is nothing to absorb -> unchanged
    %w = quant.scast(%ws: weight "w" i8[1, 12]) -> i8<0.25>[1, 12]
    %r = quant.scast(%x: i8<0.5:3>[2, 2, 2, 3]) -> i8[2, 2, 2, 3]
    %v = aten.view.default(%r, [2, 12]); %f = quant.scast(%v) -> i8<0.5:3>[2, 12]
    %y = cmsis.quantized_linear(%f, %w, input_offset=-3, filter_offset=0, output_offset=-1, requantize_multipliers=[1073741824], requantize_shifts=[-3], activation_max=127, activation_min=-128) -> i8<2.0:-1>[2, 1]
absorb-flatten: a weight that is computed keeps its columns -> refused: computed at run time
    %t = cmsis.transpose(%x: i8<0.5:3>[2, 2, 2, 3], perm=[0, 3, 1, 2]) -> i8<0.5:3>[2, 3, 2, 2]
    %r = quant.scast(%t) -> i8[2, 3, 2, 2]; %v = aten.view.default(%r, [2, 12])
    %f = quant.scast(%v) -> i8<0.5:3>[2, 12]
    %y = cmsis.quantized_linear(%f, %w: i8<0.25>[1, 12], input_offset=-3, filter_offset=0, output_offset=-1, requantize_multipliers=[1073741824], requantize_shifts=[-3], activation_max=127, activation_min=-128) -> i8<2.0:-1>[2, 1]
absorb-flatten: a transposed value with another user is transposed anyway -> unchanged
    %w = quant.scast(%ws: weight "w" i8[1, 12]) -> i8<0.25>[1, 12]
    %t = cmsis.transpose(%x: i8<0.5:3>[2, 2, 2, 3], perm=[0, 3, 1, 2]) -> i8<0.5:3>[2, 3, 2, 2]
    %r = quant.scast(%t) -> i8[2, 3, 2, 2]; %v = aten.view.default(%r, [2, 12])
    %f = quant.scast(%v) -> i8<0.5:3>[2, 12]
    %y = cmsis.quantized_linear(%f, %w, input_offset=-3, filter_offset=0, output_offset=-1, requantize_multipliers=[1073741824], requantize_shifts=[-3], activation_max=127, activation_min=-128) -> i8<2.0:-1>[2, 1]
    return %y, %t
absorb-flatten: a weight with another user keeps its columns -> refused: used elsewhere
    %w = quant.scast(%ws: weight "w" i8[1, 12]) -> i8<0.25>[1, 12]
    %t = cmsis.transpose(%x: i8<0.5:3>[2, 2, 2, 3], perm=[0, 3, 1, 2]) -> i8<0.5:3>[2, 3, 2, 2]
    %r = quant.scast(%t) -> i8[2, 3, 2, 2]; %v = aten.view.default(%r, [2, 12])
    %f = quant.scast(%v) -> i8<0.5:3>[2, 12]
    %y = cmsis.quantized_linear(%f, %w, input_offset=-3, filter_offset=0, output_offset=-1, requantize_multipliers=[1073741824], requantize_shifts=[-3], activation_max=127, activation_min=-128) -> i8<2.0:-1>[2, 1]
    return %y, %w
absorb-flatten: a window over rows is no layer over each -> unchanged
    %w = quant.scast(%ws: weight "w" i8[1, 2, 1, 12]) -> i8<0.25>[1, 2, 1, 12]
    %t = cmsis.transpose(%x: i8<0.5:3>[2, 2, 2, 3], perm=[0, 3, 1, 2]) -> i8<0.5:3>[2, 3, 2, 2]
    %r = quant.scast(%t) -> i8[2, 3, 2, 2]; %v = aten.view.default(%r, [1, 2, 1, 12])
    %f = quant.scast(%v) -> i8<0.5:3>[1, 2, 1, 12]
    %y = cmsis.quantized_conv2d_nhwc(%f, %w, stride=[1, 1], padding=[0, 0], dilation=[1, 1], input_offset=-3, output_offset=-1, requantize_multipliers=[1073741824], requantize_shifts=[-3], activation_min=-128, activation_max=127, scratch=0) -> i8<2.0:-1>[1, 1, 1, 1]
absorb-flatten: a batch known only at run time -> unchanged
    %w = quant.scast(%ws: weight "w" i8[1, 12]) -> i8<0.25>[1, 12]
    %t = cmsis.transpose(%x: i8<0.5:3>[s0, 2, 2, 3], perm=[0, 3, 1, 2]) -> i8<0.5:3>[s0, 3, 2, 2]
    %r = quant.scast(%t) -> i8[s0, 3, 2, 2]; %v = aten.flatten.using_ints(%r, 1)
    %f = quant.scast(%v) -> i8<0.5:3>[s0, 12]
    %y = cmsis.quantized_linear(%f, %w, input_offset=-3, filter_offset=0, output_offset=-1, requantize_multipliers=[1073741824], requantize_shifts=[-3], activation_max=127, activation_min=-128) -> i8<2.0:-1>[s0, 1]
select-as-part: one step is a part and a view -> cmsis.minimum, cmsis.part, quant.scast, aten.view.default, quant.scast, quant.scast, quant.scast, cmsis.minimum
    %a = cmsis.minimum(%x: i8<0.5>[1, 3, 4], %x) -> i8<0.5>[1, 3, 4]
    %r = quant.scast(%a) -> i8[1, 3, 4]; %s = aten.select.int(%r, 1, -1)
    %p = quant.scast(%s) -> i8<0.5>[1, 4]; %y = cmsis.minimum(%p, %p) -> i8<0.5>[1, 4]
slice-as-part: what is no run of memory is copied -> refused: is not contiguous
    %a = cmsis.minimum(%x: i8<0.5>[2, 4], %x) -> i8<0.5>[2, 4]; %r = quant.scast(%a) -> i8[2, 4]
    %s = aten.slice.Tensor(%r, 1, 0, 2); %p = quant.scast(%s) -> i8<0.5>[2, 2]
    %y = cmsis.minimum(%p, %p) -> i8<0.5>[2, 2]
slice-as-part: what is no run of memory is copied -> refused: the slice has step 2
    %a = cmsis.minimum(%x: i8<0.5>[1, 4], %x) -> i8<0.5>[1, 4]; %r = quant.scast(%a) -> i8[1, 4]
    %s = aten.slice.Tensor(%r, 1, 0, 4, 2); %p = quant.scast(%s) -> i8<0.5>[1, 2]
    %y = cmsis.minimum(%p, %p) -> i8<0.5>[1, 2]
slice-as-part: what is no run of memory is copied -> refused: channels last
    %a = cmsis.minimum(%x: i8<0.5>[1, 2, 2, 2], %x) -> i8<0.5>[1, 2, 2, 2]
    %r = quant.scast(%a) -> i8[1, 2, 2, 2]; %s = aten.slice.Tensor(%r, 1, 0, 1)
    %p = quant.scast(%s) -> i8<0.5>[1, 1, 2, 2]; %y = cmsis.minimum(%p, %p) -> i8<0.5>[1, 1, 2, 2]
slice-as-part: a part of an input is copied -> refused: an input's or a constant's
    %r = quant.scast(%a: i8<0.5>[1, 4]) -> i8[1, 4]; %s = aten.slice.Tensor(%r, 1, 0, 2)
    %p = quant.scast(%s) -> i8<0.5>[1, 2]; %y = cmsis.minimum(%p, %p) -> i8<0.5>[1, 2]
slice-as-part: a result has bytes of its own -> refused: memory of its own
    %a = cmsis.minimum(%x: i8<0.5>[1, 4], %x) -> i8<0.5>[1, 4]; %r = quant.scast(%a) -> i8[1, 4]
    %s = aten.slice.Tensor(%r, 1, 0, 2); %y = quant.scast(%s) -> i8<0.5>[1, 2]
""")

test_layout_unrun = cases(slice_as_part, run=False)("""
slice-as-part: an axis known only at run time is copied -> refused: known only at run time
    %a = cmsis.minimum(%x: i8<0.5>[s, 4], %x) -> i8<0.5>[s, 4]; %r = quant.scast(%a) -> i8[s, 4]
    %s = aten.slice.Tensor(%r, 0, 0, 2); %p = quant.scast(%s) -> i8<0.5>[2, 4]
    %y = cmsis.minimum(%p, %p) -> i8<0.5>[2, 4]
slice-as-part: a place known only at run time is copied -> refused: known only at run time
    %n = aten.sym_size.int(%q: f32[2], 0)
    %a = cmsis.minimum(%x: i8<0.5>[1, 4], %x) -> i8<0.5>[1, 4]; %r = quant.scast(%a) -> i8[1, 4]
    %s = aten.slice.Tensor(%r, 1, 0, %n); %p = quant.scast(%s) -> i8<0.5>[1, 2]
    %y = cmsis.minimum(%p, %p) -> i8<0.5>[1, 2]
slice-as-part: a part of a constant is copied -> refused: an input's or a constant's
    %a = quant.scast(%r: constant "w" i8[1, 4]) -> i8<0.5>[1, 4]; %t = quant.scast(%a) -> i8[1, 4]
    %s = aten.slice.Tensor(%t, 1, 0, 2); %p = quant.scast(%s) -> i8<0.5>[1, 2]
    %y = cmsis.minimum(%p, %p) -> i8<0.5>[1, 2]
""")


test_transposes = cases(MERGE_TRANSPOSES)("""
two that do not cancel are one -> cmsis.transpose
    %a = cmsis.transpose(%x: i8<0.5>[2, 3, 4], perm=[1, 0, 2]) -> i8<0.5>[3, 2, 4]
    %y = cmsis.transpose(%a, perm=[0, 2, 1]) -> i8<0.5>[3, 4, 2]
a constant is transposed ahead of time -> quant.scast
    %w = quant.scast(%ws: weight i8[2, 3]) -> i8<0.5>[2, 3]
    %y = cmsis.transpose(%w, perm=[1, 0]) -> i8<0.5>[3, 2]
where only single elements move it is a view -> without cmsis.transpose
    %y = cmsis.transpose(%x: i8<0.5>[2, 1, 4], perm=[1, 0, 2]) -> i8<0.5>[1, 2, 4]
one that moves something stays -> unchanged
    %y = cmsis.transpose(%x: i8<0.5>[2, 3], perm=[1, 0]) -> i8<0.5>[3, 2]
""")


test_views = cases(MERGE_VIEWS)("""
a reshape to the same shape is none -> nothing
    %y = aten.view.default(%x: i8[2, 4], [2, 4])
a permutation is no reshape -> unchanged
    %v = aten.view.default(%x: i8[8], [2, 4]); %y = aten.permute.default(%v, [1, 0])
a size known only at run time is kept -> unchanged
    %u = aten.unsqueeze.default(%x: i8[s0, 4], 1); %y = aten.squeeze.dims(%u, [1])
""")


def test_the_identity_is_nothing(apply: Any):
    text = """
        %r = quant.scast(%x: i8<0.5>[2, 3]) -> i8[2, 3]
        %t = aten.permute.default(%r, [0, 1]); %y = quant.scast(%t) -> i8<0.5>[2, 3]
    """
    done = apply(text, LowerPermute(), *CANCEL_CASTS)
    assert done.ops() == ["quant.scast", "quant.scast"] or not done.ops()


test_lower_movement = cases(LowerPermute, borders)("""
lower-permute: a permutation after a view is still of quantized values -> quant.scast, aten.view.default, quant.scast, cmsis.transpose, quant.scast, quant.scast
    %r = quant.scast(%x: i8<0.5>[6]) -> i8[6]; %v = aten.view.default(%r, [2, 3])
    %t = aten.t.default(%v); %y = quant.scast(%t) -> i8<0.5>[3, 2]
lower-permute: five dimensions -> refused: takes 4 at most
    %r = quant.scast(%x: i8<0.5>[1, 2, 3, 2, 2]) -> i8[1, 2, 3, 2, 2]
    %t = aten.permute.default(%r, [1, 0, 2, 3, 4]); %y = quant.scast(%t) -> i8<0.5>[2, 1, 3, 2, 2]
lower-permute: other integers are left to the portable kernel -> unchanged
    %r = quant.scast(%x: i16<0.5>[2, 3]) -> i16[2, 3]; %t = aten.permute.default(%r, [1, 0])
    %y = quant.scast(%t) -> i16<0.5>[3, 2]
lower-permute: an input -> unchanged
    %n = aten.neg.default(%x: i8[2, 3]); %y = aten.permute.default(%x, [1, 0])
lower-permute: a sum -> unchanged
    %n = aten.neg.default(%x: i8[2, 3]); %y = aten.permute.default(%n, [1, 0])
lower-pad: a value that only the result rounds is padded with -> cmsis.pad
    %xr = quant.dcast(%x: i8<0.5:3>[2, 3]); %z = aten.constant_pad_nd.default(%xr, [0, 1], 0.6)
    %y = quant.qcast(%z) -> i8<0.5:3>[2, 4]
lower-pad: what the kernel does not do -> refused: the mode is replicate
    %xr = quant.dcast(%x: i8<0.5:3>[2, 3]); %z = aten.pad.default(%xr, [1, 1], "replicate")
    %y = quant.qcast(%z) -> i8<0.5:3>[2, 5]
lower-pad: rank 5 -> refused: rank 4 at most
    %xr = quant.dcast(%x: i8<0.5:3>[1, 1, 2, 2, 3]); %z = aten.constant_pad_nd.default(%xr, [0, 1])
    %y = quant.qcast(%z) -> i8<0.5:3>[1, 1, 2, 2, 4]
lower-pad: what the kernel does not do -> refused: crops
    %xr = quant.dcast(%x: i8<0.5:3>[2, 3]); %z = aten.constant_pad_nd.default(%xr, [0, -1])
    %y = quant.qcast(%z) -> i8<0.5:3>[2, 2]
lower-pad: no such value -> refused: type does not represent
    %xr = quant.dcast(%x: i8<0.5:3>[2, 3]); %z = aten.constant_pad_nd.default(%xr, [0, 1], 0.6)
    %y = quant.qcast(%z) -> i8<0.25>[2, 4]
lower-pad: a shape known only at run time -> refused: rank 4 at most
    %xr = quant.dcast(%x: i8<0.5>[s0, 3])
    %z = aten.constant_pad_nd.default(%xr, [0, 1]) -> f32[s0, 4]
    %y = quant.qcast(%z) -> i8<0.5>[s0, 4]
""")


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
         "the value is quantized in 2 ways"),
        ("int8", ("%y = aten.neg.default(%x) : (tensor<4xf32>) -> tensor<4xf32>",),
         "aten.neg.default gives floats"),
        ("int16", (IN, OUT), "the program quantizes it to int8"),
        ("uint32", (IN, OUT), "there is no element type 'uint32'"),
        ({"z": "int8"}, (IN, OUT), "there is no input or output 'z'"),
    ],
)  # fmt: skip
def test_port_that_cannot_be_an_integer_is_refused(
    programs: Any, io: Any, lines: tuple[str, ...], reason: str
):
    with pytest.raises(stepwell.StepwellError, match=reason):
        applied(programs, io, *lines)


def test_an_input_that_nothing_reads_says_so(programs: Any):
    constant = "%y = aten.zeros.default([4]) : () -> tensor<4xf32>"
    with pytest.raises(stepwell.StepwellError, match="nothing reads it"):
        applied(programs, {"x": "int8"}, constant)
