"""MergeLinears: two layers are one where that multiplies no more, and nothing reads in between."""

from typing import Any

import pytest

from stepwell.translate.rewrites.xnnpack.merge_linears import MergeLinears


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
