"""Casts that cancel: beyond its documented example, and what it leaves alone."""

from typing import Any

from stepwell.translate.rewrites.quant import CANCEL_CASTS

STORAGE, QUANTIZED = CANCEL_CASTS

A, B = ("tensor<4x!quant.uniform<i8:f32, " + numbers + ">>" for numbers in ("0.5:3", "0.5:2"))
R = "tensor<4xf32>"


def test_a_quantization_of_what_was_dequantized_alike_is_nothing(apply: Any, method: Any):
    text = method(
        f"%x: {A}",
        f"%r = quant.dcast %x : {A} to {R}",
        f"%y = quant.qcast %r : {R} to {A}",
        gives=A,
    )
    assert apply(text, *CANCEL_CASTS).ops() == []


def test_other_parameters_are_a_requantization(refused: Any, method: Any):
    text = method(
        f"%x: {A}",
        f"%r = quant.dcast %x : {A} to {R}",
        f"%y = quant.qcast %r : {R} to {B}",
        gives=B,
    )
    refused(text, QUANTIZED)
    refused(text, STORAGE)


def test_casts_of_different_kinds_do_not_undo_each_other(refused: Any, method: Any):
    text = method(
        f"%x: {A}",
        f"%r = quant.dcast %x : {A} to {R}",
        f"%n = aten.neg.default(%r) : ({R}) -> {R}",
        f"%y = quant.qcast %n : {R} to {A}",
        gives=A,
    )
    refused(text, QUANTIZED)
    refused(text, STORAGE)
