"""Levels: the largest that one allows is taken, one more is refused; tosa-opt says the same."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import stepwell
from stepwell.dialects.tosa.targets import TosaTarget, parse_target
from stepwell.ir.diagnostics import StepwellError

from .graphs import Function, agree, lowered
from .instances import Instance, constant, of, shape, tensor
from .test_forms import ours, refused_upstream

TARGET = parse_target("tosa-1.1+fp+shape+controlflow+fft")
NO_LEVEL = parse_target(f"{TARGET.name}+level_none")


def one(name: str, operands: Sequence[Any], properties: str, *results: str) -> str:
    """A function of one operator."""
    return of(name, (), operands, properties, *results).text


def floats(*shape: int) -> str:
    return tensor("f32", *shape)


ZERO = constant("f32", 0)


def of_shape(*sizes: int) -> str:
    return one("abs", [floats(*sizes)], "", floats(*sizes))


def padded(pad: int, dilation: int = 1, kernel: int = 1) -> str:
    operands = [floats(1, 4, 4, 1), floats(1, kernel, 1, 1), floats(1), ZERO, ZERO]
    properties = (
        f"pad = array<i64: {pad}, 0, 0, 0>, stride = array<i64: 1, 1>, "
        f"dilation = array<i64: {dilation}, 1>, acc_type = f32"
    )
    return one("conv2d", operands, properties, floats(1, 4 + pad - (kernel - 1) * dilation, 4, 1))


def joined(count: int) -> str:
    return one("concat", [floats(1)] * count, "axis = 0 : i32", floats(count))


def enlarged(scale: int) -> str:
    operands = [floats(1, 1, 1, 1), shape(scale, 1, scale, 1), shape(0, 0)]
    operands.append(shape(scale - 1, scale - 1))
    mode = "mode = #tosa.resize_mode<NEAREST_NEIGHBOR>"
    return one("resize", operands, mode, floats(1, scale, scale, 1))


def transformed(height: int) -> str:
    x = floats(1, height, 1)
    return one("fft2d", [x, x], "inverse = false", x, x)


def pooled(kernel: int) -> str:
    operands = [floats(1, kernel, 1, 1), shape(kernel, 1), shape(1, 1), shape(0, 0, 0, 0)]
    return one("max_pool2d_adaptive", operands, "", floats(1, 1, 1, 1))


def spread(kernel: int) -> str:
    operands = [floats(1, 1, 2, 1), floats(1, kernel, 1, 1), floats(1), ZERO, ZERO]
    properties = "out_pad = array<i64: 0, 0, 0, 0>, stride = array<i64: 1, 1>, acc_type = f32"
    return one("transpose_conv2d", operands, properties, floats(1, kernel, 2, 1))


def listed(count: int) -> str:
    sizes = [shape(*[1] * count)] * 2
    return of("add_shape", (), sizes, "", f"!tosa.shape<{count}>", returned=False).text


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
    "bytes": (of_shape((1 << 29) - 1), of_shape(1 << 29)),
    "rank": (of_shape(*[1] * 6), of_shape(*[1] * 7)),
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
    "rank": (of_shape(*[1] * 32), of_shape(*[1] * 33)),
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
        (lambda x: F.max_pool1d(x, 9000), (1, 2, 18000), "tosa.max_pool2d"),
        (lambda x: torch.cat([x * i for i in range(70)]), (2, 3), "tosa.concat"),
    ],
)
def test_without_a_level_one_operator_does_and_is_torchs(
    function: Function, shape: Sequence[int], operators: str
) -> None:
    low = agree(function, torch.randn(*shape), target="tosa-1.0+fp+level_none")
    assert [op.name for op in low.program.module.walk()].count(operators) == 1


@pytest.mark.parametrize(("level", "pools"), [("", 0), ("+level_none", 1)])
def test_the_mean_of_a_plane_is_a_pool_where_the_level_holds_it(level: str, pools: int) -> None:
    x, target = torch.randn(1, 2, 1, 9000), f"tosa-1.0+fp{level}"
    module = lowered(lambda x: x.mean((2, 3)), x, target=target).program.module
    assert [op.name for op in module.walk()].count("tosa.avg_pool2d") == pools


def test_a_limit_names_the_target_that_lacks_it() -> None:
    with pytest.raises(StepwellError, match=r"tosa-1.0\+fp\+level_none has no such limit"):
        lowered(lambda x: F.max_pool1d(x, 9000), torch.randn(1, 2, 18000), target="tosa-1.0+fp")


def test_seven_axes_are_interpreted_and_the_reference_model_says_that_it_has_none() -> None:
    x = torch.randn(1, 2, 1, 2, 3, 2, 2)
    low = lowered(lambda x: (x + x.relu()).sum(3), x, target="tosa-1.0+fp+level_none")
    assert torch.equal(low.program.run(x)[0], (x + x.relu()).sum(3))
    with pytest.raises(StepwellError, match="up to 6 axes"):
        low.run(x)


def test_no_tensor_is_empty() -> None:
    (problem,) = TARGET.problems(stepwell.parse(of_shape(0)).module)
    assert "TOSA has no empty tensors" in problem.fact


def test_an_element_type_that_is_none_is_named() -> None:
    text = of_shape(2).replace("xf32", "xf64")
    (problem,) = TARGET.problems(stepwell.parse(text).module)
    assert "no" in problem.fact and "f64" in problem.fact
