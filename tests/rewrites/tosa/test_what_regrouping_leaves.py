"""What rewrites of shapes, pools, norms and sums leave alone, each with its reason."""

from typing import Any

import pytest

from stepwell.translate.canonicalize import fills, scaled_number_to_sum
from stepwell.translate.decompositions import arithmetic, norms, pools, statistics, views
from stepwell.translate.lowerings.lowering import step
from stepwell.translate.lowerings.tosa import factories
from stepwell.translate.lowerings.tosa.indexed import patterns

SIZE = '%n = aten.sym_size.int(%s, 0) : (f32[s0]) -> !stepwell.int<"s0">'
INT = '!stepwell.int<"s0">'
RUN, SYMBOLIC = "known only at run time", "is symbolic"


def one(arguments: str, call: str, types: str, result: str) -> tuple[str, ...]:
    return arguments, f"%y = aten.{call} : ({types}) -> {result}"


def pooled(call: str, x: str, y: str) -> tuple[str, ...]:
    return one(f"%x: f32[{x}]", call, f"f32[{x}]", f"f32[{y}]")


CASES: dict[str, tuple[Any, tuple[str, ...], str]] = {
    # --- shapes ------------------------------------------------------------------------------
    "a diagonal of run time": (
        factories,
        (
            "%x: f32[3, 3], %s: f32[s0]",
            SIZE,
            f"%y = aten.tril.default(%x, %n) : (f32[3, 3], {INT}) -> f32[3, 3]",
        ),
        RUN,
    ),
    "a long pattern": (
        patterns,
        one(
            "%x: f32[4100]",
            "unfold.default(%x, 0, 2000, 1)",
            "f32[4100]",
            "f32[2101, 2000]",
        ),
        "would be a constant",
    ),
    "long strides": (
        step(views.gather_strides),
        one(
            "%x: f32[3000]",
            "as_strided.default(%x, [2000, 2100], [0, 1])",
            "f32[3000]",
            "f32[2000, 2100]",
        ),
        "a constant that large",
    ),
    "strides of a product": (
        step(views.gather_strides),
        (
            "%x: f32[2, 3], %w: f32[4, 3]",
            "%p = aten.linear.default(%x, %w) : (f32[2, 3], f32[4, 3]) -> f32[2, 4]",
            "%y = aten.as_strided.default(%p, [3], [2]) : (f32[2, 4]) -> f32[3]",
        ),
        "not known to be row-major",
    ),
    "columns without a batch": (
        patterns,
        one(
            "%x: f32[8, 9]",
            "col2im.default(%x, [4, 4], [2, 2], [1, 1], [0, 0], [1, 1])",
            "f32[8, 9]",
            "f32[2, 4, 4]",
        ),
        "no batch axis",
    ),
    "a large kernel": (
        patterns,
        one(
            "%x: f32[1, 272, 1]",
            "col2im.default(%x, [16, 17], [16, 17], [1, 1], [0, 0], [1, 1])",
            "f32[1, 272, 1]",
            "f32[1, 1, 16, 17]",
        ),
        "kernel has 272 cells",
    ),
    "doubles in columns": (
        patterns,
        one(
            "%x: f64[1, 4, 1]",
            "col2im.default(%x, [2, 2], [2, 2], [1, 1], [0, 0], [1, 1])",
            "f64[1, 4, 1]",
            "f64[1, 1, 2, 2]",
        ),
        "float64",
    ),
    "a fill of run time": (
        fills,
        one("%x: f32[s0]", "fill.Scalar(%x, 2.0)", "f32[s0]", "f32[s0]"),
        SYMBOLIC,
    ),
    "a fill with a size": (
        fills,
        (
            "%x: f32[3], %s: f32[s0]",
            SIZE,
            f"%y = aten.fill.Scalar(%x, %n) : (f32[3], {INT}) -> f32[3]",
        ),
        RUN,
    ),
    # --- pools -------------------------------------------------------------------------------
    "an image with a batch": (
        step(pools.pool_by_images),
        pooled("max_pool2d.default(%x, [2, 2])", "1, 1, 2, 2", "1, 1, 1, 1"),
        "",
    ),
    "a volume of run time": (
        step(pools.pool_by_images),
        pooled("max_pool3d.default(%x, [1, 1, 1])", "1, 1, 2, 2, s0", "1, 1, 2, 2, s0"),
        SYMBOLIC,
    ),
    "places in a volume": (
        step(pools.pool_by_images),
        (
            "%x: f32[1, 1, 2, 2, 2]",
            "%v, %y = aten.max_pool3d_with_indices.default(%x, [2, 2, 2]) : "
            "(f32[1, 1, 2, 2, 2]) -> (f32[1, 1, 1, 1, 1], i64[1, 1, 1, 1, 1])",
        ),
        "the indices of the maxima",
    ),
    "another divisor of a volume": (
        step(pools.pool_by_images),
        pooled(
            "avg_pool3d.default(%x, [2, 2, 2], [2, 2, 2], [0, 0, 0], false, true, 3)",
            "1, 1, 2, 2, 2",
            "1, 1, 1, 1, 1",
        ),
        "the number of elements",
    ),
    "parts of run time": (
        step(pools.adaptive_pool_by_parts),
        pooled("adaptive_avg_pool1d.default(%x, [3])", "1, 1, s0", "1, 1, 3"),
        "spatial axes are symbolic",
    ),
    "places in parts": (
        step(pools.adaptive_pool_by_parts),
        (
            "%x: f32[1, 1, 5, 5]",
            "%v, %y = aten.adaptive_max_pool2d.default(%x, [3, 3]) : "
            "(f32[1, 1, 5, 5]) -> (f32[1, 1, 3, 3], i64[1, 1, 3, 3])",
        ),
        "the indices of the maxima",
    ),
    "maxima alone": (
        step(pools.maxima_with_places),
        (
            "%x: f32[1, 1, 4, 4]",
            "%y, %i = aten.max_pool2d_with_indices.default(%x, [2, 2]) : "
            "(f32[1, 1, 4, 4]) -> (f32[1, 1, 2, 2], i64[1, 1, 2, 2])",
        ),
        "",
    ),
    "places of run time": (
        step(pools.maxima_with_places),
        (
            "%x: f32[s0, 1, 4, 4]",
            "%v, %y = aten.max_pool2d_with_indices.default(%x, [2, 2]) : "
            "(f32[s0, 1, 4, 4]) -> (f32[s0, 1, 2, 2], i64[s0, 1, 2, 2])",
        ),
        SYMBOLIC,
    ),
    "places in large windows": (
        step(pools.maxima_with_places),
        (
            "%x: f32[1, 1, 2048, 2048]",
            "%v, %y = aten.max_pool2d_with_indices.default(%x, [2, 2]) : "
            "(f32[1, 1, 2048, 2048]) -> (f32[1, 1, 1024, 1024], i64[1, 1, 1024, 1024])",
        ),
        "4194304 elements",
    ),
    "many parts": (
        step(pools.adaptive_pool_by_parts),
        pooled("adaptive_avg_pool1d.default(%x, [65])", "1, 1, 80", "1, 1, 65"),
        "65 windows",
    ),
    # --- norms and products ------------------------------------------------------------------
    "running statistics": (
        step(norms.norm_by_groups),
        one(
            "%x: f32[1, 2, 4], %m: f32[2], %v: f32[2]",
            "instance_norm.default(%x, none, none, %m, %v, false, 0.1, 1.0, false)",
            "f32[1, 2, 4], f32[2], f32[2]",
            "f32[1, 2, 4]",
        ),
        "",
    ),
    "statistics of run time": (
        step(norms.norm_by_groups),
        one(
            "%x: f32[1, 2, s0]",
            "instance_norm.default(%x, none, none, none, none, true, 0.1, 1.0, false)",
            "f32[1, 2, s0]",
            "f32[1, 2, s0]",
        ),
        SYMBOLIC,
    ),
    "a saved mean": (
        step(norms.norm_by_groups),
        (
            "%x: f32[1, 2, 4]",
            "%v, %y, %r = aten._native_batch_norm_legit.no_stats(%x, none, none, true, 0.1, 1.0) : "
            "(f32[1, 2, 4]) -> (f32[1, 2, 4], f32[2], f32[2])",
        ),
        "saves for training",
    ),
    "a norm of one axis": (
        step(norms.peel_norm_affine),
        one("%x: f32[2, 4]", "layer_norm.default(%x, [4])", "f32[2, 4]", "f32[2, 4]"),
        "",
    ),
    "a norm of run time": (
        step(norms.peel_norm_affine),
        one(
            "%x: f32[s0, 2, 4]", "layer_norm.default(%x, [2, 4])", "f32[s0, 2, 4]", "f32[s0, 2, 4]"
        ),
        SYMBOLIC,
    ),
    "a batch of run time": (
        step(norms.batch_norm_to_products),
        one(
            "%x: f32[s0, 2], %m: f32[2], %v: f32[2]",
            "batch_norm.default(%x, none, none, %m, %v, false, 0.1, 9.0, false)",
            "f32[s0, 2], f32[2], f32[2]",
            "f32[s0, 2]",
        ),
        SYMBOLIC,
    ),
    "a batch norm in training": (
        step(norms.batch_norm_to_products),
        one(
            "%x: f32[3, 2], %m: f32[2], %v: f32[2]",
            "batch_norm.default(%x, none, none, %m, %v, true, 0.1, 9.0, false)",
            "f32[3, 2], f32[2], f32[2]",
            "f32[3, 2]",
        ),
        "",
    ),
    "a batch norm of weights": (
        step(norms.batch_norm_to_products),
        (
            "%x: f32[3, 2]",
            '%m = stepwell.weight <"m"> "parameter" : f32[2]',
            '%v = stepwell.weight <"v#positive"> "parameter" : f32[2]',
            "%y = aten.batch_norm.default(%x, none, none, %m, %v, false, 0.1, 9.0, false) : "
            "(f32[3, 2], f32[2], f32[2]) -> f32[3, 2]",
        ),
        "",
    ),
    "a sum without a scale": (
        scaled_number_to_sum,
        one("%x: f32[3]", "add.Scalar(%x, 2)", "f32[3]", "f32[3]"),
        "",
    ),
    "a scaled size": (
        scaled_number_to_sum,
        (
            "%x: f32[3], %s: f32[s0]",
            SIZE,
            f"%y = aten.add.Scalar(%x, %n, 2) : (f32[3], {INT}) -> f32[3]",
        ),
        RUN,
    ),
    "a size that scales": (
        scaled_number_to_sum,
        (
            "%x: f32[3], %s: f32[s0]",
            SIZE,
            f"%y = aten.add.Scalar(%x, 2, %n) : (f32[3], {INT}) -> f32[3]",
        ),
        RUN,
    ),
    "a size that scales a product": (
        step(arithmetic.scaled_sum_to_products),
        (
            "%x: f32[3, 3], %s: f32[s0]",
            SIZE,
            "%y = aten.addmm.default(%x, %x, %x, alpha=%n) : "
            f"(f32[3, 3], f32[3, 3], f32[3, 3], {INT}) -> f32[3, 3]",
        ),
        RUN,
    ),
    "a size that scales a sum": (
        step(arithmetic.scaled_sum_to_products),
        (
            "%x: f32[3, 3], %s: f32[s0]",
            SIZE,
            "%y = aten.addmm.default(%x, %x, %x, beta=%n) : "
            f"(f32[3, 3], f32[3, 3], f32[3, 3], {INT}) -> f32[3, 3]",
        ),
        RUN,
    ),
    "a product of integers": (
        step(arithmetic.scaled_sum_to_products),
        one(
            "%x: i32[3, 3]",
            "addmm.default(%x, %x, %x)",
            "i32[3, 3], i32[3, 3], i32[3, 3]",
            "i32[3, 3]",
        ),
        "it multiplies integers",
    ),
    "points of run time": (
        step(statistics.distance_to_norms),
        one(
            "%x: f32[s0, 4], %z: f32[2, 4]",
            "_cdist_forward.default(%x, %z, 2.0, none)",
            "f32[s0, 4], f32[2, 4]",
            "f32[s0, 2]",
        ),
        SYMBOLIC,
    ),
    "other points of run time": (
        step(statistics.distance_to_norms),
        one(
            "%x: f32[2, 4], %z: f32[s0, 4]",
            "_cdist_forward.default(%x, %z, 2.0, none)",
            "f32[2, 4], f32[s0, 4]",
            "f32[2, s0]",
        ),
        SYMBOLIC,
    ),
    "points of several batches": (
        step(statistics.distance_to_norms),
        one(
            "%x: f32[1, 3, 4], %z: f32[2, 2, 4]",
            "_cdist_forward.default(%x, %z, 2.0, none)",
            "f32[1, 3, 4], f32[2, 2, 4]",
            "f32[2, 3, 2]",
        ),
        "different batches",
    ),
    "many points": (
        step(statistics.distance_to_norms),
        one(
            "%x: f32[2100, 4], %z: f32[2100, 4]",
            "_cdist_forward.default(%x, %z, 2.0, none)",
            "f32[2100, 4], f32[2100, 4]",
            "f32[2100, 2100]",
        ),
        "differences are more than",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_tosa_has_no_form_for_keeps_its_reason(refused: Any, written: Any, name: str) -> None:
    rewrite, lines, reason = CASES[name]
    gives = ""
    if " -> (" in lines[-1]:  # of several results the second one is returned as %y, or the first
        types = lines[-1].rsplit(" -> (", 1)[1].removesuffix(")")
        parts = types.split("], ")
        at = [r.strip() for r in lines[-1].split(" = ")[0].split(",")].index("%y")
        gives = parts[at] if parts[at].endswith("]") else parts[at] + "]"
    refused(written(*lines, gives=gives), rewrite, reason)
