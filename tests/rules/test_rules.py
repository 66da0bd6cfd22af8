"""The quick part of `make prove`: rules whose proofs take a moment, and what makes a proof one."""

import math
from typing import Any

import pytest

pytest.importorskip("z3", reason="the extra `prove` is not installed")

from stepwell.translate.rules import read_rules
from stepwell.validation.rules.numbers import Number, Path, Tokens, paths
from stepwell.validation.rules.verdicts import prove, rules

PROVED = {
    "bits": "rsub-to-sub relu-to-clamp relu6-to-clamp clamp-max-to-clamp wrap-clamp-bounds "
    "hardsigmoid-to-clamp remove-first-power type-quantize type-dequantize cancel-storage-casts "
    "cmsis.merge-views remove-view rms-norm-to-means cancel-permutes",
    "reals": "silu-to-sigmoid recognize-hardswish selu-to-elu log-sigmoid-to-log",
}
RULES = rules()


@pytest.mark.parametrize(
    ("name", "kind"), [(name, kind) for kind, names in PROVED.items() for name in names.split()]
)
def test_a_rule_is_proved(name: str, kind: str) -> None:
    verdict = prove(RULES.get(name) or RULES[name.rpartition(".")[2]])
    assert verdict.kind == kind, verdict


def sign_of(value: Any) -> str:
    if math.isnan(value):
        return "none"
    return "below" if value < 0 else "above"


def test_every_way_through_a_predicate_is_taken() -> None:
    from stepwell.validation.rules.numbers import Rebound

    tokens = Tokens()
    sign_of.__module__ = "stepwell.translate"
    rebound = Rebound()(sign_of)

    def run(path: Path) -> str:
        tokens.path = path
        return rebound(tokens.float(Number("variable", ("c",))))

    assert sorted(found for _, found in paths(run)) == ["above", "below", "none"]


def test_a_zero_that_is_lost_is_told_apart_from_a_number() -> None:
    (rule,) = read_rules(
        """
rule absolute-of-zero
    Nothing but the sign of a zero is lost.
Before:
    %y = aten.relu.default(%x) : (tensor<$*S x f32>) -> tensor<$*S x f32>
After:
    %p = aten.add.Scalar(%x, 0.0)
    %y = aten.clamp.default(%p, 0.0, none)
bound 5e-324 absolute: "−0 becomes 0"
""",
        globals(),
    )
    assert prove(rule).kind == "zeros"
