"""Clamp nodes and FuseClamp: bounds that make a range, and nodes that can take it in."""

from typing import Any

import pytest

from stepwell.translate.rewrites.xnnpack.nodes.fuse_clamp import FuseClamp
from stepwell.translate.rewrites.xnnpack.nodes.lower_clamp import RULES

(CLAMP,) = (rule() for rule in RULES if rule.name == "lower-clamp")
X = "tensor<2x4xf32>"
INT8, COARSE = (f"tensor<2x4x!quant.uniform<i8:f32, {scale}>>" for scale in (0.125, 0.5))
ADDED = f"%a = xnnpack.add(%x, %x) : ({X}, {X}) -> {X}"


def clamp(given: str, type_: str = X, made: str = "y") -> str:
    return f"%{made} = xnnpack.clamp(%{given}, output_max=0.5) : ({type_}) -> {type_}"


@pytest.mark.parametrize("bounds", ["2.0, 1.0", "1.0, 1.0", "1.0, 1.00000000001"])
def test_bounds_that_leave_no_range_in_float32_are_refused(bounds: str, refused: Any, method: Any):
    line = f"%y = aten.clamp.default(%x, {bounds}) : ({X}) -> {X}"
    refused(method(f"%x: {X}", line, gives=X), CLAMP, "is not below")


def test_a_bound_that_is_no_number_is_refused(refused: Any, method: Any):
    line = f"%y = aten.clamp.default(%x, nan) : ({X}) -> {X}"
    refused(method(f"%x: {X}", line, gives=X), CLAMP, "nan is not below")


@pytest.mark.parametrize("bounds", ["0.25, none", "none, 0.25", "-0.5, 0.5"])
def test_one_bound_is_enough(bounds: str, apply: Any, method: Any):
    line = f"%y = aten.clamp.default(%x, {bounds}) : ({X}) -> {X}"
    assert apply(method(f"%x: {X}", line, gives=X), CLAMP).ops() == ["xnnpack.clamp"]


def test_a_clamp_becomes_the_range_of_the_node_before_it(apply: Any, method: Any):
    done = apply(method(f"%x: {X}", ADDED, clamp("a"), gives=X), FuseClamp())
    assert done.ops() == ["xnnpack.add"]


def test_a_clamp_of_an_argument_stays(refused: Any, method: Any):
    refused(method(f"%x: {X}", clamp("x"), gives=X), FuseClamp())


def test_a_clamp_behind_a_node_without_a_range_stays(refused: Any, method: Any):
    line = f"%a = xnnpack.abs(%x) : ({X}) -> {X}"
    refused(method(f"%x: {X}", line, clamp("a"), gives=X), FuseClamp())


def test_a_range_is_not_written_over(refused: Any, method: Any):
    line = f"%a = xnnpack.add(%x, %x, output_max=-0.5) : ({X}, {X}) -> {X}"
    refused(method(f"%x: {X}", line, clamp("a"), gives=X), FuseClamp(), "clamps its output already")


def test_what_is_read_without_the_clamp_too_keeps_its_values(refused: Any, method: Any):
    end = f"%y = xnnpack.subtract(%a, %c) : ({X}, {X}) -> {X}"
    text = method(f"%x: {X}", ADDED, clamp("a", made="c"), end, gives=X)
    refused(text, FuseClamp(), "without the clamp")


def test_a_clamp_that_changes_the_scale_stays(refused: Any, method: Any):
    added = f"%a = xnnpack.add(%x, %x) : ({INT8}, {INT8}) -> {INT8}"
    line = f"%y = xnnpack.clamp(%a, output_max=0.5) : ({INT8}) -> {COARSE}"
    text = method(f"%x: {INT8}", added, line, gives=COARSE)
    refused(text, FuseClamp(), "also changes the type")
