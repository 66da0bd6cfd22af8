"""PreluChannelsLast: beyond its documented example, and what it leaves alone."""

from typing import Any

import pytest

from stepwell.translate.decompositions import views
from stepwell.translate.lowerings.lowering import step


def prelu(shape: str, slopes: str) -> str:
    return (
        f"%y = aten.prelu.default(%x, %w) : (tensor<{shape}>, tensor<{slopes}>) -> tensor<{shape}>"
    )


@pytest.mark.parametrize(
    ("shape", "slopes"), [("2x4xf32", "4xf32"), ("2x4x3xf32", "1xf32"), ("2x4x3xf32", "f32")]
)
def test_slopes_that_stand_on_the_last_axis_or_everywhere_need_nothing(
    apply: Any, method: Any, shape: str, slopes: str
):
    weight = f'%w = stepwell.weight <"w"> "parameter" : tensor<{slopes}>'
    text = method(
        f"%x: tensor<{shape}>", f"{weight}\n{prelu(shape, slopes)}", gives=f"tensor<{shape}>"
    )
    assert apply(text, step(views.prelu_channels_last)).count == 0


def test_slopes_of_run_time_are_refused(refused: Any, method: Any):
    text = method(
        "%x: tensor<2x4x3xf32>, %w: tensor<4xf32>",
        prelu("2x4x3xf32", "4xf32"),
        gives="tensor<2x4x3xf32>",
    )
    refused(text, step(views.prelu_channels_last), "computed at run time")


def test_doubles_are_refused(refused: Any, method: Any):
    weight = '%w = stepwell.weight <"w"> "parameter" : tensor<4xf64>'
    text = method(
        "%x: tensor<2x4x3xf64>",
        f"{weight}\n{prelu('2x4x3xf64', '4xf64')}",
        gives="tensor<2x4x3xf64>",
    )
    refused(text, step(views.prelu_channels_last), "float32 or float16")
