"""What the lowerings of resizing, ordering, scattering, … leave alone, each with its reason."""

from rewrite_cases import cases

from stepwell.translate.decompositions import promotions
from stepwell.translate.lowerings.lowering import step
from stepwell.translate.lowerings.tosa import discrete, reductions, resizing
from stepwell.translate.lowerings.tosa.indexed import indices, orders, scatters
from stepwell.translate.lowerings.tosa.integers.reductions import int8_resize
from stepwell.translate.rewrites.slices.write_by_cat import write_by_cat

test_what_operators_leave = cases(resizing)("""
an image of integers -> refused: uint8
    %y = aten.upsample_nearest2d.default(%x: ui8[1, 1, 2, 2], [4, 4])
an image computed at run time -> refused: the height or width of the image is symbolic
    %y = aten.upsample_nearest2d.default(%x: f32[1, 1, s0, 2], [4, 4])
""")


test_int8_resize_slices = cases(step(int8_resize), step(write_by_cat, kernels=False), promotions)("""
lower-int8-resize: a volume of int8 -> refused: RESIZE has two axes
    %r = quant.dcast(%x: i8<0.5>[1, 1, 1, 1, 1])
    %z = aten.upsample_nearest3d.default(%r, [2, 2, 2])
    %y = quant.qcast(%z) -> i8<1.0>[1, 1, 2, 2, 2]
lower-int8-resize: an unsupported form -> refused: RESIZE has no parameters for these sizes
    %r = quant.dcast(%x: i8<0.5>[1, 1, 20, 2]); %z = aten.upsample_nearest2d.default(%r, [1, 1])
    %y = quant.qcast(%z) -> i8<1.0>[1, 1, 1, 1]
lower-int8-resize: int16 between pixels -> refused: 48 bits
    %r = quant.dcast(%x: i16<0.5>[1, 1, 2, 2])
    %z = aten.upsample_bilinear2d.default(%r, [4, 4], false)
    %y = quant.qcast(%z) -> i16<1.0>[1, 1, 4, 4]
write-by-cat: a slice known only at run time -> refused: known only at run time
    %y = aten.slice_scatter.default(%x: f32[9], %z: f32[s0], 0, 0, %n: int<s0>)
write-by-cat: a row known only at run time -> refused: known only at run time
    %y = aten.select_scatter.default(%x: f32[9], %z: f32[], 0, %n: int<s0>)
write-by-cat: rows known only at run time -> refused: is symbolic
    %y = aten.select_scatter.default(%x: f32[s0], %s: f32[], 0, 0)
write-by-cat: a row of another type -> refused: several dtypes
    %y = aten.select_scatter.default(%x: f32[4], %s: f16[], 0, 0)
promote-operands: one type -> unchanged
    %y = aten.add.Tensor(%x: f32[3], %x)
promote-operands: a number for a tensor -> unchanged
    %y = aten.add.Tensor(%x: f32[3], %n: int<s0>)
""")


test_reductions = cases(reductions)("""
places of the largest integers -> refused: int32
    %v, %y = aten.max.dim(%x: i32[2, 3], 1); return %y
the largest byte -> refused: int8
    %y = aten.max.default(%x: i8[3])
""")


test_orders = cases(orders)("""
a single number in order -> refused: a scalar
    %y, %i = aten.sort.default(%x: f32[]); return %y
a long row in order -> refused: the op sorts 33 of 257 elements
    %y, %i = aten.topk.default(%x: f32[257], 33); return %y
integers in order -> refused: int32
    %y, %i = aten.sort.default(%x: i32[3]); return %y
""")


test_indices = cases(indices)("""
elements of a number -> refused: the operand is a scalar
    %y = aten.gather.default(%x: f32[], 0, %i: constant "#zeros" i64[1])
""")


test_scatters = cases(scatters)("""
many writes -> refused: 33 writes to indices that may be equal
    %y = aten.scatter.src(%x: f32[4], 0, %i: i64[33], %s: f32[33])
many comparisons -> refused: the indices would take 25000000 comparisons
    %y = aten.scatter_add.default(%x: f32[5000], 0, %i: i64[5000], %s: f32[5000])
a sum of bytes -> refused: the op writes to a scalar, or to int8
    %y = aten.scatter_add.default(%x: i8[4], 0, %i: i64[1], %s: i8[1])
a scatter into a number -> refused: a scalar
    %y = aten.scatter.value(%x: f32[], 0, %i: constant "#zeros" i64[], 3)
scaled rows -> refused: alpha is 2
    %y = aten.index_add.default(%x: f32[4], 0, %i: i64[1], %s: f32[1], alpha=2)
a part of another axis -> refused: a part of another axis
    %y = aten.scatter.value(%x: f32[2, 4], 1, %i: i64[1, 1], 3)
a mean of what is written -> refused: reduces the written values by mean
    %y = aten.scatter_reduce.two(%x: f32[4], 0, %i: i64[1], %s: f32[1], "mean")
only what is written -> refused: must be ignored
    %y = aten.scatter_reduce.two(%x: f32[4], 0, %i: i64[1], %s: f32[1], "sum", include_self=false)
""")


test_discrete = cases(discrete)("""
a shift of truth values -> refused: several dtypes
    %y = aten.bitwise_left_shift.Tensor(%x: i8[4], %s: i16[4])
a shift of 64 bits -> refused: 8, 16 and 32 bits
    %y = aten.bitwise_left_shift.Tensor_Scalar(%x: i64[4], 3)
bits of truth -> unchanged
    %y = aten.bitwise_not.default(%x: i1[3])
bits of two widths -> refused: several dtypes
    %y = aten.bitwise_xor.Tensor(%x: i32[4], %z: i8[4])
bits and a size -> refused: known only at run time
    %y = aten.bitwise_and.Scalar(%x: i32[3], %n: int<s0>)
truth alone -> unchanged
    %y = aten.logical_not.default(%x: i1[3])
a quotient that is not rounded -> refused: without a rounding mode
    %y = aten.div.Scalar_mode(%x: f32[3], 2.0, rounding_mode=none)
integers by a fraction -> refused: the operands are integers
    %y = aten.div.Scalar_mode(%x: i32[3], 0.5, rounding_mode="floor")
integers of two types -> refused: several dtypes
    %y = aten.div.Tensor_mode(%x: i64[3], %z: constant "#ones" i32[3], rounding_mode="floor")
a whole quotient of bytes -> refused: TOSA cannot divide int8
    %y = aten.div.Scalar_mode(%x: i8[3], 2, rounding_mode="floor")
a whole quotient of floats -> refused: the divisor is known only at run time
    %y = aten.div.Tensor_mode(%x: f32[3], %z: f32[3], rounding_mode="floor")
an unsupported form -> refused: is not a power of two
    %y = aten.div.Scalar_mode(%x: f32[3], 3.0, rounding_mode="floor")
a very large power -> refused: is not a power of two
    %y = aten.div.Scalar_mode(%x: f32[3], 3.6893488147419103e+19, rounding_mode="floor")
a whole quotient by a size -> refused: known only at run time
    %y = aten.floor_divide.Scalar(%x: i32[3], %n: int<s0>)
a quotient of rank 7 -> refused: rank 7 is above
    %y = aten.floor_divide.Scalar(%x: i32[1, 1, 1, 1, 1, 1, 2], 3)
""")
