"""LowerPermute and LowerPad: beyond the documented example, and what they leave alone."""

from typing import Any

import pytest

from stepwell.translate.lowerings.cmsis import borders
from stepwell.translate.lowerings.lowering import step
from stepwell.translate.rewrites.cmsis.layout.lower_permute import LowerPermute
from stepwell.translate.rewrites.quant import CANCEL_CASTS


def turned(words: Any, method: Any, shape: str, made: str, order: str, storage: str = "i8") -> str:
    return method(
        f"%x: {words.typed(shape, '0.5', storage)}",
        f"%r = quant.scast %x : {words.typed(shape, '0.5', storage)} to {words.raw(shape, storage)}",
        f"%t = aten.permute.default(%r, {order}) : ({words.raw(shape, storage)}) "
        f"-> {words.raw(made, storage)}",
        f"%y = quant.scast %t : {words.raw(made, storage)} to {words.typed(made, '0.5', storage)}",
        gives=words.typed(made, "0.5", storage),
    )


def test_a_permutation_behind_a_view_is_still_of_quantized_values(
    apply: Any, method: Any, words: Any
):
    text = method(
        f"%x: {words.typed('6')}",
        f"%r = quant.scast %x : {words.typed('6')} to {words.raw('6')}",
        "%v = aten.view.default(%r, [2, 3]) : (tensor<6xi8>) -> tensor<2x3xi8>",
        "%t = aten.t.default(%v) : (tensor<2x3xi8>) -> tensor<3x2xi8>",
        f"%y = quant.scast %t : {words.raw('3x2')} to {words.typed('3x2')}",
        gives=words.typed("3x2"),
    )
    assert "cmsis.transpose" in apply(text, LowerPermute()).ops()


def test_the_identity_is_nothing(apply: Any, method: Any, words: Any):
    done = apply(turned(words, method, "2x3", "2x3", "[0, 1]"), LowerPermute(), *CANCEL_CASTS)
    assert done.ops() == ["quant.scast", "quant.scast"] or not done.ops()


def test_five_dimensions_are_refused(refused: Any, method: Any, words: Any):
    text = turned(words, method, "1x2x3x2x2", "2x1x3x2x2", "[1, 0, 2, 3, 4]")
    refused(text, LowerPermute(), "takes 4 at most")


def test_other_integers_are_left_to_the_portable_kernel(refused: Any, method: Any, words: Any):
    refused(turned(words, method, "2x3", "3x2", "[1, 0]", "i16"), LowerPermute())


@pytest.mark.parametrize("source", ["%x", "%n"], ids=["an input", "a sum"])
def test_integers_that_are_no_quantized_values_are_left(refused: Any, method: Any, source: str):
    text = method(
        "%x: tensor<2x3xi8>",
        "%n = aten.neg.default(%x) : (tensor<2x3xi8>) -> tensor<2x3xi8>",
        f"%y = aten.permute.default({source}, [1, 0]) : (tensor<2x3xi8>) -> tensor<3x2xi8>",
        gives="tensor<3x2xi8>",
    )
    refused(text, LowerPermute())


def pad(
    words: Any,
    method: Any,
    shape: str,
    made: str,
    rest: str,
    *,
    op: str = "constant_pad_nd",
    given: str = "0.5:3",
    out: str = "0.5:3",
) -> str:
    return method(
        f"%x: {words.typed(shape, given)}",
        words.dcast("x", shape, given),
        words.call("z", f"aten.{op}.default", f"%xr, {rest}", (shape,), made),
        words.qcast("z", made, out),
        gives=words.typed(made, out),
    )


def test_a_value_that_only_the_result_rounds_is_padded_with(apply: Any, method: Any, words: Any):
    done = apply(pad(words, method, "2x3", "2x4", "[0, 1], 0.6"), step(borders.pad))
    assert done.ops() == ["cmsis.pad"]


@pytest.mark.parametrize(
    "shape, made, rest, op, out, reason",
    [
        ("2x3", "2x5", '[1, 1], "replicate"', "pad", "0.5:3", "its mode is replicate"),
        ("1x1x2x2x3", "1x1x2x2x4", "[0, 1]", "constant_pad_nd", "0.5:3", "rank 4 at most"),
        ("2x3", "2x2", "[0, -1]", "constant_pad_nd", "0.5:3", "crops"),
        ("2x3", "2x4", "[0, 1], 0.6", "constant_pad_nd", "0.25", "type does not represent"),
    ],
    ids=["replicated", "rank 5", "cropped", "no such value"],
)
def test_what_the_kernel_does_not_do_is_refused(
    refused: Any,
    method: Any,
    words: Any,
    shape: str,
    made: str,
    rest: str,
    op: str,
    out: str,
    reason: str,
):
    refused(pad(words, method, shape, made, rest, op=op, out=out), step(borders.pad), reason)


def test_a_shape_known_only_at_run_time_is_refused(refused: Any, method: Any, words: Any):
    def sized(columns: int, rest: str) -> str:
        return f'tensor<?x{columns}x{rest}, #stepwell.shape<["s0", {columns}]>>'

    held = "!quant.uniform<i8:f32, 0.5>"
    text = method(
        f"%x: {sized(3, held)}",
        f"%xr = quant.dcast %x : {sized(3, held)} to {sized(3, 'f32')}",
        f"%z = aten.constant_pad_nd.default(%xr, [0, 1]) : ({sized(3, 'f32')}) -> {sized(4, 'f32')}",
        f"%y = quant.qcast %z : {sized(4, 'f32')} to {sized(4, held)}",
        gives=sized(4, held),
    )
    refused(text, step(borders.pad), "rank 4 at most")
