"""What the rewrites in front of and behind the lowerings to TOSA leave alone."""

from typing import Any

import pytest
import torch

from stepwell.ir.diagnostics import UnsupportedError
from stepwell.ir.rewriting.rewrite import History
from stepwell.translate.decompositions import arithmetic, norms
from stepwell.translate.lowerings.lowering import step
from stepwell.translate.range_analysis import Values
from stepwell.translate.rewrites.attention.fold_scale_into_projection import FoldScaleIntoProjection
from stepwell.translate.rewrites.tosa.legalize_boundary.narrow_indices import (
    NarrowIndices,
    demanded,
)
from stepwell.translate.rewrites.tosa.operators.lower_control import LowerControl
from stepwell.translate.rewrites.tosa.splitting.pieces import piece_function

WEIGHT = '%w = stepwell.weight <"w"> "parameter" : f32[4, 4]'
LINEAR = "%p = aten.linear.default(%x, %w) : (f32[3, 4], f32[4, 4]) -> f32[3, 4]"
SLICE = "%q = aten.slice.Tensor(%p, 1, 0, 2, 1) : (f32[3, 4]) -> f32[3, 2]"
SCALED = "%s = aten.mul.Scalar(%q, 0.125) : (f32[3, 2]) -> f32[3, 2]"
GIVEN = "%y = aten.neg.default(%s) : (f32[3, 2]) -> f32[3, 2]"
BOTH = "%y = aten.add.Tensor(%s, %k) : (f32[3, 2], f32[3, 2]) -> f32[3, 2]"

