"""What one or two bytes decide is run on all values that there are."""

import pytest

from stepwell.ir.declared.bounds import EXACT, Bound
from stepwell.ir.program import Program
from stepwell.ir.weights import WeightStore
from stepwell.validation.certificates.exhaustive import NotOfBytes, apart_on_all

HELD = "!quant.uniform<i8:f32, 0.5:3>"


def statement(clamp: str) -> Program:
    text = f"""
    builtin.module {{
      func.func @equal(%x: tensor<2x3x{HELD}>) -> (tensor<2x3x{HELD}>, tensor<2x3x{HELD}>) {{
        %r = quant.dcast %x : tensor<2x3x{HELD}> to tensor<2x3xf32>
        %c = aten.clamp.default(%r, 0.0, 6.0) : (tensor<2x3xf32>) -> tensor<2x3xf32>
        %y = quant.qcast %c : tensor<2x3xf32> to tensor<2x3x{HELD}>
        %z = {clamp} : (tensor<2x3x{HELD}>) -> tensor<2x3x{HELD}>
        func.return %y, %z : tensor<2x3x{HELD}>, tensor<2x3x{HELD}>
      }}
    }}"""
    return Program.parse(text, WeightStore())


def test_a_clamp_of_stored_integers_is_that_of_what_they_stand_for() -> None:
    program = statement("xnnpack.clamp(%x, output_min=0.0, output_max=6.0)")
    assert apart_on_all(program, EXACT) is None


@pytest.mark.parametrize("high", ["5.5", "6.5"])
def test_one_value_of_a_byte_that_differs_is_met(high: str) -> None:
    program = statement(f"xnnpack.clamp(%x, output_min=0.0, output_max={high})")
    assert apart_on_all(program, EXACT) is not None
    assert apart_on_all(program, Bound(0.0, 0.0, "a step", units=1)) is None


def moved(after: str) -> Program:
    text = f"""
    builtin.module {{
      func.func @equal(%x: tensor<2x3x{HELD}>) -> (tensor<4x2x{HELD}>, tensor<4x2x{HELD}>) {{
        %r = quant.dcast %x : tensor<2x3x{HELD}> to tensor<2x3xf32>
        %p = aten.constant_pad_nd.default(%r, [0, 1]) : (tensor<2x3xf32>) -> tensor<2x4xf32>
        %t = aten.permute.default(%p, [1, 0]) : (tensor<2x4xf32>) -> tensor<4x2xf32>
        %y = quant.qcast %t : tensor<4x2xf32> to tensor<4x2x{HELD}>
        %a = cmsis.transpose(%x) {{perm = array<i64: 1, 0>}}
          : (tensor<2x3x{HELD}>) -> tensor<3x2x{HELD}>
        {after}
        func.return %y, %z : tensor<4x2x{HELD}>, tensor<4x2x{HELD}>
      }}
    }}"""
    return Program.parse(text, WeightStore())


def padded(of: str, before: int, after: int, value: int) -> str:
    return (
        f"%z = cmsis.pad({of}) {{pre_pad = array<i64: 0, 0, {before}, 0>, "
        f"post_pad = array<i64: 0, 0, {after}, 0>, pad_value = {value} : i64}} "
        f": (tensor<3x2x{HELD}>) -> tensor<4x2x{HELD}>"
    )


def test_bytes_that_move_are_followed_to_their_places() -> None:
    assert apart_on_all(moved(padded("%a", 0, 1, 3)), EXACT) is None


def test_another_number_around_them_is_met() -> None:
    assert apart_on_all(moved(padded("%a", 0, 1, 2)), EXACT) is not None


def test_what_moves_to_other_places_is_not_decided_so() -> None:
    with pytest.raises(NotOfBytes):
        apart_on_all(moved(padded("%a", 1, 0, 3)), EXACT)
    turned = f"%b = aten.flip.default(%a, [1]) : (tensor<3x2x{HELD}>) -> tensor<3x2x{HELD}>\n"
    with pytest.raises(NotOfBytes):
        apart_on_all(moved(turned + padded("%b", 0, 1, 3)), EXACT)


def test_what_is_not_elementwise_is_not_decided_so() -> None:
    text = f"""
    builtin.module {{
      func.func @equal(%x: tensor<2x{HELD}>) -> (tensor<2x{HELD}>, tensor<2x{HELD}>) {{
        %z = aten.flip.default(%x, [0]) : (tensor<2x{HELD}>) -> tensor<2x{HELD}>
        func.return %x, %z : tensor<2x{HELD}>, tensor<2x{HELD}>
      }}
    }}"""
    with pytest.raises(NotOfBytes):
        apart_on_all(Program.parse(text, WeightStore()), EXACT)
