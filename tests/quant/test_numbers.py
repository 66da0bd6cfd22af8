"""Many scales and zero points, kept short."""

import math
from dataclasses import replace

import pytest
import torch

from stepwell.dialects.quant.numbers import Numbers, compact
from stepwell.dialects.quant.types import UniformQuantizedType, per_axis

MANY = [0.5 + index / 8 for index in range(300)]
HALVES = [0.5 * (index % 256 + 1) for index in range(300)]  # Numbers of bfloat16.


def test_few_numbers_stay_a_tuple_and_many_are_kept_short() -> None:
    assert compact(MANY[:3], float) == tuple(MANY[:3])
    held = compact(MANY, float)
    assert isinstance(held, Numbers) and compact(held, float) is held
    assert list(held) == MANY and held[7] == MANY[7] and held[:2] == tuple(MANY[:2])
    assert held == compact(tuple(MANY), float) and hash(held) == hash(compact(MANY, float))
    assert held != compact([0.25, *MANY[1:]], float)


@pytest.mark.parametrize(
    ("values", "kind", "size"),
    [
        (HALVES, float, 600),
        (MANY, float, 1200),
        ([0.1, 0.3] * 150, float, 2400),  # No numbers of single precision.
        ([1e300, *MANY], float, 2408),
        ([0, -128, 127] * 100, int, 300),
        ([0, 128] * 100, int, 1600),
        ([3] * 300, int, 1),
        ([0.75] * 300, float, 2),
        ([0.1] * 300, float, 8),
        ([-0.0, *[0.0] * 99], float, 200),
    ],
)
def test_no_number_is_rounded(values: list[float], kind: type[float], size: int) -> None:
    held = compact(values, kind)
    assert isinstance(held, Numbers)
    assert list(map(str, held)) == list(map(str, values))
    assert held[-1] == values[-1] and held[3:60] == tuple(values[3:60])
    assert held.kept_bytes == size and len(held.held) == len(values)


def test_many_scales_are_verified_and_give_vectors() -> None:
    held = per_axis(torch.int8, 0, MANY).data
    assert held.scale_values().tolist() == MANY and held.is_symmetric
    assert held.zero_point_values().tolist() == [0] * len(MANY)
    assert held.problem() is None and held == per_axis(torch.int8, 0, MANY).data
    for wrong in (math.nan, math.inf, 0.0, -1.0):
        told = replace(held, scales=[*MANY[:-1], wrong]).problem()
        assert told is not None and "is not a positive number" in told
    zeros = replace(held, zero_points=[*[0] * 299, 3])
    assert not zeros.is_symmetric and zeros != held
    assert "zero point 128 is outside" in str(
        replace(held, zero_points=[128] * len(MANY)).problem()
    )
    assert UniformQuantizedType(zeros) != UniformQuantizedType(held)


def test_numbers_beyond_64_bits_are_told_in_words() -> None:
    held = replace(per_axis(torch.int8, 0, MANY).data, zero_points=[10**30] * len(MANY))
    assert "is outside" in str(held.problem())
