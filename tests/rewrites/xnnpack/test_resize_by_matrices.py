"""ResizeByMatrices: beside torch's own resizing, and what it leaves alone."""

from typing import Any

import pytest
import torch

from stepwell.ir.declared.numerics import Deviation
from stepwell.translate.lowerings.lowering import Drawn, step
from stepwell.translate.lowerings.xnnpack import resizing


def shaped(*sizes: int | str, element: str = "f32") -> str:
    """A tensor of some sizes, of which texts are symbolic."""
    shape = "x".join("?" if isinstance(size, str) else str(size) for size in sizes)
    told = ", ".join(f'"{size}"' if isinstance(size, str) else str(size) for size in sizes)
    return f"tensor<{shape}x{element}, #stepwell.shape<[{told}]>>"


def resized(old: tuple[Any, Any], new: tuple[Any, Any], more: str, method: Any) -> str:
    """A method that resizes `%x`; `%u` tells sizes that the image does not."""
    given, made = shaped(2, 3, *old), shaped(2, 3, *new)
    asked = shaped("h", "w")
    numbers = ', !stepwell.int<"h">, !stepwell.int<"w">' if "%h" in more else ""
    lines = [
        f'%h = aten.sym_size.int(%u, 0) : ({asked}) -> !stepwell.int<"h">',
        f'%w = aten.sym_size.int(%u, 1) : ({asked}) -> !stepwell.int<"w">',
        f"%y = aten.upsample_bilinear2d.vec(%x, {more}) : ({given}{numbers}) -> {made}",
    ]
    return method(f"%x: {given}, %u: {asked}", *lines, gives=made)


@pytest.mark.parametrize(
    ("old", "new", "more"),
    [
        (("h", "w"), ("2*h", "4*w"), "none, false, [2.0, 4.0]"),
        (("h", "w"), ("2*h", "4*w"), "none, true, [2.0, 4.0]"),
        (("4*h", "4*w"), ("h", "w"), "[%h, %w], false, none"),
        (("4*h", 7), ("h", "w"), "[%h, %w], true, none"),
        ((1, 1), ("h", "w"), "[%h, %w], true, none"),
        (("h", 5), ("3*h", 5), "none, false, [3.0, 1.0]"),
    ],
)
@pytest.mark.parametrize("size", [(2, 3), (5, 1)])
def test_pixels_are_torchs(
    old: tuple[Any, Any], new: tuple[Any, Any], more: str, size: tuple[int, int], apply: Any,
    method: Any,
) -> None:  # fmt: skip
    known = {"h": size[0], "w": size[1]}
    height, width = (eval(str(each), None, known) for each in old)
    inputs = (torch.randn(2, 3, height, width), torch.zeros(size))
    done = apply(resized(old, new, more, method), step(resizing.resize_by_matrices), inputs=inputs)
    assert done.count == 1 and "upsample" not in str(done.program)


@pytest.mark.parametrize(
    ("old", "new", "more", "reason"),
    [
        ((8, 8), (16, 16), "[16, 16], false, none", ""),
        (("h", 7), ("h", "w"), "[%h, %w], false, none", "no constant ratio"),
    ],
)
def test_resize_without_matrices_is_left(
    old: tuple[Any, Any], new: tuple[Any, Any], more: str, reason: str, refused: Any, method: Any
) -> None:
    refused(resized(old, new, more, method), step(resizing.resize_by_matrices), reason)


def test_a_pixel_that_is_not_finite_spreads_which_is_said(programs: Any, method: Any) -> None:
    text = resized(("h", "w"), ("2*h", "2*w"), "none, false, [2.0, 2.0]", method)
    program, _ = programs(text)
    op = next(op for op in program.module.walk() if op.name.startswith("aten.upsample"))
    rewrite = step(resizing.resize_by_matrices)
    match = rewrite.match(op, program)  # pyright: ignore
    assert isinstance(match, Drawn)
    assert isinstance(rewrite.deviates(match, program), Deviation)
