"""Pixel shuffles after convolutions by phases of rows; and what stays a transpose."""

from typing import Any

import pytest

from stepwell.dialects.tosa import generated as t
from stepwell.translate.rewrites.ethosu import ShuffledByPhases

LAST, FIRST = [0, 3, 1, 4, 2], [2, 0, 3, 1, 4]
"""Rows, columns, channels and both factors, to an image with its channels last or first."""


def shuffled(
    rows: int = 2,
    columns: int = 2,
    channels: int = 3,
    order: list[int] = LAST,
    *,
    per_channel: bool = True,
    weight: str = "weight ",
    twice: bool = False,
) -> str:
    """A convolution of bytes, its RESCALE, and a shuffle of its channels."""
    held = channels * rows * columns
    factors = held if per_channel else 1
    split = [4, 5, channels, rows, columns]
    made = [split[axis] for axis in order]
    image = [4 * rows, 5 * columns]
    whole = [1, *image, channels] if order == LAST else [1, channels, *image]
    return f"""
        %c = tosa.conv2d(%x: i8[1, 4, 5, 2], %w: {weight}i8[{held}, 3, 3, 2], %b: weight i32[{held}],
            %i: constant i8[1], %k: constant "k#zeros" i8[1], acc_type=i32, pad=[1, 1, 1, 1],
            stride=[1, 1], dilation=[1, 1]) -> i32[1, 4, 5, {held}]
        %y = tosa.rescale(%c, %m: constant i32[{factors}], %s: constant i8[{factors}],
            %z: constant "z#zeros" i32[1], %o: constant i8[1], input_unsigned=false,
            output_unsigned=false, per_channel={str(per_channel).lower()},
            rounding_mode="SINGLE_ROUND", scale32=true) -> i8[1, 4, 5, {held}]
        %v = tosa.reshape(%y, {split}) -> i8{split}
        %t = tosa.transpose(%v, perms={order}) -> i8{made}
        %r = tosa.reshape(%t, {whole}) -> i8{whole}
        return %r{", %y" * twice}
    """


@pytest.mark.parametrize("order", [LAST, FIRST], ids=["last", "first"])
@pytest.mark.parametrize(("rows", "columns"), [(2, 2), (3, 3), (1, 2), (4, 1), (2, 3)])
@pytest.mark.parametrize("per_channel", [True, False])
def test_phases_compute_the_shuffled_image(
    apply: Any, rows: int, columns: int, order: list[int], per_channel: bool
) -> None:
    done = apply(shuffled(rows, columns, 3, order, per_channel=per_channel), ShuffledByPhases())
    assert done.count == 1
    ops = [type(op) for op in done.program.module.walk()]
    assert ops.count(t.Conv2dOp) == rows
    assert ops.count(t.TransposeOp) == (order == FIRST)


@pytest.mark.parametrize(
    "changes",
    [
        {"twice": True},
        {"weight": ""},
        {"order": [0, 4, 1, 3, 2]},
        {"order": [0, 3, 1, 2, 4]},
        {"rows": 1, "columns": 1},
    ],
    ids=[
        "bytes that another reads",
        "a filter of run time",
        "columns for rows",
        "not shuffled",
        "1",
    ],
)
def test_a_shuffle_stays_a_transpose(refused: Any, changes: dict[str, Any]) -> None:
    order = changes.get("order", LAST)
    text = shuffled(**{**changes, "order": order})
    if order != LAST:  # As an image with its channels last, all the same.
        text = text.replace("i8[1, 3, 8, 10]", "i8[1, 8, 10, 3]").replace(
            "(%t, [1, 3, 8, 10])", "(%t, [1, 8, 10, 3])"
        )
    refused(text, ShuffledByPhases())
