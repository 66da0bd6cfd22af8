"""What Vela fuses stays bytes: near misses of the two rewrites that see to it."""

from typing import Any

import torch

from stepwell.ir.weights import WeightStore
from stepwell.translate.rewrites.ethosu import (
    RescaleConstant,
    SpreadConstant,
)
from stepwell.translate.rewrites.ethosu import rescale_for_each_reader as readers
from stepwell.translate.rewrites.ethosu.hoist_reshape_over_rescale import RULES
from stepwell.translate.rewrites.ethosu.rescale_constant import bytes_of

(RULE,) = RULES.named("hoist-reshape-over-rescale")

FLAGS = (
    "{input_unsigned = false, output_unsigned = false, per_channel = CHANNEL, "
    "rounding_mode = SINGLE_ROUND, scale32 = true}"
)


def reshaped(channels: int) -> str:
    flags = FLAGS.replace("CHANNEL", "true" if channels > 1 else "false")
    return f"""func.func @main(%x: tensor<2x{channels}xi8>) -> tensor<{2 * channels}xi32> {{
  %m = stepwell.weight <"m"> "constant" : tensor<{channels}xi32>
  %s = stepwell.weight <"s#ones"> "constant" : tensor<{channels}xi8>
  %z = stepwell.weight <"z"> "constant" : tensor<1xi8>
  %o = stepwell.weight <"o#zeros"> "constant" : tensor<1xi32>
  %r = tosa.rescale %x, %m, %s, %z, %o {flags} : (tensor<2x{channels}xi8>, tensor<{channels}xi32>, tensor<{channels}xi8>, tensor<1xi8>, tensor<1xi32>) -> tensor<2x{channels}xi32>
  %n = tosa.const_shape {{values = dense<[{2 * channels}]> : tensor<1xindex>}} : () -> !tosa.shape<1>
  %y = tosa.reshape %r, %n : (tensor<2x{channels}xi32>, !tosa.shape<1>) -> tensor<{2 * channels}xi32>
  func.return %y : tensor<{2 * channels}xi32>
}}
"""


def test_factors_of_the_last_axis_stay_where_they_are(apply: Any) -> None:
    done = apply(reshaped(3), RULE)
    assert done.count == 0
    assert "its last axis has a factor an element" in str(done.reasons)
    assert apply(reshaped(1), RULE).count == 1


def test_a_constant_beside_what_is_no_rescale_stays(apply: Any) -> None:
    text = """func.func @main(%x: tensor<2x4xi32>) -> tensor<2x4xi32> {
  %c = stepwell.weight <"c"> "constant" : tensor<1x4xi32>
  %y = tosa.add %x, %c : (tensor<2x4xi32>, tensor<1x4xi32>) -> tensor<2x4xi32>
  func.return %y : tensor<2x4xi32>
}
"""
    assert apply(text, RescaleConstant()).count == 0


def broadcast(constant: str, whole: str) -> str:
    flags = FLAGS.replace("CHANNEL", "false")
    return f"""func.func @main(%x: tensor<{whole}xi32>) -> tensor<{whole}xi32> {{
  %m = stepwell.weight <"m"> "constant" : tensor<1xi32>
  %s = stepwell.weight <"s#ones"> "constant" : tensor<1xi8>
  %z = stepwell.weight <"z"> "constant" : tensor<1xi8>
  %o = stepwell.weight <"o#zeros"> "constant" : tensor<1xi32>
  %c = stepwell.weight <"c"> "constant" : tensor<{constant}xi8>
  %r = tosa.rescale %c, %m, %s, %z, %o {flags} : (tensor<{constant}xi8>, tensor<1xi32>, tensor<1xi8>, tensor<1xi8>, tensor<1xi32>) -> tensor<{constant}xi32>
  %y = tosa.add %x, %r : (tensor<{whole}xi32>, tensor<{constant}xi32>) -> tensor<{whole}xi32>
  func.return %y : tensor<{whole}xi32>
}}
"""


def test_a_single_byte_and_what_is_as_large_are_not_spread(apply: Any) -> None:
    assert apply(broadcast("1x4", "3x4"), SpreadConstant()).count == 1
    assert apply(broadcast("1x1", "3x4"), SpreadConstant()).count == 0
    assert apply(broadcast("3x4", "3x4"), SpreadConstant()).count == 0


def test_a_constant_beside_any_number_of_rows_is_not_spread(left: Any) -> None:
    whole = 'tensor<?x4xi32, #stepwell.shape<["s", 4]>>'
    left(broadcast("1x4", "3x4").replace("tensor<3x4xi32>", whole), SpreadConstant())


def test_a_constant_that_would_fill_the_flash_is_not_spread(apply: Any) -> None:
    done = apply(broadcast("1x64", "257x64"), SpreadConstant())
    assert done.count == 0 and "16448 bytes of flash" in str(done.reasons)


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


def read(*lines: str) -> str:
    flags = FLAGS.replace("CHANNEL", "false")
    body = "\n  ".join(lines)
    return f"""func.func @main(%x: tensor<2x4xi8>) -> tensor<2x4xi32> {{
  %m = stepwell.weight <"m"> "constant" : tensor<1xi32>
  %s = stepwell.weight <"s#ones"> "constant" : tensor<1xi8>
  %z = stepwell.weight <"z"> "constant" : tensor<1xi8>
  %o = stepwell.weight <"o#zeros"> "constant" : tensor<1xi32>
  %r = tosa.rescale %x, %m, %s, %z, %o {flags} : (tensor<2x4xi8>, tensor<1xi32>, tensor<1xi8>, tensor<1xi8>, tensor<1xi32>) -> tensor<2x4xi32>
  {body}
  func.return %y : tensor<2x4xi32>
}}
"""


def copies(apply: Any, text: str) -> list[str]:
    """The rules that fire, in turn, until none does."""
    names: list[str] = []
    for rule in readers.RULES:
        done = apply(text, rule())
        names += [rule.name] * done.count
    return names


PAIR = "(tensor<2x4xi32>, tensor<2x4xi32>) -> tensor<2x4xi32>"


def test_an_operator_that_reads_a_rescale_twice_is_one_reader(apply: Any) -> None:
    assert copies(apply, read(f"%y = tosa.add %r, %r : {PAIR}")) == []
    two = read(f"%a = tosa.add %r, %r : {PAIR}", f"%y = tosa.sub %a, %r : {PAIR}")
    assert copies(apply, two) == ["rescale-for-each-term", "rescale-for-each-square"]


def test_the_last_reader_keeps_the_rescale(apply: Any) -> None:
    two = read(f"%a = tosa.add %r, %x32 : {PAIR}", f"%y = tosa.sub %a, %r : {PAIR}")
    two = two.replace("%x: tensor<2x4xi8>", "%x: tensor<2x4xi8>, %x32: tensor<2x4xi32>")
    assert copies(apply, two) == ["rescale-for-each-term"]


def test_a_rescale_of_int32_is_left_to_its_readers(apply: Any) -> None:
    two = read(f"%a = tosa.add %r, %r : {PAIR}", f"%y = tosa.sub %a, %r : {PAIR}")
    wide = two.replace("2x4xi8", "2x4xi32").replace(
        "tensor<1xi8>, tensor<1xi32>)", "tensor<1xi32>, tensor<1xi32>)"
    )
    stored = '"z"> "constant" : tensor<1xi8>', '"z#zeros"> "constant" : tensor<1xi32>'
    assert copies(apply, wide.replace(*stored)) == []
