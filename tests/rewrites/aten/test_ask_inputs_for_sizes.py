"""AskInputsForSizes: beyond its documented example, and what it leaves alone."""

from typing import Any

import pytest

from stepwell.translate.rewrites.aten.ask_inputs_for_sizes import AskInputsForSizes

X = 'tensor<?x4xf32, #stepwell.shape<["s", 4]>>'
TWICE = 'tensor<?x4xf32, #stepwell.shape<["2*s", 4]>>'


@pytest.mark.parametrize(
    "lines",
    [
        [f'%n = aten.sym_size.int(%x, 0) : ({X}) -> !stepwell.int<"s">'],
        [
            f"%z = aten.cat.default([%x, %x], 0) : ({X}, {X}) -> {TWICE}",
            f'%n = aten.sym_size.int(%z, 0) : ({TWICE}) -> !stepwell.int<"2*s">',
        ],
    ],
    ids=["a size asked of an input", "a size that no input has"],
)
def test_it_leaves(lines: list[str], refused: Any, method: Any) -> None:
    last = f'%y = aten.add.Tensor(%x, %n) : ({X}, !stepwell.int<"{"2*s" if len(lines) > 1 else "s"}">) -> {X}'
    refused(method(f"%x: {X}", *lines, last, gives=X), AskInputsForSizes())
