"""What Vela fuses stays bytes: near misses of the two rewrites that see to it."""

from typing import Any

import torch
from rewrite_cases import cases

from stepwell.ir.weights import WeightStore
from stepwell.translate.rewrites.ethosu import (
    RescaleConstant,
    SpreadConstant,
)
from stepwell.translate.rewrites.ethosu import rescale_for_each_reader as readers
from stepwell.translate.rewrites.ethosu.hoist_reshape_over_rescale import RULES
from stepwell.translate.rewrites.ethosu.rescale_constant import bytes_of

(RULE,) = RULES.named("hoist-reshape-over-rescale")

FLAGS = 'input_unsigned=false, output_unsigned=false, rounding_mode="SINGLE_ROUND", scale32=true'

test_factors_of_the_last_axis = cases(RULE)(f"""
a factor an element stays where it is -> refused: its last axis has a factor an element
    %r = tosa.rescale(%x: i8[2, 3], %m: constant i32[3], %s: constant "s#ones" i8[3], %z: constant i8[1], %o: constant "o#zeros" i32[1], per_channel=true, {FLAGS}) -> i32[2, 3]
    %y = tosa.reshape(%r, [6])
one factor goes behind -> applied once
    %r = tosa.rescale(%x: i8[2, 1], %m: constant i32[1], %s: constant "s#ones" i8[1], %z: constant i8[1], %o: constant "o#zeros" i32[1], per_channel=false, {FLAGS}) -> i32[2, 1]
    %y = tosa.reshape(%r, [2])
""")


test_operate_on_bytes = cases(RescaleConstant, SpreadConstant)("""
rescale-constant: a constant next to what is no rescale stays -> applied 0 times
    %y = tosa.add(%x: i32[2, 4], %c: constant i32[1, 4])
spread-constant: a single byte and what is as large are not spread -> applied once
    %r = tosa.rescale(%c: constant i8[1, 4], %m: constant i32[1], %s: constant "s#ones" i8[1], %z: constant i8[1], %o: constant "o#zeros" i32[1], input_unsigned=false, output_unsigned=false, per_channel=false, rounding_mode="SINGLE_ROUND", scale32=true) -> i32[1, 4]
    %y = tosa.add(%x: i32[3, 4], %r)
spread-constant: a single byte and what is as large are not spread -> applied 0 times
    - %r = tosa.rescale(%c: constant i8[1, 1], %m: constant i32[1], %s: constant "s#ones" i8[1], %z: constant i8[1], %o: constant "o#zeros" i32[1], input_unsigned=false, output_unsigned=false, per_channel=false, rounding_mode="SINGLE_ROUND", scale32=true) -> i32[1, 1]
      %y = tosa.add(%x: i32[3, 4], %r)
    - %r = tosa.rescale(%c: constant i8[3, 4], %m: constant i32[1], %s: constant "s#ones" i8[1], %z: constant i8[1], %o: constant "o#zeros" i32[1], input_unsigned=false, output_unsigned=false, per_channel=false, rounding_mode="SINGLE_ROUND", scale32=true) -> i32[3, 4]
      %y = tosa.add(%x: i32[3, 4], %r)
spread-constant: a constant that would fill the flash is not spread -> refused: 16448 bytes of flash
    %r = tosa.rescale(%c: constant i8[1, 64], %m: constant i32[1], %s: constant "s#ones" i8[1], %z: constant i8[1], %o: constant "o#zeros" i32[1], input_unsigned=false, output_unsigned=false, per_channel=false, rounding_mode="SINGLE_ROUND", scale32=true) -> i32[1, 64]
    %y = tosa.add(%x: i32[257, 64], %r)
""")


test_operate_on_bytes_unrun = cases(SpreadConstant, run=False)("""
a constant next to any number of rows is not spread -> unchanged
    %r = tosa.rescale(%c: constant i8[1, 4], %m: constant i32[1], %s: constant "s#ones" i8[1], %z: constant i8[1], %o: constant "o#zeros" i32[1], input_unsigned=false, output_unsigned=false, per_channel=false, rounding_mode="SINGLE_ROUND", scale32=true) -> i32[1, 4]
    %y = tosa.add(%x: i32[s, 4], %r)
""")


def test_only_what_bytes_hold_or_were_is_bytes() -> None:
    weights = WeightStore()
    weights.add("small", torch.tensor([-128, 127], dtype=torch.int32))
    weights.add("large", torch.tensor([128], dtype=torch.int32))
    weights.add("stored", torch.tensor([3, -7], dtype=torch.int8))
    weights.add("low", torch.tensor([-129], dtype=torch.int32))
    weights.add("empty", torch.empty(0, dtype=torch.int32))
    weights.add("typed", torch.empty(2, dtype=torch.int32, device="meta"))
    for key in ("large", "low", "empty", "typed"):
        assert bytes_of(key, weights) is None
    found = bytes_of("small", weights)
    assert found is not None and found[0] == "small" and found[1]["zero_points"] == [0, 0]
    numbers = {"multipliers": [1 << 30], "shifts": [20], "zero_points": [2, 0], "bits": 32}
    wide = weights.derive("tosa_rescale", ["stored"], **numbers)
    assert int(weights.get(wide).max()) > 127
    assert bytes_of(weights.derive("tosa_reshape", [wide], shape=[1, 2]), weights) == (
        "stored",
        numbers,
    )


def read(lines: str, held: str = "i8", zero: str = "constant i8") -> str:
    return f"""
        %r = tosa.rescale(%x: {held}[2, 4], %m: constant i32[1], %s: constant "s#ones" i8[1],
            %z: {zero}[1], %o: constant "o#zeros" i32[1], per_channel=false, {FLAGS}) -> i32[2, 4]
        {lines}
    """


def copies(apply: Any, text: str) -> list[str]:
    """The rules that fire, in turn, until none does."""
    names: list[str] = []
    for rule in readers.RULES:
        done = apply(text, rule())
        names += [rule.name] * done.count
    return names


TWICE = "%a = tosa.add(%r, %r); %y = tosa.sub(%a, %r)"


def test_an_operator_that_reads_a_rescale_twice_is_one_reader(apply: Any) -> None:
    assert copies(apply, read("%y = tosa.add(%r, %r)")) == []
    assert copies(apply, read(TWICE)) == ["rescale-for-each-term", "rescale-for-each-square"]


def test_the_last_reader_keeps_the_rescale(apply: Any) -> None:
    two = read("%a = tosa.add(%r, %x32: i32[2, 4]); %y = tosa.sub(%a, %r)")
    assert copies(apply, two) == ["rescale-for-each-term"]


def test_a_rescale_of_int32_is_left_to_its_readers(apply: Any) -> None:
    assert copies(apply, read(TWICE, "i32", 'constant "z#zeros" i32')) == []
