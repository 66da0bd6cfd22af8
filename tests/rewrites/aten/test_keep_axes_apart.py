"""KeepAxesApart and AttendFromImage: beyond their documented examples, and what they leave alone."""

from typing import Any

import pytest

from stepwell.translate.rewrites.attention.attend_from_image import AttendFromImage
from stepwell.translate.rewrites.sizes.keep_axes_apart import KeepAxesApart


def shaped(*sizes: int | str) -> str:
    """A tensor of floats of some sizes, of which texts are symbolic."""
    shape = "x".join("?" if isinstance(size, str) else str(size) for size in sizes)
    told = ", ".join(f'"{size}"' if isinstance(size, str) else str(size) for size in sizes)
    return f"tensor<{shape}xf32, #stepwell.shape<[{told}]>>"


IMAGE, ROWS = shaped(1, "h", "w", 4), shaped(1, "h*w", 4)
MERGE = f"%r = aten.view.default(%x, [1, -1, 4]) : ({IMAGE}) -> {ROWS}"
NORM = "aten.layer_norm.default(%r, [4], none, none, 1.0e-5, false)"


@pytest.mark.parametrize(
    ("call", "operands", "gives"),
    [
        ("aten.permute.default(%r, [0, 2, 1])", (ROWS,), shaped(1, 4, "h*w")),
        (NORM, (ROWS,), ROWS),
        ("aten.gelu.default(%r)", (ROWS,), ROWS),
        ("aten.add.Tensor(%r, %r)", (ROWS, ROWS), ROWS),
        ("aten.mul.Tensor(%r, %v)", (ROWS, "tensor<4xf32>"), ROWS),
    ],
)
def test_the_merge_sinks_below(
    call: str, operands: tuple[str, ...], gives: str, apply: Any, method: Any
) -> None:
    line = f"%y = {call} : ({', '.join(operands)}) -> {gives}"
    text = method(f"%x: {IMAGE}, %v: tensor<4xf32>", MERGE, line, gives=gives)
    done = apply(text, KeepAxesApart())
    assert done.count == 1
    *_, last, _ = done.program.module.walk()
    views = [op for op in done.program.module.walk() if op.name == "aten.view.default"]
    assert len(views) == 1 and str(views[0].results[0].type) == str(last.results[0].type)


@pytest.mark.parametrize(
    "lines",
    [
        (),
        (f"%u = aten.add.Tensor(%r, %z) : ({ROWS}, {ROWS}) -> {ROWS}",),
        (
            f"%c = aten.slice.Tensor(%z, 2, 0, 1, 1) : ({ROWS}) -> {shaped(1, 'h*w', 1)}",
            f"%u = aten.mul.Tensor(%r, %c) : ({ROWS}, {shaped(1, 'h*w', 1)}) -> {ROWS}",
        ),
    ],
    ids=["along the places", "beside other rows", "a number for each place"],
)
def test_what_looks_along_the_merged_axis_stays(
    lines: tuple[str, ...], refused: Any, method: Any
) -> None:
    softmax = f"%z = aten._softmax.default(%r, 1, false) : ({ROWS}) -> {ROWS}"
    last = f"%y = aten.neg.default({'%u' if lines else '%z'}) : ({ROWS}) -> {ROWS}"
    text = method(f"%x: {IMAGE}", MERGE, softmax, *lines, last, gives=ROWS)
    refused(text, KeepAxesApart())


def test_a_merge_of_one_symbolic_size_stays(refused: Any, method: Any) -> None:
    image, rows = shaped(1, "h", 3, 4), shaped(1, "3*h", 4)
    merge = f"%r = aten.view.default(%x, [1, -1, 4]) : ({image}) -> {rows}"
    line = f"%y = aten.gelu.default(%r) : ({rows}) -> {rows}"
    refused(method(f"%x: {image}", merge, line, gives=rows), KeepAxesApart())


QUERIES, KEYS = shaped(1, 1, "h*w", 4), shaped(1, 1, "n", 4)


def attended(more: str, method: Any) -> str:
    """Attention of one head from an image."""
    call = f"aten.scaled_dot_product_attention.default(%q, %k, %k{more})"
    return method(
        f"%x: {IMAGE}, %k: {KEYS}",
        f"%q = aten.view.default(%x, [1, 1, -1, 4]) : ({IMAGE}) -> {QUERIES}",
        f"%y = {call} : ({QUERIES}, {KEYS}, {KEYS}) -> {QUERIES}",
        gives=QUERIES,
    )


def test_one_head_needs_no_slices(apply: Any, method: Any) -> None:
    done = apply(attended("", method), AttendFromImage())
    assert done.count == 1 and "aten.slice" not in str(done.program)


def test_a_mask_of_places_is_refused(refused: Any, method: Any) -> None:
    refused(attended(", none, 0.0, true", method), AttendFromImage(), "a mask selects")
