"""Softmax: beyond their examples, and what stays."""

from typing import Any

from rewrite_cases import cases

from stepwell.ir.rewriting.rewrite import History, run_rewrites
from stepwell.translate.canonicalize.softmaxes import RULES

ALL = {rule.name: rule() for rule in RULES}


test_softmaxes = cases(
    RULES,
    """
softmax-axis-from-front: a softmax in normal form -> unchanged
    %y = aten._softmax.default(%x: f32[2, 3], 1, false)
a dtype casts first -> aten._to_copy.default, aten._softmax.default
    %y = aten.softmax.int(%x: f32[2, 3], -1, f64)
""",
)


def test_a_cast_within_the_softmax_is_refused(programs: Any):
    program, _ = programs("%y = aten._softmax.default(%x: f16[2, 3], -1, true)")
    history = History()
    assert run_rewrites(program, [ALL["softmax-axis-from-front"]], history) == 0
    assert "only CUDA" in next(iter(history.refusals.values())).reason