Case = tuple[Any, tuple[str, ...], str]
CASES: dict[str, Case] = {
    # --- fold-scale-into-projection ------------------------------------------------------------
    "a slice of no layer": (FoldScaleIntoProjection(), ("%p: f32[3, 4]", SLICE, SCALED, GIVEN), ""),
    "a view of a layer": (
        FoldScaleIntoProjection(),
        (
            "%x: f32[3, 4]",
            WEIGHT,
            LINEAR,
            "%v = aten.view.default(%p, [12]) : (f32[3, 4]) -> f32[12]",
            "%y = aten.mul.Scalar(%v, 0.125) : (f32[12]) -> f32[12]",
        ),
        "",
    ),
    "a factor of run time": (
        FoldScaleIntoProjection(),
        (
            "%x: f32[3, 4]",
            WEIGHT,
            LINEAR,
            SLICE,
            '%n = sym.constant 2.0 : f64 : !stepwell.float<"2.0">',
            '%y = aten.mul.Scalar(%q, %n) : (f32[3, 2], !stepwell.float<"2.0">) -> f32[3, 2]',
        ),
        "the factor is known only at run time",
    ),
    "another reader of the slice": (
        FoldScaleIntoProjection(),
        (
            "%x: f32[3, 4]",
            WEIGHT,
            LINEAR,
            SLICE,
            SCALED,
            "%y = aten.add.Tensor(%s, %q) : (f32[3, 2], f32[3, 2]) -> f32[3, 2]",
        ),
        "another op reads the unscaled value",
    ),
    "a computed weight": (
        FoldScaleIntoProjection(),
        ("%x: f32[3, 4], %w: f32[4, 4]", LINEAR, SLICE, SCALED, GIVEN),
        "computed at run time",
    ),
    "rows of run time": (
        FoldScaleIntoProjection(),
        (
            "%x: f32[s0, 4]",
            WEIGHT,
            *(line.replace("[3,", "[s0,") for line in (LINEAR, SLICE, SCALED, GIVEN)),
        ),
        "the shape is symbolic",
    ),
    "a reader of the whole projection": (
        FoldScaleIntoProjection(),
        (
            "%x: f32[3, 4]",
            WEIGHT,
            LINEAR,
            SLICE,
            SCALED,
            "%e = aten.exp.default(%p) : (f32[3, 4]) -> f32[3, 4]",
            "%k = aten.slice.Tensor(%e, 1, 0, 2, 1) : (f32[3, 4]) -> f32[3, 2]",
            BOTH,
        ),
        "another op reads all of the projection",
    ),
    "a slice that overlaps": (
        FoldScaleIntoProjection(),
        (
            "%x: f32[3, 4]",
            WEIGHT,
            LINEAR,
            SLICE,
            "%k = aten.slice.Tensor(%p, 1, 1, 3, 1) : (f32[3, 4]) -> f32[3, 2]",
            SCALED,
            BOTH,
        ),
        "another op reads the same part of the projection",
    ),
    # --- split-gelu ------------------------------------------------------------------------------
    "the tanh form": (
        step(arithmetic.split_gelu),
        (
            "%x: f32[3, 4]",
            '%y = aten.gelu.default(%x, approximate="tanh") : (f32[3, 4]) -> f32[3, 4]',
        ),
        "the tanh form",
    ),
    "a gelu of halves": (
        step(arithmetic.split_gelu),
        ("%x: f16[3, 4]", "%y = aten.gelu.default(%x) : (f16[3, 4]) -> f16[3, 4]"),
        "float16 and bfloat16",
    ),
    "a gelu that is returned": (
        step(arithmetic.split_gelu),
        ("%x: f32[3, 4]", "%y = aten.gelu.default(%x) : (f32[3, 4]) -> f32[3, 4]"),
        "another op than a linear layer",
    ),
    # --- split-layer-norm ------------------------------------------------------------------------
    "a norm of unknown rows": (
        step(norms.split_layer_norm),
        ("%x: f32[?, 4]", "%y = aten.layer_norm.default(%x, [4]) : (f32[?, 4]) -> f32[?, 4]"),
        "the shape is symbolic",
    ),
    "a norm over a size of run time": (
        step(norms.split_layer_norm),
        (
            "%x: f32[3, s0]",
            '%n = aten.sym_size.int(%x, 1) : (f32[3, s0]) -> !stepwell.int<"s0">',
            '%y = aten.layer_norm.default(%x, [%n]) : (f32[3, s0], !stepwell.int<"s0">) -> f32[3, s0]',
        ),
        "the shape is symbolic",
    ),
    "a norm of halves": (
        step(norms.split_layer_norm),
        ("%x: f16[3, 4]", "%y = aten.layer_norm.default(%x, [4]) : (f16[3, 4]) -> f16[3, 4]"),
        "overflow float16",
    ),
    "a norm over two axes": (
        step(norms.split_layer_norm),
        (
            "%x: f32[2, 3, 4]",
            "%y = aten.layer_norm.default(%x, [3, 4]) : (f32[2, 3, 4]) -> f32[2, 3, 4]",
        ),
        "over several axes",
    ),
    "a computed scale": (
        step(norms.split_layer_norm),
        (
            "%x: f32[3, 4], %g: f32[4]",
            "%y = aten.layer_norm.default(%x, [4], %g) : (f32[3, 4], f32[4]) -> f32[3, 4]",
        ),
        "the weight is computed at run time",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_does_not_split_or_fold_is_left(refused: Any, written: Any, name: str) -> None:
    rewrite, lines, reason = CASES[name]
    refused(written(*lines), rewrite, reason)


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
    assert "takes or gives" in LowerControl().match(op, program).reason  # pyright: ignore


GATHER = "%y = tosa.gather %v, %{} : (f32[1, 5, 2], i64[1, 3]) -> f32[1, 3, 2]"
SELECT = "%{} = tosa.select %c, %{}, %{} : (i1[1, 3], i64[1, 3], i64[1, 3]) -> i64[1, 3]"
ADD = "%w = tosa.add %i, %k : (i64[1, 3], i64[1, 1]) -> i64[1, 3]"
ONE = '%k = stepwell.weight <"k#ones"> "constant" : i64[1, 1]'
AGAIN = "%u = tosa.add %s, %k : (i64[1, 3], i64[1, 1]) -> i64[1, 3]"
JOINED = "%t = tosa.add %s, %s : (i64[1, 3], i64[1, 3]) -> i64[1, 3]"
OTHER = '%w = stepwell.weight <"o"> "constant" : i64[1, 3]'


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        ((GATHER.format("i"),), (0, 4)),
        ((ONE, ADD, SELECT.format("s", "w", "i"), GATHER.format("s")), (-1, 0)),
        ((ONE, ADD, SELECT.format("s", "w", "i"), JOINED, GATHER.format("t")), (-1, 0)),
        ((ONE, ADD, SELECT.format("s", "w", "i"), JOINED, "%y = tosa.abs %t : (i64[1, 3]) -> i64[1, 3]"), None),
        ((ONE, ADD, SELECT.format("y", "w", "i")), None),
        ((OTHER, SELECT.format("s", "w", "i"), GATHER.format("s")), None),
        ((ONE, ADD, SELECT.format("s", "w", "i"), AGAIN, SELECT.format("t", "u", "s"), GATHER.format("t")), None),
        (("%y = tosa.abs %i : (i64[1, 3]) -> i64[1, 3]",), None),
        ((GATHER.replace("[1, 5, 2]", "[1, s0, 2]").format("i"),), None),
    ],
    ids=["rows", "rows from the end", "rows of two axes", "a number of two", "an output", "another choice", "two choices", "a number", "rows of run time"],
)  # fmt: skip
def test_an_index_has_the_range_of_what_it_names(
    programs: Any, written: Any, lines: tuple[str, ...], found: Any
) -> None:
    values = "f32[1, s0, 2]" if "s0" in lines[-1] else "f32[1, 5, 2]"
    program, _ = programs(written(f"%i: i64[1, 3], %v: {values}, %c: i1[1, 3]", *lines))
    assert demanded(program.method().body.block.args[0], Values(program)) == found


def test_what_is_computed_from_a_wide_integer_is_no_further_problem(
    programs: Any, written: Any
) -> None:
    add = "%{} = tosa.add %{}, %x : (i64[3], i64[3]) -> i64[3]"
    program, _ = programs(written("%x: i64[3]", add.format("a", "x"), add.format("y", "a")))
    with pytest.raises(UnsupportedError, match="its values reach") as raised:
        NarrowIndices().apply(program, History())
    assert len(raised.value.problems) == 1


def test_an_index_that_only_names_rows_is_narrowed(programs: Any, written: Any) -> None:
    program, (index, values) = programs(
        written("%i: i64[1, 3], %v: f32[1, 5, 2]", GATHER.format("i"))
    )
    before = program.run(index, values)
    assert NarrowIndices().apply(program, History()) == 1
    assert program.run(index.int(), values)[0].equal(before[0])


def test_what_draws_numbers_is_taken_apart_into_nothing() -> None:
    """Though PyTorch has a decomposition of it, into others that do."""
    assert piece_function(torch.ops.aten.bernoulli.default, True) is None
