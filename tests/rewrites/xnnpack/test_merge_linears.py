"""MergeLinears: two layers are one where that multiplies no more, and nothing reads in between."""

from typing import Any

import pytest

from stepwell.translate.rewrites.xnnpack.nodes.merge_linears import MergeLinears


def weight(name: str, shape: str) -> str:
    return f'%{name} = stepwell.weight <"{name}"> "parameter" : tensor<{shape}>'


def linear(given: str, made: str, w: str, hidden: str, before: str, after: str) -> str:
    return (
        f"%{made} = aten.linear.default(%{given}, %{w}) : "
        f"(tensor<{before}>, tensor<{hidden}>) -> tensor<{after}>"
    )


def two(element: str = "f32", hidden: int = 8) -> list[str]:
    return [
        weight("a", f"{hidden}x4x{element}"),
        weight("b", f"6x{hidden}x{element}"),
        linear("x", "h", "a", f"{hidden}x4x{element}", f"2x4x{element}", f"2x{hidden}x{element}"),
        linear("h", "y", "b", f"6x{hidden}x{element}", f"2x{hidden}x{element}", f"2x6x{element}"),
    ]


@pytest.mark.parametrize(("hidden", "count"), [(8, 1), (3, 1), (2, 0)])
def test_a_narrow_layer_that_saves_products_stays(apply: Any, method: Any, hidden: int, count: int):
    text = method("%x: tensor<2x4xf32>", "\n".join(two(hidden=hidden)), gives="tensor<2x6xf32>")
    assert apply(text, MergeLinears()).count == count


def test_halves_are_not_merged(refused: Any, method: Any):
    text = method("%x: tensor<2x4xf16>", "\n".join(two("f16")), gives="tensor<2x6xf16>")
    refused(text, MergeLinears(), "fewer than 24 bits")


def test_a_layer_that_others_read_stays(refused: Any):
    lines = [*two(), "%s = aten.relu.default(%h) : (tensor<2x8xf32>) -> tensor<2x8xf32>"]
    text = "func.func @forward(%x: tensor<2x4xf32>) -> (tensor<2x6xf32>, tensor<2x8xf32>) {\n"
    text += "\n".join(lines) + "\nfunc.return %y, %s : tensor<2x6xf32>, tensor<2x8xf32>\n}"
    refused(text, MergeLinears(), "read by others")


def test_weights_of_run_time_stay(refused: Any, method: Any):
    lines = two()
    del lines[1]
    text = method(
        "%x: tensor<2x4xf32>, %b: tensor<6x8xf32>", "\n".join(lines), gives="tensor<2x6xf32>"
    )
    refused(text, MergeLinears(), "computed at run time")


@pytest.mark.parametrize("name", ["a", "b"])
def test_a_computed_bias_stays(name: str, refused: Any, method: Any):
    size = "8xf32" if name == "a" else "6xf32"
    old, new = (f"%{name}) : (", f"%{name}, %c) : (")
    lines = [
        line.replace(old, new).replace(") ->", f", tensor<{size}>) ->") if old in line else line
        for line in two()
    ]
    text = method(
        f"%x: tensor<2x4xf32>, %c: tensor<{size}>", "\n".join(lines), gives="tensor<2x6xf32>"
    )
    refused(text, MergeLinears(), "computed at run time")


def test_a_layer_of_what_no_layer_made_is_left_alone(refused: Any, method: Any):
    lines = (weight("a", "8x4xf32"), linear("x", "y", "a", "8x4xf32", "2x4xf32", "2x8xf32"))
    refused(method("%x: tensor<2x4xf32>", *lines, gives="tensor<2x8xf32>"), MergeLinears())


@pytest.mark.parametrize(
    ("inner", "between", "outer", "gives"),
    [("8x4xf32", "2x8xf32", "8xf32", "2xf32"), ("4xf32", "2xf32", "3x2xf32", "3xf32")],
    ids=["outer", "inner"],
)
def test_a_weight_without_an_axis_of_outputs_is_refused(
    inner: str, between: str, outer: str, gives: str, refused: Any, method: Any
):
    lines = (
        weight("a", inner),
        weight("b", outer),
        linear("x", "h", "a", inner, "2x4xf32", between),
        linear("h", "y", "b", outer, between, gives),
    )
    text = method("%x: tensor<2x4xf32>", *lines, gives=f"tensor<{gives}>")
    refused(text, MergeLinears(), "a weight is a vector")
