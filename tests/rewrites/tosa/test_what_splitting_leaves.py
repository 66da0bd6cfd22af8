"""What the rewrites in front of and behind the lowerings to TOSA leave alone."""

from typing import Any

import pytest
import torch
from rewrite_cases import cases
from rewrite_runs import program_of

from stepwell.ir.diagnostics import UnsupportedError
from stepwell.ir.rewriting.rewrite import History
from stepwell.translate.decompositions import activations_of_targets, arithmetic, norms
from stepwell.translate.range_analysis import Values
from stepwell.translate.rewrites.attention.fold_scale_into_projection import FoldScaleIntoProjection
from stepwell.translate.rewrites.tosa.legalize_boundary.narrow_indices import (
    NarrowIndices,
    demanded,
)
from stepwell.translate.rewrites.tosa.operators.lower_control import LowerControl
from stepwell.translate.rewrites.tosa.splitting.decompose_rest import piece_function

test_what_splitting_leaves = cases(
    FoldScaleIntoProjection, activations_of_targets, arithmetic, norms
)("""
fold-scale-into-projection: a slice of no layer -> unchanged
    %q = aten.slice.Tensor(%p: f32[3, 4], 1, 0, 2, 1); %s = aten.mul.Scalar(%q, 0.125)
    %y = aten.neg.default(%s)
fold-scale-into-projection: a view of a layer -> unchanged
    %p = aten.linear.default(%x: f32[3, 4], %w: weight f32[4, 4]); %v = aten.view.default(%p, [12])
    %y = aten.mul.Scalar(%v, 0.125)
fold-scale-into-projection: a factor computed at run time -> refused: the factor is known only at run time
    %p = aten.linear.default(%x: f32[3, 4], %w: weight f32[4, 4])
    %q = aten.slice.Tensor(%p, 1, 0, 2, 1)
    %n = sym.constant 2.000000e+00 : f64 : !stepwell.float<"2.0">; %y = aten.mul.Scalar(%q, %n)
fold-scale-into-projection: another reader of the slice -> refused: another op reads the unscaled value
    %p = aten.linear.default(%x: f32[3, 4], %w: weight f32[4, 4])
    %q = aten.slice.Tensor(%p, 1, 0, 2, 1); %s = aten.mul.Scalar(%q, 0.125)
    %y = aten.add.Tensor(%s, %q)
fold-scale-into-projection: a computed weight -> refused: computed at run time
    %p = aten.linear.default(%x: f32[3, 4], %w: f32[4, 4]); %q = aten.slice.Tensor(%p, 1, 0, 2, 1)
    %s = aten.mul.Scalar(%q, 0.125); %y = aten.neg.default(%s)
fold-scale-into-projection: rows known only at run time -> refused: the shape is symbolic
    %p = aten.linear.default(%x: f32[s0, 4], %w: weight f32[4, 4])
    %q = aten.slice.Tensor(%p, 1, 0, 2, 1); %s = aten.mul.Scalar(%q, 0.125)
    %y = aten.neg.default(%s)
fold-scale-into-projection: a reader of the whole projection -> refused: another op reads all of the projection
    %p = aten.linear.default(%x: f32[3, 4], %w: weight f32[4, 4])
    %q = aten.slice.Tensor(%p, 1, 0, 2, 1); %s = aten.mul.Scalar(%q, 0.125)
    %e = aten.exp.default(%p); %k = aten.slice.Tensor(%e, 1, 0, 2, 1); %y = aten.add.Tensor(%s, %k)
fold-scale-into-projection: a slice that overlaps -> refused: another op reads the same part of the projection
    %p = aten.linear.default(%x: f32[3, 4], %w: weight f32[4, 4])
    %q = aten.slice.Tensor(%p, 1, 0, 2, 1); %k = aten.slice.Tensor(%p, 1, 1, 3, 1)
    %s = aten.mul.Scalar(%q, 0.125); %y = aten.add.Tensor(%s, %k)
split-gelu: the tanh form -> refused: the tanh form
    %y = aten.gelu.default(%x: f32[3, 4], approximate="tanh")
split-gelu: a gelu of halves -> refused: float16 and bfloat16
    %y = aten.gelu.default(%x: f16[3, 4])
split-gelu: a gelu that is returned -> refused: another op than a linear layer
    %y = aten.gelu.default(%x: f32[3, 4])
split-layer-norm: a norm of unknown rows -> refused: the shape is symbolic
    %y = aten.layer_norm.default(%x: f32[?, 4], [4]) -> f32[?, 4]
split-layer-norm: a norm over a size known only at run time -> refused: the shape is symbolic
    %n = aten.sym_size.int(%x: f32[3, s0], 1); %y = aten.layer_norm.default(%x, [%n])
split-layer-norm: a norm of halves -> refused: overflow float16
    %y = aten.layer_norm.default(%x: f16[3, 4], [4])
split-layer-norm: a norm over two axes -> refused: over several axes
    %y = aten.layer_norm.default(%x: f32[2, 3, 4], [3, 4])
split-layer-norm: a computed scale -> refused: the weight is computed at run time
    %y = aten.layer_norm.default(%x: f32[3, 4], [4], %g: f32[4])
""")


