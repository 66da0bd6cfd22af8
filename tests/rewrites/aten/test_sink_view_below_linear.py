"""A view sinks below a layer only if it keeps the features and only layers read it."""

from typing import Any

import torch
from rewrite_cases import cases

from stepwell.ir.rewriting.rewrite import History, run_rewrites
from stepwell.translate.rewrites.layers.sink_view_below_linear import RULES

(RULE,) = RULES.named("sink-view-below-linear")


test_sink_view_below_linear = cases(
    RULE,
    """
a view that changes the features -> unchanged
    %v = aten.view.default(%x: f32[3, 8], [6, 4])
    %y = aten.linear.default(%v, %w: weight f32[5, 4])
a vector that becomes a row -> unchanged
    %v = aten.view.default(%x: f32[4], [1, 4])
    %y = aten.linear.default(%v, %w: weight f32[5, 4])
a view that others read -> refused: reads the view too
    %v = aten.view.default(%x: f32[2, 3, 4], [6, 4])
    %l = aten.linear.default(%v, %w: weight f32[5, 4])
    %n = aten.neg.default(%v)
    %m = aten.linear.default(%n, %w)
    %y = aten.add.Tensor(%l, %m)
a view that is a layer s weight -> refused: reads the view too
    %v = aten.view.default(%x: f32[2, 3, 4], [6, 4])
    %l = aten.linear.default(%v, %w: weight f32[5, 4])
    %o = aten.linear.default(%w, %v)
    %z = aten.permute.default(%l, [1, 0])
    %y = aten.add.Tensor(%z, %o)
a layer of no view -> unchanged
    %y = aten.linear.default(%x: f32[6, 4], %w: weight f32[5, 4])
a layer without output features keeps its view -> refused: vector
    %v = aten.view.default(%x: f32[2, 3, 4], [6, 4])
    %y = aten.linear.default(%v, %w: weight f32[4])
""",
)


def test_rows_of_two_unknown_lengths_are_regrouped_behind_the_layer(
    programs: Any, method: Any
) -> None:
    program, _ = programs("""
        %v = aten.view.default(%x: f32[s0, s1, 4], [-1, 4])
        %y = aten.linear.default(%v, %w: weight f32[5, 4])
        """)
    x = torch.randn(2, 3, 4)
    wanted = program.run(x)
    assert run_rewrites(program, [RULE]) == 1
    torch.testing.assert_close(program.run(x), wanted)


def test_rows_cut_in_two_unknown_lengths_are_cut_before_the_layer(
    programs: Any, method: Any
) -> None:
    program, _ = programs("""
        %a = aten.sym_size.int(%z: f32[s0, s1], 0)
        %b = aten.sym_size.int(%z, 1)
        %v = aten.view.default(%x: f32[s0*s1, 4], [%a, %b, 4])
        %y = aten.linear.default(%v, %w: weight f32[5, 4])
        """)
    history = History()
    assert run_rewrites(program, [RULE], history) == 0
    assert "s0, s1 are computed" in next(iter(history.refusals.values())).reason
