"""The grammars: which nodes of each target are combined, and at which sizes.

One axis stands for any number of axes of elementwise nodes. Data movement has grammars of two and
three axes, whose sizes differ, are equal, or are 1.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

from stepwell.cost_model.discovery.grammar import Grammar

_VECTOR = ({"A": 512},)
_MATRIX = ({"A": 2, "B": 3, "C": 4}, {"A": 3, "B": 3, "C": 3}, {"A": 1, "B": 4, "C": 1})
_IMAGE = ({"A": 2, "B": 3, "C": 4, "D": 5}, {"A": 1, "B": 2, "C": 2, "D": 2})
_EVEN = ({"A": 4, "B": 6}, {"A": 6, "B": 6})
_CUBE = ({"A": 2, "B": 3, "C": 4}, {"A": 2, "B": 2, "C": 2}, {"A": 1, "B": 3, "C": 1})

_XNNPACK = {
    "signs": """abs(x) negate(x) clamp(x,output_min=0.0) clamp(x,output_max=0.0)
        clamp(x,output_min=0.0,output_max=6.0) add(x,y) subtract(x,y) minimum(x,y) maximum(x,y)""",
    "curves": """exp(x) log(x) square_root(x) reciprocal_square_root(x) square(x) sigmoid(x)
        tanh(x) gelu(x) hardswish(x) sine(x) cosine(x) negate(x) abs(x) multiply(x,y) divide(x,y)
        add(x,y)""",
    "products": """square(x) multiply(x,y) divide(x,y) add(x,y) subtract(x,y) negate(x) abs(x)
        square_root(x) reciprocal_square_root(x)""",
    "rounding": """floor(x) ceiling(x) negate(x) abs(x) add(x,y) subtract(x,y)
        clamp(x,output_min=-1.0,output_max=1.0) leaky_relu(x,negative_slope=0.5)
        elu(x,alpha=1.0) prelu(x,y)""",
    "ranges": """clamp(x,output_min=0.0) clamp(x,output_min=-1.0,output_max=1.0)
        clamp(x,output_min=0.0,output_max=6.0) clamp(x,output_min=2.0,output_max=4.0) negate(x)
        add(x,y) add(x,y,output_min=0.0) multiply(x,y) multiply(x,y,output_min=0.0)
        maximum(x,y) minimum(x,y)""",
}
_XNNPACK_MOVES = """static_transpose(x,perm=ORDER) static_reshape(x,new_shape=SHAPE)
    static_slice(x,offsets=PART,sizes=PART) concatenate2(x,y,axis=AXIS)
    static_constant_pad(x,pre_paddings=PADS,post_paddings=PADS,padding_value=0.0)"""
_XNNPACK_JOINS = """concatenate2(x,y,axis=AXIS) concatenate3(x,y,z,axis=AXIS)
    concatenate4(x,y,z,w,axis=AXIS) static_slice(x,offsets=CUT,sizes=CUT)"""
_XNNPACK_PARTS = """static_slice(x,offsets=CUT,sizes=CUT) concatenate2(x,y,axis=AXIS)
    static_transpose(x,perm=ORDER) static_reshape(x,new_shape=SHAPE) negate(x) add(x,y)"""
_XNNPACK_BYTES = """add(x,y) subtract(x,y) multiply(x,y) clamp(x,output_min=0.0)
    clamp(x,output_min=0.0,output_max=6.0) negate(x) abs(x) minimum(x,y) maximum(x,y)
    leaky_relu(x,negative_slope=0.5) convert(x,to=f32) convert(x,to=q1) convert(x,to=q2)"""
_XNNPACK_LAYERS = """fully_connected(x,w) fully_connected(x,w,b) add(x,y) multiply(x,y)
    static_transpose(x,perm=ORDER) clamp(x,output_min=0.0) negate(x) softmax(x)
    concatenate2(x,y,axis=AXIS)"""

_TOSA_INTEGERS = {
    "arithmetic": """add(x,y) sub(x,y) mul(x,y,'i8:0') maximum(x,y) minimum(x,y) abs(x)
        negate(x,'i32:0','i32:0') arithmetic_right_shift(x,'i32:1',round=False)
        logical_left_shift(x,'i32:1') bitwise_not(x)""",
    "bits": """bitwise_and(x,y) bitwise_or(x,y) bitwise_xor(x,y) bitwise_not(x) add(x,y) sub(x,y)
        clz(x) logical_right_shift(x,'i32:1') logical_left_shift(x,'i32:1')
        arithmetic_right_shift(x,'i32:1',round=True) negate(x,'i32:0','i32:0')""",
    "ranges": """clamp(x,min_val='i8:-1',max_val='i8:127') clamp(x,min_val='i8:0',max_val='i8:127')
        clamp(x,min_val='i8:0',max_val='i8:6') cast(x,to=i8) cast(x,to=i32) maximum(x,y)
        minimum(x,y) add(x,y) sub(x,y) abs(x) negate(x,'i32:0','i32:0')""",
    "truths": """logical_and(x,y) logical_or(x,y) logical_xor(x,y) logical_not(x) equal(x,y)
        greater(x,y) greater_equal(x,y) select(x,y,z) maximum(x,y) minimum(x,y) cast(x,to=i32)
        cast(x,to=i1)""",
}
_TOSA_MOVES = """transpose(x,perms=ORDER) reshape(x,shape=SHAPE) concat(x,y,axis=AXIS)
    slice(x,start=PART,size=PART) pad(x,padding=PAIRS,pad_const='i32:0') reverse(x,axis=AXIS)"""
_TOSA_JOINS = """concat(x,y,axis=AXIS) concat(x,y,z,axis=AXIS) slice(x,start=CUT,size=CUT)
    reverse(x,axis=AXIS) pad(x,padding=PAIRS,pad_const='i32:0') add(x,y)"""
_TOSA_SUMS = """reduce_sum(x,axis=AXIS) reduce_max(x,axis=AXIS) reduce_min(x,axis=AXIS)
    transpose(x,perms=ORDER) reverse(x,axis=AXIS) concat(x,y,axis=AXIS)
    add(x,y) maximum(x,y) negate(x,'i32:0','i32:0') reshape(x,shape=SHAPE)"""

_CMSIS_ADD = (
    "quantized_add(x,y,self_multiplier=1073741824,self_shift={},other_multiplier=1073741824,"
    "other_shift={},output_multiplier=1073741824,output_shift=-18,activation_min={},"
    "activation_max=127,self_zero_point=0,other_zero_point=0,output_zero_point=0)"
)
_CMSIS_ELEMENTWISE = " ".join(
    (
        _CMSIS_ADD.format(0, 0, -128),
        _CMSIS_ADD.format(0, 0, 0),
        _CMSIS_ADD.format(-1, 0, -128),
        "quantized_mul(x,y,output_multiplier=1073741824,output_shift=-5,self_zero_point=0,"
        "other_zero_point=0,output_zero_point=0)",
        "minimum(x,y) maximum(x,y) copy(x) quantized_activation(x,t)",
    )
)
_CMSIS_MOVES = """transpose(x,perm=ORDER) pad(x,pre_pad=PADS,post_pad=PADS,pad_value=0) copy(x)
    maximum(x,y) minimum(x,y)"""

_ATEN = {
    "signs": """neg.default(x) abs.default(x) relu.default(x) add.Tensor(x,y) sub.Tensor(x,y)
        maximum.default(x,y) minimum.default(x,y) mul.Scalar(x,2.0) mul.Scalar(x,-1.0)
        clamp.default(x,-1.0,1.0) sign.default(x)""",
    "products": """mul.Tensor(x,y) div.Tensor(x,y) add.Tensor(x,y) reciprocal.default(x)
        sqrt.default(x) rsqrt.default(x) pow.Tensor_Scalar(x,2.0) neg.default(x) abs.default(x)
        mul.Scalar(x,0.5) mul.Scalar(x,2.0)""",
    "curves": """exp.default(x) log.default(x) sigmoid.default(x) tanh.default(x) neg.default(x)
        add.Scalar(x,1.0) reciprocal.default(x) mul.Tensor(x,y) relu.default(x) expm1.default(x)
        log1p.default(x)""",
    "truths": """lt.Tensor(x,y) le.Tensor(x,y) gt.Tensor(x,y) eq.Tensor(x,y) ne.Tensor(x,y)
        logical_not.default(x) logical_and.default(x,y) logical_or.default(x,y)
        where.self(x,y,z) maximum.default(x,y) isnan.default(x)""",
    "rounding": """floor.default(x) ceil.default(x) round.default(x) trunc.default(x)
        frac.default(x) neg.default(x) sub.Tensor(x,y) add.Tensor(x,y) abs.default(x)
        sign.default(x)""",
}
_ATEN_MOVES = """permute.default(x,ORDER) view.default(x,SHAPE) cat.default(x,y,dim=AXIS)
    flip.default(x,AXES) slice.Tensor(x,dim=AXIS,start=1) slice.Tensor(x,dim=AXIS,end=1)
    unsqueeze.default(x,AXIS) squeeze.dim(x,AXIS) constant_pad_nd.default(x,TORCH_PADS,0.0)"""
_ATEN_SUMS = """sum.dim_IntList(x,AXES,True) mean.dim(x,AXES,True) amax.default(x,AXES,True)
    neg.default(x) add.Tensor(x,y) permute.default(x,ORDER) mul.Scalar(x,2.0) flip.default(x,AXES)
    cat.default(x,y,dim=AXIS) softmax.int(x,AXIS)"""
_ATEN_LAYERS = """mm.default(x,y) permute.default(x,ORDER) add.Tensor(x,y) mul.Scalar(x,2.0)
    neg.default(x) sum.dim_IntList(x,AXES,True) cat.default(x,y,dim=AXIS)"""


def _grammars() -> Iterator[Grammar]:
    def grammar(name: str, target: str, level: str, inputs: str, nodes: str, most: int,
                ranks: tuple[int, ...] = (1,), sizes: tuple[dict[str, int], ...] = _VECTOR
    ) -> Grammar:  # fmt: skip
        templates = tuple(re.split(r"(?<=\))\s+", nodes.strip()))
        return Grammar(
            name, target, level, tuple(inputs.split(", ")), templates, most, ranks, sizes
        )

    for name, nodes in _XNNPACK.items():
        yield grammar(name, "xnnpack", "xnnpack", "f32 A, f32 A", nodes, 4)
    for rank, axes, sizes in ((2, "A B", _MATRIX), (3, "A B C", _CUBE)):
        for target, level, kind, name, nodes in (
            ("xnnpack", "xnnpack", "f32", "moves", _XNNPACK_MOVES),
            ("tosa-1.0+int", "tosa", "i32", "moves", _TOSA_MOVES),
            ("tosa-1.0+int", "tosa", "i32", "sums", _TOSA_SUMS),
            ("aten", "aten", "f32", "moves", _ATEN_MOVES),
            ("aten", "aten", "f32", "sums", _ATEN_SUMS),
        ):
            ranks = (rank,) if (level, name) == ("aten", "sums") else (rank - 1, rank)
            inputs = f"{kind} {axes}, {kind} {axes}"
            yield grammar(f"{name}-{rank}", target, level, inputs, nodes, 4, ranks, sizes)
    matrices = ", ".join(["f32 A B"] * 4)
    yield grammar("joins", "xnnpack", "xnnpack", matrices, _XNNPACK_JOINS, 3, (2,), _EVEN)
    yield grammar("parts", "xnnpack", "xnnpack", matrices[:16], _XNNPACK_PARTS, 3, (2,), _EVEN)
    matrices = ", ".join(["i32 A B"] * 3)
    yield grammar("joins", "tosa-1.0+int", "tosa", matrices, _TOSA_JOINS, 3, (2,), _EVEN)
    inputs = "i8 A B C D, i8 A B C D"
    yield grammar("moves", "cortex-m55", "cmsis", inputs, _CMSIS_MOVES, 4, (4,), _IMAGE)
    inputs = "f32 A B, f32 C B, f32 C, f32 A C"
    yield grammar("layers", "xnnpack", "xnnpack", inputs, _XNNPACK_LAYERS, 4, (2,), _MATRIX)
    inputs = "f32 A B, f32 B C, f32 A C"
    yield grammar("layers", "aten", "aten", inputs, _ATEN_LAYERS, 4, (2,), _MATRIX)
    yield grammar("bytes", "xnnpack", "xnnpack", "q1 A, q1 A", _XNNPACK_BYTES, 4)
    of = {"truths": "i1 A, i1 A, i32 A, i32 A", "ranges": "i8 A, i32 A, i32 A"}
    for name, nodes in _TOSA_INTEGERS.items():
        inputs = of.get(name, "i32 A, i32 A")
        yield grammar(name, "tosa-1.0+int", "tosa", inputs, nodes, 4)
    yield grammar("bytes", "cortex-m55", "cmsis", "i8 A, i8 A, i8 256", _CMSIS_ELEMENTWISE, 4)
    nodes = _CMSIS_ELEMENTWISE.replace(" quantized_activation(x,t)", "")
    yield grammar("three", "cortex-m55", "cmsis", "i8 A, i8 A, i8 A", nodes, 4)
    for name, nodes in _ATEN.items():
        inputs = "i1 A, i1 A, f32 A, f32 A" if name == "truths" else "f32 A, f32 A"
        yield grammar(name, "aten", "aten", inputs, nodes, 4)


@cache
def grammars() -> dict[str, Grammar]:
    """Return every grammar by `target/name`."""
    return {f"{each.target}/{each.name}": each for each in _grammars()}
