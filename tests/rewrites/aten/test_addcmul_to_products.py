"""AddcmulToProducts: beyond its documented example, and what it leaves alone."""

from typing import Any

from stepwell.translate.rewrites.aten.addcmul_to_products import AddcmulToProducts


def test_several_dtypes_are_refused(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<2x3xf32>, %z: tensor<2x3xf32>, %h: tensor<2x3xf16>",
            "%y = aten.addcmul.default(%x, %z, %h) : (tensor<2x3xf32>, tensor<2x3xf32>, tensor<2x3xf16>) -> tensor<2x3xf32>",
            gives="tensor<2x3xf32>",
        ),
        AddcmulToProducts(),
        "dtypes",
    )


def test_addcdiv_is_a_quotient_and_a_sum(apply: Any, method: Any):
    done = apply(
        method(
            "%x: tensor<2x3xf32>, %z: tensor<2x3xf32>, %w: tensor<3xf32>",
            "%y = aten.addcdiv.default(%x, %z, %w) : (tensor<2x3xf32>, tensor<2x3xf32>, tensor<3xf32>) -> tensor<2x3xf32>",
            gives="tensor<2x3xf32>",
        ),
        AddcmulToProducts(),
    )
    assert done.ops() == ["aten.div.Tensor", "aten.add.Tensor"]


def test_a_factor_known_only_at_run_time_is_refused(refused: Any, method_of_n: Any):
    held = "tensor<2x3xf32>"
    types = f'({held}, {held}, {held}, !stepwell.int<"n">) -> {held}'
    call = f"%y = aten.addcmul.default(%x, %x, %x, value=%n) : {types}"
    refused(
        method_of_n(f"%x: {held}", call, gives=held), AddcmulToProducts(), "known only at run time"
    )
