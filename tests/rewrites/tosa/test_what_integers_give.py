"""Functions of integers: what they give is within a unit of what floats give."""

from typing import Any

import pytest
import torch
from integer_texts import PRODUCT, SHORT, SOFTMAX, TANH, WIDE_NUMBER, computed

from stepwell.translate.lowerings.lowering import step
from stepwell.translate.lowerings.tosa.integers.distributions import int8_softmax
from stepwell.translate.lowerings.tosa.integers.functions import int16_function, int16_scale

SCALES = [(4, 0.1, 1 / 256), (300, 0.5, 1 / 256), (1200, 0.02, 1 / 255), (197, 0.3, 1 / 1024), (9, 0.0, 0.01)]  # fmt: skip


@pytest.mark.parametrize(("count", "scale", "made"), SCALES)
def test_a_softmax_of_bytes_is_within_a_unit_of_the_floats(
    apply: Any, written: Any, count: int, scale: float, made: float
) -> None:
    shape = f"7, {count}"
    held = f"i8<{scale or 1e-4}:-5>"
    text = written(*computed(SOFTMAX.format(shape), shape, shape, held, f"i8<{made}:-128>"))
    spread = torch.randint(-128, 128, (7, count), dtype=torch.int8)
    spread[0], spread[1] = 127, -128
    spread[2, 1:] = -128
    spread[3] = torch.linspace(-128, 127, count).to(torch.int8)
    done = apply(text, step(int8_softmax), inputs=[spread])
    assert done.ops().count("tosa.table") == (3 if count > 500 or made < 1 / 256 else 2)


CURVES = {
    "a table": (TANH, "i16<0.0001>", "i16<0.00004>", "tosa.table"),
    "a table of a shallow curve": (TANH.replace("tanh", "sigmoid"), "i16<0.0002>", "i16<0.01>", "tosa.table"),
    "every result, near a pole": (TANH.replace("tanh", "reciprocal"), *SHORT, "tosa.gather"),
    "every result, of steep jumps": (TANH.replace("tanh", "sign"), *SHORT, "tosa.gather"),
    "every result, where a slope passes 16 bits": (TANH.replace("tanh", "neg"), "i16<0.256>", "i16<0.001>", "tosa.gather"),
}  # fmt: skip


@pytest.mark.parametrize("name", CURVES)
def test_a_function_of_16_bits_is_within_a_unit_everywhere(
    apply: Any, written: Any, name: str
) -> None:
    line, held, made, operator = CURVES[name]
    text = written(
        *computed(line.replace("f32[4]", "f32[1, 65536]"), "1, 65536", "1, 65536", held, made)
    )
    every = torch.arange(-(1 << 15), 1 << 15).to(torch.int16).reshape(1, -1)
    assert operator in apply(text, step(int16_function), inputs=[every]).ops()


@pytest.mark.parametrize("swapped", [False, True])
def test_a_product_of_16_bits_with_a_number_is_one_rescale(
    apply: Any, written: Any, swapped: bool
) -> None:
    line = PRODUCT.replace("(%xr, %c) : (f32[4], f32[1])", "(%c, %xr) : (f32[1], f32[4])") if swapped else PRODUCT  # fmt: skip
    done = apply(written(*computed(f"{WIDE_NUMBER}; {line}", "4", "4", *SHORT)), step(int16_scale))
    assert [op for op in done.ops() if "scast" not in op] == ["tosa.rescale"]
