"""Statements of two sides each, and in which arithmetic they are equal: bits, reals or neither."""

# ruff: noqa: E501 (a statement a line)

import re
from contextlib import suppress

from short_ir import program_text

from stepwell.ir.program import Program
from stepwell.validation.certificates.checker.statements import Undecided, decide

KINDS = ("bits", "reals")
TYPES = {
    "x": "f32[3, 4]", "y": "f32[3, 4]", "w": "f32[4, 3]", "i": "i32[3, 4]",
    "b": "i8[3, 4]", "h": "f16[3, 4]", "u": "ui8[3, 4]", "t": "i1[3, 4]",
    "n": "i64[2]", "j": "i64[3, 4]", "v": "f32[4]", "p": "f32[1, 2, 4, 4]", "q": "f32[1, 2, 5, 4]",
    "k": "f32[3, 2, 3, 3]", "d": "f64[3, 4]", "z": "f32[1, 4]", "o": "f32[3]",
}  # fmt: skip

Case = tuple[str, str, str]
"""The first arithmetic in which it holds (with `64` if of narrowed integers from 0 to 2³¹ − 1, with
`|` if no rounding crosses a step), and the two sides: ops of `aten`, with `;` between them, of
names of `TYPES` and of results, of which `#1` is that of the first op.
"""
CASES: dict[str, Case] = {
    "a sum in another order": ("bits", "add.Tensor(x, y)", "add.Tensor(y, x)"),
    "any of one element": ("", "any.dim(z, 0) ; _to_copy.default(#1, dtype=f32)", "view.default(z, [4])"),
    "NaN replaced, or infinity": ("", "nan_to_num.default(x, 1.0)", "nan_to_num.default(x, posinf=1.0)"),
    "a limit at the largest number": ("", "clamp_max.default(d, 1.7976931348623157e308)", "d"),
    "a shift of bytes, or of wider integers": ("", "bitwise_left_shift.Tensor_Scalar(u, 3) ; _to_copy.default(#1, dtype=f32)", "_to_copy.default(u, dtype=i32) ; bitwise_left_shift.Tensor_Scalar(#1, 3) ; _to_copy.default(#2, dtype=f32)"),
    "a sum with itself": ("", "add.Tensor(x, y)", "add.Tensor(x, x)"),
    "a difference as a sum": ("bits", "sub.Tensor(x, y)", "neg.default(y) ; add.Tensor(x, #1)"),
    "a difference in another order": ("", "sub.Tensor(x, y)", "sub.Tensor(y, x)"),
    "a sum of three": ("reals", "add.Tensor(x, y) ; add.Tensor(#1, x)", "add.Tensor(x, x) ; add.Tensor(#1, y)"),
    "a scaled sum": ("reals", "add.Tensor(x, y, alpha=2)", "mul.Scalar(y, 2.0) ; add.Tensor(x, #1)"),
    "a factor of 1": ("bits", "mul.Scalar(x, 1.0)", "x"),
    "a factor of −1": ("reals", "mul.Scalar(x, -1.0)", "neg.default(x)"),
    "a factor of 0": ("", "mul.Scalar(x, 0.0)", "mul.Scalar(x, -0.0) ; add.Scalar(#1, 1.0)"),
    "a constant in another type": ("reals", "mul.Scalar(x, 0.1)", "div.Scalar(x, 10.0)"),
    "a constant that is off": ("", "mul.Scalar(x, 0.1)", "mul.Scalar(x, 0.1000001)"),
    "a root as a constant": ("reals", "mul.Scalar(x, 0.7071067811865476) ; mul.Scalar(#1, 0.7071067811865476)", "mul.Scalar(x, 0.5)"),
    "a fourth root": ("reals", "mul.Scalar(x, 0.8408964152537145) ; mul.Scalar(#1, 0.8408964152537145)", "mul.Scalar(x, 0.7071067811865476)"),
    "a quotient by 1": ("bits", "div.Scalar(x, 1.0)", "x"),
    "a quotient by 0": ("", "div.Scalar(x, 0.0)", "mul.Scalar(x, 0.0)"),
    "a quotient of quotients": ("reals", "div.Tensor(x, y)", "reciprocal.default(y) ; mul.Tensor(x, #1)"),
    "a quotient in another order": ("", "div.Tensor(x, y)", "div.Tensor(y, x)"),
    "a root of a quotient": ("reals", "rsqrt.default(x)", "sqrt.default(x) ; reciprocal.default(#1)"),
    "a root": ("", "sqrt.default(x)", "rsqrt.default(x)"),
    "a power less 1": ("reals", "expm1.default(x)", "exp.default(x) ; sub.Scalar(#1, 1.0)"),
    "a power": ("", "expm1.default(x)", "exp.default(x)"),
    "a logarithm of a sum": ("reals", "log1p.default(x)", "add.Scalar(x, 1.0) ; log.default(#1)"),
    "a square": ("bits", "pow.Tensor_Scalar(x, 2)", "mul.Tensor(x, x)"),
    "a power that is a root": ("bits", "pow.Tensor_Scalar(x, 0.5)", "sqrt.default(x)"),
    "a power that is an inverse": ("bits", "pow.Tensor_Scalar(x, -1)", "reciprocal.default(x)"),
    "a power that is an inverse root": ("bits", "pow.Tensor_Scalar(x, -0.5)", "rsqrt.default(x)"),
    "powers": ("", "pow.Tensor_Scalar(x, 3)", "pow.Tensor_Scalar(x, 4)"),
    "a sigmoid": ("reals", "sigmoid.default(x)", "neg.default(x) ; exp.default(#1) ; add.Scalar(#2, 1.0) ; reciprocal.default(#3)"),
    "a rectified number": ("bits", "relu.default(x)", "clamp_min.default(x, 0)"),
    "limits": ("bits", "hardtanh.default(x, -2.0, 3.0)", "clamp_min.default(x, -2.0) ; clamp_max.default(#1, 3.0)"),
    "a limit without an effect": ("bits", "clamp.default(x, -2.0, inf)", "clamp_min.default(x, -2.0)"),
    "a limit below": ("", "clamp_min.default(x, 0.0)", "clamp_max.default(x, 0.0)"),
    "the greater in another order": ("bits", "maximum.default(x, y)", "maximum.default(y, x)"),
    "the greater and the less": ("", "maximum.default(x, y)", "minimum.default(x, y)"),
    "less than": ("bits", "lt.Tensor(x, y)", "gt.Tensor(y, x)"),
    "at most": ("bits", "le.Tensor(x, y)", "ge.Tensor(y, x)"),
    "at most, by its contrary": ("", "le.Tensor(x, y)", "gt.Tensor(x, y)"),
    "either": ("bits", "logical_xor.default(x, y)", "logical_xor.default(y, x)"),
    "less or equal": ("", "lt.Tensor(x, y)", "le.Tensor(x, y)"),
    "equal to 0": ("bits", "eq.Scalar(x, 0)", "logical_not.default(x)"),
    "equal to 1": ("", "eq.Scalar(x, 1)", "logical_not.default(x)"),
    "equal in another order": ("bits", "eq.Tensor(x, y)", "eq.Tensor(y, x)"),
    "truths in another order": ("bits", "logical_and.default(x, y)", "logical_and.default(y, x)"),
    "and is no or": ("", "logical_and.default(x, y)", "logical_or.default(x, y)"),
    "a choice": ("bits", "where.self(t, x, y)", "logical_not.default(t) ; logical_not.default(#1) ; where.self(#2, x, y)"),
    "a choice in another order": ("", "where.self(t, x, y)", "where.self(t, y, x)"),
    "rounding": ("", "floor.default(x)", "ceil.default(x)"),
    "integers in another order": ("bits", "add.Tensor(i, i) ; mul.Tensor(#1, i)", "mul.Tensor(i, i) ; add.Tensor(#1, #1)"),
    "bytes in another order": ("", "add.Tensor(b, b) ; mul.Tensor(#1, b)", "mul.Tensor(b, b) ; add.Tensor(#1, #1)"),
    "the negative of a byte": ("", "neg.default(b) ; neg.default(#1)", "mul.Tensor(b, b)"),
    "the negative of negatives": ("bits", "neg.default(i) ; neg.default(#1)", "i"),
    "a byte as an integer": ("bits", "_to_copy.default(b, dtype=i16) ; _to_copy.default(#1, dtype=i32)", "_to_copy.default(b, dtype=i32)"),
    "a byte and the integer that it is": ("", "_to_copy.default(b, dtype=i16)", "b"),
    "numbers in another shape": ("", "view.default(z, [4])", "z"),
    "a byte without a sign": ("", "_to_copy.default(u, dtype=i8) ; _to_copy.default(#1, dtype=i32)", "_to_copy.default(u, dtype=i32)"),
    "a truth as an integer": ("bits", "_to_copy.default(t, dtype=i8) ; _to_copy.default(#1, dtype=i32)", "_to_copy.default(t, dtype=i32)"),
    "a byte that wraps": ("", "_to_copy.default(i, dtype=i8) ; _to_copy.default(#1, dtype=i32)", "i"),
    "an integer that is widened": ("reals", "add.Tensor(i, i) ; _to_copy.default(#1, dtype=i64)", "_to_copy.default(i, dtype=i64) ; add.Tensor(#1, #1)"),
    "an integer that is narrowed": ("reals64", "_to_copy.default(j, dtype=i32) ; _to_copy.default(#1, dtype=i64)", "j"),
    "an integer that is masked": ("reals64", "bitwise_and.Scalar(j, 4294967295)", "j"),
    "an integer that is masked otherwise": ("", "bitwise_and.Scalar(j, 4294967294)", "j"),
    "an integer that is narrowed to a byte": ("", "_to_copy.default(j, dtype=i8) ; _to_copy.default(#1, dtype=i64)", "j"),
    "a wide integer as a float": ("reals", "_to_copy.default(j, dtype=f32) ; neg.default(#1)", "neg.default(j) ; _to_copy.default(#1, dtype=f32)"),
    "a float as an integer": ("", "_to_copy.default(x, dtype=i32) ; _to_copy.default(#1, dtype=f32)", "x"),
    "a float that is whole": ("reals", "_to_copy.default(i, dtype=f64) ; neg.default(#1) ; _to_copy.default(#2, dtype=i32)", "neg.default(i)"),
    "a float that is halved": ("", "_to_copy.default(i, dtype=f64) ; div.Scalar(#1, 2.0) ; _to_copy.default(#2, dtype=i32) ; add.Tensor(#3, #3)", "i"),
    "a wide integer as a float and back": ("", "_to_copy.default(j, dtype=f32) ; _to_copy.default(#1, dtype=i64)", "j"),
    "a wide integer as a single, a double and back": ("", "_to_copy.default(j, dtype=f32) ; _to_copy.default(#1, dtype=f64) ; _to_copy.default(#2, dtype=i64)", "j"),
    "a comparison of a half": ("reals|", "_to_copy.default(x, dtype=f16) ; gt.Scalar(#1, 0.0)", "gt.Scalar(x, 0.0)"),
    "comparisons in another order of places": ("reals|", "permute.default(x, [1, 0]) ; _to_copy.default(#1, dtype=f16) ; gt.Scalar(#2, 0.0)", "gt.Scalar(x, 0.0) ; permute.default(#1, [1, 0])"),
    "the floor of a half": ("reals|", "_to_copy.default(x, dtype=f16) ; _to_copy.default(#1, dtype=f32) ; floor.default(#2)", "floor.default(x)"),
    "the sign of a scaled number": ("reals|", "mul.Scalar(x, -1.0) ; sign.default(#1)", "neg.default(x) ; sign.default(#1)"),
    "a truth of a scaled number": ("reals|", "mul.Scalar(x, -1.0) ; logical_not.default(#1)", "neg.default(x) ; logical_not.default(#1)"),
    "the place of the greatest sum": ("reals|", "add.Tensor(x, y) ; add.Tensor(#1, x) ; argmax.default(#2, 1)", "add.Tensor(x, x) ; add.Tensor(#1, y) ; argmax.default(#2, 1)"),
    "a choice by a number that is rounded": ("reals|", "mul.Scalar(x, -1.0) ; gt.Scalar(#1, 2.0) ; where.self(#2, x, y)", "neg.default(x) ; gt.Scalar(#1, 2.0) ; where.self(#2, x, y)"),
    "a choice of numbers that are rounded": ("reals", "gt.Scalar(x, 0.0) ; mul.Scalar(x, -1.0) ; where.self(#1, #2, y)", "gt.Scalar(x, 0.0) ; neg.default(x) ; where.self(#1, #2, y)"),
    "an unknown kernel of rounded numbers": ("reals|", "mul.Scalar(x, -1.0) ; cumsum.default(#1, 1)", "neg.default(x) ; cumsum.default(#1, 1)"),
    "an activation with a choice": ("reals", "elu.default(x) ; mul.Scalar(#1, -1.0)", "elu.default(x) ; neg.default(#1)"),
    "an activation of a rounded number": ("reals|", "mul.Scalar(x, -1.0) ; elu.default(#1)", "neg.default(x) ; elu.default(#1)"),
    "a rectified number that is rounded": ("reals", "mul.Scalar(x, -1.0) ; relu.default(#1)", "neg.default(x) ; relu.default(#1)"),
    "an integer of a rounded float": ("reals|", "mul.Scalar(x, -1.0) ; _to_copy.default(#1, dtype=i32)", "neg.default(x) ; _to_copy.default(#1, dtype=i32)"),
    "a whole float and one": ("reals", "_to_copy.default(i, dtype=f64) ; add.Scalar(#1, 1.0) ; _to_copy.default(#2, dtype=i32)", "add.Scalar(i, 1)"),
    "a whole float and a half": ("", "_to_copy.default(i, dtype=f64) ; add.Scalar(#1, 0.5) ; _to_copy.default(#2, dtype=i32) ; _to_copy.default(#3, dtype=f64)", "_to_copy.default(i, dtype=f64) ; add.Scalar(#1, 0.5)"),
    "a whole float and any": ("", "_to_copy.default(i, dtype=f32) ; add.Tensor(#1, x) ; _to_copy.default(#2, dtype=i32) ; _to_copy.default(#3, dtype=f32)", "_to_copy.default(i, dtype=f32) ; add.Tensor(#1, x)"),
    "whole floats of a constant": ("reals", "full.default([3, 4], 2.0, dtype=f64) ; _to_copy.default(i, dtype=f64) ; mul.Tensor(#1, #2) ; _to_copy.default(#3, dtype=i32)", "mul.Scalar(i, 2)"),
    "halves of a constant": ("", "full.default([3, 4], 0.5, dtype=f64) ; _to_copy.default(i, dtype=f64) ; mul.Tensor(#1, #2) ; _to_copy.default(#3, dtype=i32) ; _to_copy.default(#4, dtype=f64)", "full.default([3, 4], 0.5, dtype=f64) ; _to_copy.default(i, dtype=f64) ; mul.Tensor(#1, #2)"),
    "an exponential of a whole float": ("", "_to_copy.default(i, dtype=f64) ; exp.default(#1) ; _to_copy.default(#2, dtype=i32) ; _to_copy.default(#3, dtype=f64)", "_to_copy.default(i, dtype=f64) ; exp.default(#1)"),
    "a whole float as a byte": ("", "_to_copy.default(i, dtype=f64) ; _to_copy.default(#1, dtype=i8) ; _to_copy.default(#2, dtype=i32)", "i"),
    "a half": ("reals", "_to_copy.default(x, dtype=f16) ; _to_copy.default(#1, dtype=f32)", "x"),
    "a double": ("reals", "_to_copy.default(x, dtype=f64) ; _to_copy.default(#1, dtype=f32)", "x"),
    "a sum of halves": ("reals", "add.Tensor(h, h) ; _to_copy.default(#1, dtype=f32)", "_to_copy.default(h, dtype=f32) ; add.Tensor(#1, #1)"),
    "a sum of halves that is rounded once": ("bits", "add.Tensor(h, h)", "_to_copy.default(h, dtype=f32) ; add.Tensor(#1, #1) ; _to_copy.default(#2, dtype=f16)"),
    "views": ("bits", "view.default(x, [2, 6]) ; view.default(#1, [3, 4])", "x"),
    "permutations": ("bits", "permute.default(x, [1, 0]) ; permute.default(#1, [1, 0])", "x"),
    "a permutation as a view": ("", "permute.default(x, [1, 0]) ; view.default(#1, [3, 4])", "x"),
    "parts": ("bits", "slice.Tensor(x, 0, 0, 1) ; slice.Tensor(x, 0, 1, 3) ; cat.default([#1, #2], 0)", "x"),
    "parts in another order": ("", "slice.Tensor(x, 0, 0, 1) ; slice.Tensor(x, 0, 1, 3) ; cat.default([#2, #1], 0)", "x"),
    "padding": ("bits", "constant_pad_nd.default(x, [0, 1], 0.0) ; slice.Tensor(#1, 1, 0, 4)", "x"),
    "padding by another number": ("", "constant_pad_nd.default(x, [0, 1], 0.0) ; sum.dim_IntList(#1, [1])", "constant_pad_nd.default(x, [0, 1], 1.0) ; sum.dim_IntList(#1, [1])"),
    "padding as a concatenation": ("bits", "constant_pad_nd.default(x, [0, 1], 2.0)", "full.default([3, 1], 2.0) ; cat.default([x, #1], 1)"),
    "padding of integers as a concatenation": ("bits", "constant_pad_nd.default(b, [0, 1], 2)", "full.default([3, 1], 2, dtype=i8) ; cat.default([b, #1], 1)"),
    "bits as an integer": ("", "view.dtype(x, i32)", "_to_copy.default(x, dtype=i32)"),
    "an empty sum": ("bits", "zeros_like.default(x) ; add.Tensor(x, #1)", "mul.Scalar(x, 0.0) ; zeros_like.default(#1) ; add.Tensor(x, #2)"),
    "a sum of a permutation": ("bits", "sum.dim_IntList(x, [1])", "permute.default(x, [1, 0]) ; sum.dim_IntList(#1, [0])"),
    "a sum of another axis": ("", "sum.dim_IntList(x, [1], true)", "view.default(x, [4, 3]) ; sum.dim_IntList(#1, [0]) ; view.default(#2, [3, 1])"),
    "a sum of one number": ("", "view.default(z, [4, 1]) ; sum.dim_IntList(#1, [1])", "mul.Scalar(z, 2.0) ; view.default(#1, [4])"),
    "a sum of bytes": ("bits", "sum.dim_IntList(b, [1])", "_to_copy.default(b, dtype=i64) ; sum.dim_IntList(#1, [1])"),
    "a sum of floats as doubles": ("", "sum.dim_IntList(x, [1], dtype=f64) ; _to_copy.default(#1, dtype=f32)", "_to_copy.default(x, dtype=f64) ; amax.default(#1, [1]) ; _to_copy.default(#2, dtype=f32)"),
    "any of a permutation": ("bits", "any.dim(t, 0)", "permute.default(t, [1, 0]) ; any.dim(#1, 1)"),
    "any and all": ("", "any.dim(t, 0)", "all.dim(t, 0)"),
    "the greatest of one": ("bits", "amax.default(z, [0])", "view.default(z, [4])"),
    "the greatest of all": ("bits", "max.default(x)", "amax.default(x, [1]) ; amax.default(x, [0, 1])"),
    "the greatest twice": ("", "max.default(x)", "amax.default(x, [1]) ; amax.default(#1, [0])"),
    "the greater of two": ("bits", "max.other(x, y)", "maximum.default(y, x)"),
    "the place in all": ("", "argmax.default(x)", "permute.default(x, [1, 0]) ; argmax.default(#1)"),
    "the place with its axis": ("bits", "argmax.default(x, 1, true)", "argmax.default(x, -1) ; view.default(#1, [3, 1])"),
    "the places of the greatest and the least": ("", "argmax.default(x, 1)", "argmin.default(x, 1)"),
    "a mean": ("reals", "mean.dim(x, [1], true)", "sum.dim_IntList(x, [1], true) ; div.Scalar(#1, 4.0)"),
    "a mean of fewer": ("", "mean.dim(x, [1], true)", "sum.dim_IntList(x, [1], true) ; div.Scalar(#1, 3.0)"),
    "the greatest of a permutation": ("bits", "amax.default(x, [1])", "permute.default(x, [1, 0]) ; amax.default(#1, [0])"),
    "the greatest and the least": ("", "amax.default(x, [1])", "amin.default(x, [1])"),
    "the place of the greatest": ("bits", "argmax.default(x, 1)", "permute.default(x, [1, 0]) ; argmax.default(#1, 0)"),
    "the place of the greatest in another order": ("", "argmax.default(x, 1)", "flip.default(x, [1]) ; argmax.default(#1, 1)"),
    "the greatest with its place": ("bits", "max.dim(x, 1)", "amax.default(x, [1])"),
    "a product of matrices": ("bits", "mm.default(x, w)", "permute.default(x, [1, 0]) ; permute.default(w, [1, 0]) ; mm.default(#2, #1) ; permute.default(#3, [1, 0])"),
    "a product in another order": ("", "mm.default(x, w)", "mm.default(x, w) ; permute.default(#1, [1, 0])"),
    "a product of a scaled matrix": ("reals", "mul.Scalar(x, 2.0) ; mm.default(#1, w)", "mm.default(x, w) ; mul.Scalar(#1, 2.0)"),
    "a product and a bias": ("bits", "addmm.default(v, w, x)", "mm.default(w, x) ; add.Tensor(#1, v)"),
    "a product of a matrix and a vector": ("bits", "mv.default(x, v)", "view.default(v, [4, 1]) ; mm.default(x, #1) ; view.default(#2, [3])"),
    "products of matrices": ("bits", "view.default(x, [1, 3, 4]) ; view.default(w, [1, 4, 3]) ; bmm.default(#1, #2)", "mm.default(x, w) ; view.default(#1, [1, 3, 3])"),
    "a product of vectors": ("bits", "dot.default(v, v)", "mul.Tensor(v, v) ; view.default(v, [1, 4]) ; view.default(v, [4, 1]) ; mm.default(#2, #3) ; view.default(#4, [])"),
    "a product of a negative matrix": ("reals", "neg.default(x) ; mm.default(#1, w)", "neg.default(w) ; mm.default(x, #1)"),
    "a product without its bias": ("", "addmm.default(v, w, x)", "mm.default(w, x)"),
    "a scaled bias": ("", "addmm.default(v, w, x, beta=2)", "mm.default(w, x) ; add.Tensor(#1, v)"),
    "a sum as a product": ("bits", "ones_like.default(w) ; mm.default(x, #1) ; slice.Tensor(#2, 1, 0, 1)", "sum.dim_IntList(x, [1], true)"),
    "softmax of a permutation": ("bits", "_softmax.default(x, 1, false)", "permute.default(x, [1, 0]) ; _softmax.default(#1, 0, false) ; permute.default(#2, [1, 0])"),
    "softmax in steps": ("reals", "_softmax.default(x, 1, false)", "amax.default(x, [1], true) ; sub.Tensor(x, #1) ; exp.default(#2) ; sum.dim_IntList(#3, [1], true) ; div.Tensor(#3, #4)"),
    "softmax along another axis": ("", "_softmax.default(x, 1, false)", "_softmax.default(x, 0, false)"),
    "a lookup": ("bits", "embedding.default(x, n)", "index_select.default(x, 0, n)"),
    "a lookup in another table": ("", "embedding.default(x, n)", "embedding.default(y, n)"),
    "a lookup along another axis": ("", "index_select.default(x, 1, n)", "view.default(x, [4, 3]) ; permute.default(#1, [1, 0]) ; index_select.default(#2, 1, n)"),
    "a lookup along the last axis": ("bits", "index_select.default(x, 1, n)", "permute.default(x, [1, 0]) ; index_select.default(#1, 0, n) ; permute.default(#2, [1, 0])"),
    "a lookup of a scaled table": ("reals", "mul.Scalar(x, 2.0) ; embedding.default(#1, n)", "embedding.default(x, n) ; mul.Scalar(#1, 2.0)"),
    "a lookup of a negative table": ("bits", "neg.default(x) ; embedding.default(#1, n)", "embedding.default(x, n) ; neg.default(#1)"),
    "a lookup of powers": ("", "exp.default(x) ; embedding.default(#1, n)", "embedding.default(y, n) ; exp.default(#1)"),
    "a lookup in another order": ("", "index_select.default(x, 0, n)", "flip.default(n, [0]) ; index_select.default(x, 0, #1)"),
    "a lookup of rows in another order": ("", "embedding.default(x, n)", "flip.default(x, [0]) ; embedding.default(#1, n)"),
    "a lookup of a table of indices": ("bits", "view.default(n, [2, 1]) ; embedding.default(x, #1)", "embedding.default(x, n) ; view.default(#1, [2, 1, 4])"),
    "a lookup of elements": ("", "embedding.default(x, n)", "flip.default(x, [1]) ; embedding.default(#1, n)"),
    "averages of windows": ("bits", "avg_pool2d.default(p, [2, 2])", "permute.default(p, [0, 1, 3, 2]) ; avg_pool2d.default(#1, [2, 2]) ; permute.default(#2, [0, 1, 3, 2])"),
    "averages of other windows": ("", "avg_pool2d.default(p, [2, 2])", "avg_pool2d.default(p, [2, 2], [2, 2], [0, 0], false, true, 3)"),
    "maxima of windows": ("bits", "max_pool2d.default(p, [2, 2])", "permute.default(p, [0, 1, 3, 2]) ; max_pool2d.default(#1, [2, 2]) ; permute.default(#2, [0, 1, 3, 2])"),
    "maxima and averages": ("", "max_pool2d.default(p, [2, 2])", "avg_pool2d.default(p, [2, 2])"),
    "a convolution of a scaled image": ("reals", "mul.Scalar(p, 2.0) ; conv2d.default(#1, k)", "conv2d.default(p, k) ; mul.Scalar(#1, 2.0)"),
    "a convolution and a bias": ("bits", "conv2d.default(p, k, o)", "conv2d.default(p, k) ; view.default(o, [1, 3, 1, 1]) ; add.Tensor(#1, #2)"),
    "a convolution without its bias": ("", "conv2d.default(p, k, o)", "conv2d.default(p, k)"),
    "a convolution of a turned image": ("bits", "permute.default(p, [0, 1, 3, 2]) ; conv2d.default(#1, k)", "permute.default(k, [0, 1, 3, 2]) ; conv2d.default(p, #1) ; permute.default(#2, [0, 1, 3, 2])"),
    "a convolution with padding": ("reals", "conv2d.default(p, k, none, [1, 1], [1, 1])", "constant_pad_nd.default(p, [1, 1, 1, 1], 0.0) ; conv2d.default(#1, k)"),
    "a convolution with a stride": ("", "conv2d.default(p, k, none, [1, 1], [1, 1])", "conv2d.default(p, k, none, [1, 1], [1, 1]) ; flip.default(#1, [2])"),
    "random numbers that are hardly ever so": ("", "rand.default([3, 4]) ; gt.Scalar(#1, 0.9999999)", "full.default([3, 4], false, dtype=i1)"),
    "random numbers": ("", "rand_like.default(x)", "rand_like.default(x)"),
    "an unknown kernel": ("bits", "cumsum.default(x, 1) ; add.Tensor(x, #1)", "cumsum.default(x, 1) ; add.Tensor(#1, x)"),
    "an unknown kernel of another axis": ("", "cumsum.default(x, 1)", "cumsum.default(x, 0)"),
    "an unknown kernel of another tensor": ("", "cumsum.default(x, 1)", "cumsum.default(y, 1)"),
}  # fmt: skip


_NAME = re.compile(r"(?<![\w.%])([a-z])(?=[,)])")


def program(case: Case) -> Program:
    """A statement in the short form of tests, and the arguments that it reads."""
    lines, results = list[str](), list[str]()
    for side, text in zip("ab", case[1:3], strict=True):
        ops = text.split(" ; ") if "(" in text else []
        for at, op in enumerate(ops, 1):
            op = re.sub(r"#(\d+)", rf"%{side}\1", _NAME.sub(r"%\1", op))
            lines.append(f"%{side}{at}{'_, %unread' * ('max.dim' in op)} = aten.{op}")
        results.append(f"%{side}{len(ops)}" if ops else f"%{text}")
    read = set(re.findall(r"%([a-z])(?=[,)])", "\n".join(lines)))
    arguments = [f"%{name}: {TYPES[name]}" for name in sorted(read)]
    body = "\n".join([*arguments, *lines, f"return {', '.join(results)}"])
    return Program(program_text(body.replace("_, %unread", ", %unread")))


def readings(case: Case) -> list[str]:
    """The arithmetics in which the sides of a statement are equal."""
    held = list[str]()
    for kind in KINDS:
        with suppress(Undecided):
            held.append(decide(program(case), [kind], 7))
    return held
