"""ResizeByMatrices: beside torch's own resizing, and what it leaves alone."""

from typing import Any

import pytest
import torch
from rewrite_cases import cases
from rewrite_runs import program_of

from stepwell.ir.declared.numerics import Deviation
from stepwell.translate.lowerings.lowering import Drawn, step
from stepwell.translate.lowerings.xnnpack import resizing

HW = "%h = aten.sym_size.int(%u: f32[h, w], 0); %w = aten.sym_size.int(%u, 1)"
"""Sizes that the image may not have."""


@pytest.mark.parametrize(
    ("height", "width", "more", "made"),
    [
        ("h", "w", "none, false, [2.0, 4.0]", "2*h, 4*w"),
        ("h", "w", "none, true, [2.0, 4.0]", "2*h, 4*w"),
        ("4*h", "4*w", "[%h, %w], false, none", "h, w"),
        ("4*h", "7", "[%h, %w], true, none", "h, w"),
        ("1", "1", "[%h, %w], true, none", "h, w"),
        ("h", "5", "none, false, [3.0, 1.0]", "3*h, 5"),
    ],
)
@pytest.mark.parametrize("size", [(2, 3), (5, 1)])
def test_pixels_are_torchs(
    height: str, width: str, more: str, made: str, size: tuple[int, int], apply: Any
) -> None:
    known = {"h": size[0], "w": size[1]}
    given = [eval(each, None, known) for each in (height, width)]
    call = f"aten.upsample_bilinear2d.vec(%x: f32[2, 3, {height}, {width}], {more})"
    text = f"{HW}; %y = {call} -> f32[2, 3, {made}]"
    inputs = (torch.zeros(size), torch.randn(2, 3, *given))
    done = apply(text, step(resizing.resize_by_matrices), inputs=inputs)
    assert done.count == 1 and "upsample" not in str(done.program)


test_resize_without_matrices = cases(step(resizing.resize_by_matrices))("""
known sizes -> unchanged
    %y = aten.upsample_bilinear2d.vec(%x: f32[2, 3, 8, 8], [16, 16], false, none)
sizes of no constant ratio -> refused: the ratio of w to 7 is not constant
    %h = aten.sym_size.int(%u: f32[h, w], 0); %w = aten.sym_size.int(%u, 1)
    %y = aten.upsample_bilinear2d.vec(%x: f32[2, 3, h, 7], [%h, %w], false, none) -> f32[2, 3, h, w]
""")


def test_a_pixel_that_is_not_finite_spreads_which_is_said() -> None:
    call = "aten.upsample_bilinear2d.vec(%x: f32[2, 3, h, w], none, false, [2.0, 2.0])"
    program = program_of(f"%y = {call} -> f32[2, 3, 2*h, 2*w]")
    op = next(op for op in program.module.walk() if op.name.startswith("aten.upsample"))
    rewrite = step(resizing.resize_by_matrices)
    match = rewrite.match(op, program)  # pyright: ignore
    assert isinstance(match, Drawn)
    assert isinstance(rewrite.deviates(match, program), Deviation)
