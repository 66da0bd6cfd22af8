"""Decompositions with an operation in common: which is tried first, and why; or none matches both."""

from collections.abc import Iterator
from itertools import combinations
from typing import Any

import pytest
from rewrite_runs import program_of

from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import Refusal, Rewrite
from stepwell.translate.decompositions.conversion import FAMILIES
from stepwell.translate.rewrites.documentation import examples_of_rule
from stepwell.translate.rewrites.tosa.layout.order import TOSA
from stepwell.translate.rewrites.xnnpack.order import TARGET

PROMOTIONS = {
    "promote-operands": "operands have one type before they are taken apart",
    "widen-attention-of-halves": "an operation on halves is computed in f32 as a whole",
    "widen-halves": "an operation on halves is computed in f32 as a whole",
    "widen-rounded-halves": "an operation on halves is computed in f32 as a whole",
    "widen-scalar-of-halves": "a number that halves do not have is not rounded to one",
}
"""They precede every other decomposition of an operation."""
CHEAPER = {
    (f"expand-{name}", f"expand-{name}-of-any")
    for name in ("log-softmax", "log1p-of-power", "logarithm")
}
"""The first is for numbers that are proved to be ordinary, the second for any."""
OF_OTHER_TYPES = {("complex-to-pairs", "widen-rounded-halves")}
"""Complex numbers, or halves."""
EXCLUSIVE = {
    **{
        ("complex-to-pairs", name): "complex numbers, or real ones"
        for name in (
            "part-of-pair",
            "permute-parts",
            "scaled-number-to-sum",
            "stack-by-permute",
            "write-by-cat",
        )
    },
    ("expand-attention", "expand-attention-of-any-length"): "static sizes, or symbolic ones",
    ("choose-by-step", "choose-by-mask"): "truth values of integers, or a comparison of floats",
    ("convolution-by-products", "volumes-to-images"): "lines and images, or volumes",
    ("pool-by-images", "maxima-with-places"): "the indices are unused, or used",
    ("maxima-with-places", "adaptive-pool-by-parts"): "the indices are used, or unused",
    ("peel-norm-affine", "split-layer-norm"): "several axes and computed parameters, or neither",
    ("peel-norm-affine", "decompose-group-norm"): "parameters are computed, or constant",
}
"""No operation is decomposed by both."""
POOLS = [
    f"""
    func.func @forward(%x: tensor<1x1x4x4x4xf32>) -> tensor<1x1x2x2x2x{dtype}> {{
      %m, %i = aten.{name}.default(%x, [2, 2, 2]) : (tensor<1x1x4x4x4xf32>) -> (tensor<1x1x2x2x2xf32>, tensor<1x1x2x2x2xi64>)
      func.return {used} : tensor<1x1x2x2x2x{dtype}>
    }}
    """
    for name in ("max_pool3d_with_indices", "adaptive_max_pool3d")
    for used, dtype in (("%m", "f32"), ("%i", "i64"))
]
FLOATS = ("f32", "f16", "bf16", "f64")


def pairs() -> Iterator[tuple[Rewrite[Any], Rewrite[Any]]]:
    names = {name.split("/")[-1] for family in FAMILIES for r in family.RULES for name in r.phases}
    for target in (TARGET, TOSA):
        for name in sorted(names):
            for first, second in combinations(target.phase(name), 2):
                if not set(first.anchors).isdisjoint(second.anchors):
                    yield first, second


PAIRS = {(first.name, second.name): (first, second) for first, second in pairs()}


def test_the_order_of_each_pair_is_declared() -> None:
    found = {pair for pair in PAIRS if pair[0] not in PROMOTIONS}
    assert found == CHEAPER | OF_OTHER_TYPES | set(EXCLUSIVE)


def programs(*rewrites: Rewrite[Any]) -> Iterator[Program]:
    for rewrite in rewrites:
        for before, _ in examples_of_rule(type(rewrite)):
            kinds = FLOATS[:2] if "complex" in before else FLOATS
            yield from (program_of(before.replace("f32", dtype)) for dtype in kinds)
    yield from map(program_of, POOLS)


@pytest.mark.parametrize("pair", EXCLUSIVE, ids="/".join)
def test_no_operation_is_decomposed_by_both(pair: tuple[str, str]) -> None:
    both = PAIRS[pair]
    tried = 0
    for program in programs(*both):
        for op in program.module.walk():
            if all(isinstance(op, rewrite.anchors) for rewrite in both):
                tried += 1
                found = [rewrite.match(op, program) for rewrite in both]
                matched = [m for m in found if m is not None and not isinstance(m, Refusal)]
                assert len(matched) < 2, op
    assert tried
