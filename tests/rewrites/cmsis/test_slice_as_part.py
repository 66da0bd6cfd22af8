"""Slices and selections as parts: beyond its documented example, and what it leaves alone."""

from collections.abc import Sequence
from typing import Any

import pytest

from stepwell.translate.rewrites.cmsis.layout.slice_as_part import RULES

SLICE, SELECT = (rule() for rule in RULES)
Q = "!quant.uniform<i8:f32, 0.5>"


def of(shape: str, made: str, op: str, *, first: str = "", last: str = "") -> Sequence[str]:
    """Lines that slice what a kernel wrote, and read that."""
    held, part = f"tensor<{shape}x{Q}>", f"tensor<{made}x{Q}>"
    return (
        first or f"%a = cmsis.minimum(%x, %x) : ({held}, {held}) -> {held}",
        f"%r = quant.scast %a : {held} to tensor<{shape}xi8>",
        f"%s = {op} : (tensor<{shape}xi8>) -> tensor<{made}xi8>",
        f"%p = quant.scast %s : tensor<{made}xi8> to {part}",
        last or f"%y = cmsis.minimum(%p, %p) : ({part}, {part}) -> {part}",
    )


def test_one_step_is_a_part_and_a_view(apply: Any, method: Any) -> None:
    lines = of("1x3x4", "1x4", "aten.select.int(%r, 1, -1)")
    gives = f"tensor<1x4x{Q}>"
    done = apply(method(f"%x: tensor<1x3x4x{Q}>", *lines, gives=gives), SELECT)
    assert "cmsis.part" in done.ops() and "aten.view.default" in done.ops()
    assert "aten.select.int" not in done.ops()


@pytest.mark.parametrize(
    ("shape", "made", "op", "reason"),
    [
        ("2x4", "2x2", "aten.slice.Tensor(%r, 1, 0, 2)", "is not contiguous"),
        ("1x4", "1x2", "aten.slice.Tensor(%r, 1, 0, 4, 2)", "the step is 2"),
        ("1x2x2x2", "1x1x2x2", "aten.slice.Tensor(%r, 1, 0, 1)", "channels last"),
    ],
    ids=["apart", "step", "rank"],
)
def test_what_is_no_run_of_memory_is_copied(
    shape: str, made: str, op: str, reason: str, refused: Any, method: Any
) -> None:
    lines = of(shape, made, op)
    text = method(f"%x: tensor<{shape}x{Q}>", *lines, gives=f"tensor<{made}x{Q}>")
    refused(text, SLICE, reason)


def test_a_part_of_an_input_is_copied(refused: Any, method: Any) -> None:
    lines = of("1x4", "1x2", "aten.slice.Tensor(%r, 1, 0, 2)")[1:]
    held = f"tensor<1x4x{Q}>"
    text = method(f"%a: {held}", *lines, gives=f"tensor<1x2x{Q}>")
    refused(text, SLICE, "an input's or a constant's")


def test_a_result_has_bytes_of_its_own(refused: Any, method: Any) -> None:
    lines = of("1x4", "1x2", "aten.slice.Tensor(%r, 1, 0, 2)")
    renamed = [line.replace("%p = ", "%y = ") for line in lines[:4]]
    text = method(f"%x: tensor<1x4x{Q}>", *renamed, gives=f"tensor<1x2x{Q}>")
    refused(text, SLICE, "memory of its own")


def test_an_axis_of_run_time_is_copied(left: Any, written: Any) -> None:
    lines = [
        "%a = cmsis.minimum(%x, %x) : (i8<0.5>[s, 4], i8<0.5>[s, 4]) -> i8<0.5>[s, 4]",
        "%r = quant.scast %a : i8<0.5>[s, 4] to i8[s, 4]",
        "%s = aten.slice.Tensor(%r, 0, 0, 2) : (i8[s, 4]) -> i8[2, 4]",
        "%p = quant.scast %s : i8[2, 4] to i8<0.5>[2, 4]",
        "%y = cmsis.minimum(%p, %p) : (i8<0.5>[2, 4], i8<0.5>[2, 4]) -> i8<0.5>[2, 4]",
    ]
    left(written("%x: i8<0.5>[s, 4]", *lines), SLICE, "known only at run time")


def test_a_place_of_run_time_is_copied(left: Any, written: Any) -> None:
    lines = [
        '%n = aten.sym_size.int(%q, 0) : (f32[2]) -> !stepwell.int<"2">',
        "%a = cmsis.minimum(%x, %x) : (i8<0.5>[1, 4], i8<0.5>[1, 4]) -> i8<0.5>[1, 4]",
        "%r = quant.scast %a : i8<0.5>[1, 4] to i8[1, 4]",
        '%s = aten.slice.Tensor(%r, 1, 0, %n) : (i8[1, 4], !stepwell.int<"2">) -> i8[1, 2]',
        "%p = quant.scast %s : i8[1, 2] to i8<0.5>[1, 2]",
        "%y = cmsis.minimum(%p, %p) : (i8<0.5>[1, 2], i8<0.5>[1, 2]) -> i8<0.5>[1, 2]",
    ]
    left(written("%x: i8<0.5>[1, 4], %q: f32[2]", *lines), SLICE, "known only at run time")


def test_a_part_of_a_constant_is_copied(left: Any, written: Any) -> None:
    lines = [
        '%r = stepwell.weight <"w"> "constant" : i8[1, 4]',
        "%a = quant.scast %r : i8[1, 4] to i8<0.5>[1, 4]",
        "%t = quant.scast %a : i8<0.5>[1, 4] to i8[1, 4]",
        "%s = aten.slice.Tensor(%t, 1, 0, 2) : (i8[1, 4]) -> i8[1, 2]",
        "%p = quant.scast %s : i8[1, 2] to i8<0.5>[1, 2]",
        "%y = cmsis.minimum(%p, %p) : (i8<0.5>[1, 2], i8<0.5>[1, 2]) -> i8<0.5>[1, 2]",
    ]
    left(written("%x: f32[1]", *lines), SLICE, "an input's or a constant's")