def test_a_branch_on_a_number_is_left(programs: Any, written: Any) -> None:
    arm = "control.yield %{0} : f32[s0, 3]"
    text = written(
        "%x: f32[s0, 3]",
        '%n = aten.sym_size.int(%x, 0) : (f32[s0, 3]) -> !stepwell.int<"s0">',
        '%b = sym.ne [#aten.dyn, 5 : i64](%n) : (!stepwell.int<"s0">) -> !stepwell.bool<"Ne(s0, 5)">',
        '%y = control.cond %b(%x) : (!stepwell.bool<"Ne(s0, 5)">, f32[s0, 3]) -> f32[s0, 3] {\n'
        f"  ^bb0(%a: f32[s0, 3]):\n  {arm.format('a')}\n}} else {{\n"
        f"  ^bb0(%c: f32[s0, 3]):\n  {arm.format('c')}\n}}",
        gives="f32[s0, 3]",
    )
    program, _ = programs(text)
    op = next(op for op in program.method().walk() if op.name == "control.cond")
    assert "an operand or result has type" in LowerControl().match(op, program).reason  # pyright: ignore


INDEX = "%i: i64[1, 3]; %v: f32[1, 5, 2]; %c: i1[1, 3]"
END = '%w = tosa.add(%i, %k: constant "k#ones" i64[1, 1]); %s = tosa.select(%c, %w, %i)'


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        ("%y = tosa.gather(%v, %i)", (0, 4)),
        (f"{END}; %y = tosa.gather(%v, %s)", (-1, 0)),
        (f"{END}; %t = tosa.add(%s, %s); %y = tosa.gather(%v, %t)", (-1, 0)),
        (f"{END}; %t = tosa.add(%s, %s); %y = tosa.abs(%t)", None),
        (END, None),
        ("%s = tosa.select(%c, %w: constant i64[1, 3], %i); %y = tosa.gather(%v, %s)", None),
        (
            f"{END}; %u = tosa.add(%s, %k); %t = tosa.select(%c, %u, %s); %y = tosa.gather(%v, %t)",
            None,
        ),
        ("%y = tosa.abs(%i)", None),
        ("%y = tosa.gather(%z: f32[1, s0, 2], %i)", None),
    ],
    ids="""rows|rows from the end|rows of two axes|a number of two|an output|another choice
        |two choices|a number|rows of run time""".split("|"),
)
def test_an_index_has_the_range_of_what_it_names(lines: str, found: Any) -> None:
    program = program_of(f"{INDEX}; {lines}")
    assert demanded(program.method().body.block.args[0], Values(program)) == found


def test_what_is_computed_from_a_wide_integer_is_no_further_problem() -> None:
    program = program_of("%a = tosa.add(%x: i64[3], %x); %y = tosa.add(%a, %x)")
    with pytest.raises(UnsupportedError, match="its values reach") as raised:
        NarrowIndices().apply(program, History())
    assert len(raised.value.problems) == 1


def test_an_index_that_only_names_rows_is_narrowed(programs: Any) -> None:
    program, (values, index) = programs(
        """
        %y = tosa.gather(%v: f32[1, 5, 2], %i: i64[1, 3])
        """
    )
    before = program.run(values, index)
    assert NarrowIndices().apply(program, History()) == 1
    assert program.run(values, index.int())[0].equal(before[0])


def test_what_draws_numbers_is_taken_apart_into_nothing() -> None:
    """Though PyTorch has a decomposition of it, into others that do."""
    assert piece_function(torch.ops.aten.bernoulli.default, True) is None
