"""Softmax: beyond their examples, and what stays."""

from typing import Any

from stepwell.ir.rewriting.rewrite import History, run_rewrites
from stepwell.translate.rewrites.attention.softmaxes import RULES

ALL = {rule.name: rule() for rule in RULES}


def test_a_softmax_in_normal_form_stays(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<2x3xf32>",
            "%y = aten._softmax.default(%x, 1, false) : (tensor<2x3xf32>) -> tensor<2x3xf32>",
            gives="tensor<2x3xf32>",
        ),
        ALL["softmax-axis-from-front"],
    )


def test_a_dtype_casts_first(apply: Any, method: Any):
    done = apply(
        method(
            "%x: tensor<2x3xf32>",
            "%y = aten.softmax.int(%x, -1, f64) : (tensor<2x3xf32>) -> tensor<2x3xf64>",
            gives="tensor<2x3xf64>",
        ),
        *ALL.values(),
    )
    assert done.ops() == ["aten._to_copy.default", "aten._softmax.default"]


def test_a_cast_within_the_softmax_is_refused(programs: Any, method: Any):
    line = "%y = aten._softmax.default(%x, -1, true) : (tensor<2x3xf16>) -> tensor<2x3xf32>"
    program, _ = programs(method("%x: tensor<2x3xf16>", line, gives="tensor<2x3xf32>"))
    history = History()
    assert run_rewrites(program, [ALL["softmax-axis-from-front"]], history) == 0
    assert "only CUDA" in next(iter(history.refusals.values())).reason
