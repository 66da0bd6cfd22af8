"""The verifier refuses what the specification forbids and nothing that it allows."""

import pytest
import torch
from short_ir import program_text

from stepwell.backends.tosa.read import read_tosa
from stepwell.dialects.tosa.targets import EXTENSIONS, PROFILES, TosaTarget
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.levels import set_level
from stepwell.ir.verification import find_problems
from stepwell.ir.weights import WeightStore

from .graphs import conformance

EVERYTHING = TosaTarget("1.1", frozenset(PROFILES), frozenset(EXTENSIONS))
"""At level 8K."""
OF_A_LEVEL = "_ERRORIF_WrongRank_"
"""Graphs that the generator calls wrong and level none allows: tensors of seven axes."""


@pytest.mark.parametrize("name", sorted(conformance("negative")))
def test_a_graph_made_wrong_is_refused_with_a_reason(name: str) -> None:
    data = conformance("negative")[name]["test.tosa"]
    try:
        program = read_tosa(data)
        program.verify()
    except StepwellError as caught:
        assert caught.problems[0].fact
        return
    assert OF_A_LEVEL in name
    assert "rank 7 is above 6" in next(EVERYTHING.problems(program.module)).fact


RESCALE = (
    "%y = tosa.rescale %x: {given}[4], %m: constant i32[1], %s: constant i8[1], "
    "%a: constant {given}[1], %b: constant {made}[1] {{input_unsigned = false, "
    "output_unsigned = false, per_channel = false, rounding_mode = SINGLE_ROUND, "
    "scale32 = true}} : ({given}[4], i32[1], i8[1], {given}[1], {made}[1]) -> {made}[4]"
)


@pytest.mark.parametrize(
    ("given", "made", "zero", "fact"),
    [
        ("i16", "i8", (3, 0), "the input zero point of i16 must be 0, it is 3"),
        ("i8", "i16", (0, -5), "the output zero point of i16 must be 0, it is -5"),
        ("i8", "i32", (7, 1), "the output zero point of i32 must be 0, it is 1"),
        ("i16", "i8", (0, 9), ""),
        ("i8", "i16", (-3, 0), ""),
    ],
)
def test_a_zero_point_in_the_store_is_looked_at(
    given: str, made: str, zero: tuple[int, int], fact: str
) -> None:
    weights = WeightStore()
    types = {"i8": torch.int8, "i16": torch.int16, "i32": torch.int32}
    for key, value, held in (
        ("m", 1 << 30, "i32"), ("s", 30, "i8"), ("a", zero[0], given), ("b", zero[1], made),
    ):  # fmt: skip
        weights.add(key, torch.tensor([value], dtype=types[held]))
    module = program_text(RESCALE.format(given=given, made=made))
    set_level(module, "tosa")
    assert [problem.fact for problem in find_problems(module, weights)] == (
        [f"tosa.rescale: {fact}"] if fact else []
    )
    assert not list(find_problems(module))  # Without the weights nothing is known of them.
