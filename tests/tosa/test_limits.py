"""Levels: the largest that one allows is taken, one more is refused; tosa-opt says the same."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

import stepwell
from stepwell.dialects.tosa.targets import TosaTarget, parse_target
from stepwell.ir.diagnostics import StepwellError

from .instances import Instance
from .test_forms import ours, refused_upstream
from .test_transforms import Function, Of

TARGET = parse_target("tosa-1.1+fp+shape+controlflow+fft")
NO_LEVEL = parse_target(f"{TARGET.name}+level_none")


def function(arguments: str, result: str, *lines: str) -> str:
    """A function that gives back %r."""
    body = "\n  ".join(lines)
    return (
        f"func.func @main({arguments}) -> {result} {{\n  {body}\n  func.return %r : {result}\n}}\n"
    )


def sizes(name: str, *values: int) -> str:
    """A CONST_SHAPE."""
    type_ = f"!tosa.shape<{len(values)}>"
    held = f"<{{values = dense<{list(values)}> : tensor<{len(values)}xindex>}}>"
    return f'{name} = "tosa.const_shape"() {held} : () -> {type_}'


def of_size(count: int) -> str:
    x = f"tensor<{count}xf32>"
    return function(f"%a: {x}", x, f'%r = "tosa.abs"(%a) : ({x}) -> {x}')


def of_rank(rank: int) -> str:
    x = f"tensor<{'1x' * rank}f32>"
    return function(f"%a: {x}", x, f'%r = "tosa.abs"(%a) : ({x}) -> {x}')


def padded(pad: int, dilation: int = 1, kernel: int = 1) -> str:
    height = 4 + pad - (kernel - 1) * dilation
    x, w, b = "tensor<1x4x4x1xf32>", f"tensor<1x{kernel}x1x1xf32>", "tensor<1xf32>"
    y = f"tensor<1x{height}x4x1xf32>"
    properties = (
        f"pad = array<i64: {pad}, 0, 0, 0>, stride = array<i64: 1, 1>, "
        f"dilation = array<i64: {dilation}, 1>, acc_type = f32"
    )
    return function(
        f"%a: {x}, %w: {w}, %b: {b}", y,
        '%z = "tosa.const"() <{values = dense<0.0> : tensor<1xf32>}> : () -> tensor<1xf32>',
        f'%r = "tosa.conv2d"(%a, %w, %b, %z, %z) <{{{properties}}}>'
        f" : ({x}, {w}, {b}, {b}, {b}) -> {y}",
    )  # fmt: skip


def joined(count: int) -> str:
    x, y = "tensor<1xf32>", f"tensor<{count}xf32>"
    operands, types = ", ".join(["%a"] * count), ", ".join([x] * count)
    op = f'%r = "tosa.concat"({operands}) <{{axis = 0 : i32}}> : ({types}) -> {y}'
    return function(f"%a: {x}", y, op)


def enlarged(scale: int) -> str:
    x, y = "tensor<1x1x1x1xf32>", f"tensor<1x{scale}x{scale}x1xf32>"
    return function(
        f"%a: {x}", y,
        sizes("%s", scale, 1, scale, 1), sizes("%o", 0, 0), sizes("%b", scale - 1, scale - 1),
        '%r = "tosa.resize"(%a, %s, %o, %b) <{mode = #tosa.resize_mode<NEAREST_NEIGHBOR>}>'
        f" : ({x}, !tosa.shape<4>, !tosa.shape<2>, !tosa.shape<2>) -> {y}",
    )  # fmt: skip


def transformed(height: int) -> str:
    x = f"tensor<1x{height}x1xf32>"
    op = f'%r, %i = "tosa.fft2d"(%a, %a) <{{inverse = false}}> : ({x}, {x}) -> ({x}, {x})'
    return function(f"%a: {x}", x, op)


def pooled(kernel: int) -> str:
    x, y = f"tensor<1x{kernel}x1x1xf32>", "tensor<1x1x1x1xf32>"
    return function(
        f"%a: {x}", y, sizes("%k", kernel, 1), sizes("%o", 1, 1), sizes("%p", 0, 0, 0, 0),
        '%r = "tosa.max_pool2d_adaptive"(%a, %k, %o, %p)'
        f" : ({x}, !tosa.shape<2>, !tosa.shape<2>, !tosa.shape<4>) -> {y}",
    )  # fmt: skip


def spread(kernel: int) -> str:
    x, w, b, y = "1x1x2x1", f"1x{kernel}x1x1", "1", f"1x{kernel}x2x1"
    x, w, b, y = (f"tensor<{shape}xf32>" for shape in (x, w, b, y))
    properties = "out_pad = array<i64: 0, 0, 0, 0>, stride = array<i64: 1, 1>, acc_type = f32"
    return function(
        f"%a: {x}, %w: {w}, %b: {b}", y,
        '%z = "tosa.const"() <{values = dense<0.0> : tensor<1xf32>}> : () -> tensor<1xf32>',
        f'%r = "tosa.transpose_conv2d"(%a, %w, %b, %z, %z) <{{{properties}}}>'
        f" : ({x}, {w}, {b}, {b}, {b}) -> {y}",
    )  # fmt: skip


def listed(count: int) -> str:
    s, x = f"!tosa.shape<{count}>", "tensor<1xf32>"
    add = f'%q = "tosa.add_shape"(%s, %s) : ({s}, {s}) -> {s}'
    one = f'%r = "tosa.abs"(%a) : ({x}) -> {x}'
    return function(f"%a: {x}", x, sizes("%s", *[1] * count), add, one)


def nested(depth: int) -> str:
    x = "tensor<2xf32>"
    types = f"tensor<i1>, {x}"

    def level(k: int) -> str:
        if k == 0:
            return f'%v0 = "tosa.abs"(%a0) : ({x}) -> {x}\n'
        inner = (
            f"^bb0(%p{k - 1}: tensor<i1>, %a{k - 1}: {x}):\n{level(k - 1)}"
            f'"tosa.yield"(%v{k - 1}) : ({x}) -> ()\n'
        )
        other = f'^bb0(%q{k}: tensor<i1>, %b{k}: {x}):\n"tosa.yield"(%b{k}) : ({x}) -> ()\n'
        return (
            f'%v{k} = "tosa.cond_if"(%p{k}, %p{k}, %a{k}) ({{\n{inner}}}, {{\n{other}}})'
            f" : (tensor<i1>, {types}) -> {x}\n"
        )

    return (
        f"func.func @main(%p{depth}: tensor<i1>, %a{depth}: {x}) -> {x} {{\n{level(depth)}"
        f"  func.return %v{depth} : {x}\n}}\n"
    )


LIMITS = {
    "bytes": (of_size((1 << 29) - 1), of_size(1 << 29)),
    "rank": (of_rank(6), of_rank(7)),
    "pad": (padded(8192), padded(8193)),
    "dilation": (padded(8192, 4096, 2), padded(8193 - 2, 4097, 2)),
    "list": (joined(64), joined(65)),
    "scale": (enlarged(256), enlarged(257)),
    "transform": (transformed(8192), transformed(16384)),
    "kernel of run time": (pooled(8192), pooled(8193)),
    "transposed kernel": (spread(8192), spread(8193)),
    "shape": (listed(16), listed(17)),
    "nesting": (nested(5), nested(6)),
}


WITHOUT_LEVEL = {
    "rank": (of_rank(32), of_rank(33)),
    "list": (joined(256), joined(257)),
    "shape": (listed(64), listed(65)),
}
"""What is bounded without a level."""

FREE = ("bytes", "rank", "pad", "dilation", "list", "scale", "transform", "transposed kernel")
"""What level 8K refuses and no level takes."""


@pytest.mark.parametrize("target", [TARGET, NO_LEVEL], ids=lambda t: t.level.name)
def test_what_a_level_allows_is_taken_and_one_more_is_refused(
    target: TosaTarget, tmp_path: Path
) -> None:
    cases = [
        (Instance(name, (kind,), text), target)
        for name, pair in (LIMITS if target is TARGET else WITHOUT_LEVEL).items()
        for kind, text in zip(("most", "more"), pair, strict=True)
    ]
    refused = refused_upstream(cases, tmp_path)
    mine = {index for index, (case, target) in enumerate(cases) if ours(case, target)}
    facts = {(c.operator, *c.types): ours(c, target) for c, target in cases}
    assert mine == {i for i in range(len(cases)) if i % 2}, facts
    assert refused == (mine if target is TARGET else set())  # tosa-opt bounds nothing without one


def test_without_a_level_what_it_refused_is_taken(tmp_path: Path) -> None:
    cases = [(Instance(name, ("more",), LIMITS[name][1]), NO_LEVEL) for name in FREE]
    assert not [reason for case in cases if (reason := ours(*case))]
    assert not refused_upstream(cases, tmp_path)


@pytest.mark.parametrize(
    ("function", "shape", "operators"),
    [
        (lambda x: torch.nn.functional.max_pool1d(x, 9000), (1, 2, 18000), "tosa.max_pool2d"),
        (lambda x: torch.cat([x * i for i in range(70)]), (2, 3), "tosa.concat"),
    ],
)
def test_without_a_level_one_operator_does_and_is_torchs(
    function: Function, shape: Sequence[int], operators: str
) -> None:
    x = torch.randn(*shape)
    exported = torch.export.export(Of(function), (x,))
    lowered = stepwell.lower(exported, "tosa-1.0+fp+level_none")
    assert [op.name for op in lowered.program.module.walk()].count(operators) == 1
    assert torch.equal(lowered.run(x)[0], function(x))


@pytest.mark.parametrize(("level", "pools"), [("", 0), ("+level_none", 1)])
def test_the_mean_of_a_plane_is_a_pool_where_the_level_holds_it(level: str, pools: int) -> None:
    exported = torch.export.export(Of(lambda x: x.mean((2, 3))), (torch.randn(1, 2, 1, 9000),))
    module = stepwell.lower(exported, f"tosa-1.0+fp{level}").program.module
    assert [op.name for op in module.walk()].count("tosa.avg_pool2d") == pools


def test_a_limit_names_the_target_that_lacks_it() -> None:
    exported = torch.export.export(
        Of(lambda x: torch.nn.functional.max_pool1d(x, 9000)), (torch.randn(1, 2, 18000),)
    )
    with pytest.raises(StepwellError, match=r"tosa-1.0\+fp\+level_none has no such limit"):
        stepwell.lower(exported, "tosa-1.0+fp")


def test_seven_axes_are_interpreted_and_the_reference_model_says_that_it_has_none() -> None:
    x = torch.randn(1, 2, 1, 2, 3, 2, 2)
    exported = torch.export.export(Of(lambda x: (x + x.relu()).sum(3)), (x,))
    lowered = stepwell.lower(exported, "tosa-1.0+fp+level_none")
    assert torch.equal(lowered.program.run(x)[0], (x + x.relu()).sum(3))
    with pytest.raises(StepwellError, match="up to 6 axes"):
        lowered.run(x)


def test_no_tensor_is_empty() -> None:
    (problem,) = TARGET.problems(stepwell.parse(of_size(0)).module)
    assert "TOSA has no empty tensors" in problem.fact


def test_an_element_type_that_is_none_is_named() -> None:
    text = of_size(2).replace("xf32", "xf64")
    (problem,) = TARGET.problems(stepwell.parse(text).module)
    assert "no" in problem.fact and "f64" in problem.fact
