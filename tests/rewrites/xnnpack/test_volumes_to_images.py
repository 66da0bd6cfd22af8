"""VolumesToImages: strides, padding, dilation and groups, and what it leaves alone."""

from typing import Any

import pytest

from stepwell.translate.decompositions import filters
from stepwell.translate.lowerings.lowering import step


def convolved(
    rest: str, gives: str, method: Any, kernel: str = "4x2x3x2x2", transposed: bool = False
) -> str:
    x, w, y = "tensor<2x4x6x5x5xf32>", f"tensor<{kernel}xf32>", f"tensor<{gives}xf32>"
    flag = "true" if transposed else "false"
    stride, padding, dilation, groups = rest.split(";")
    return method(
        f"%x: {x}",
        f'%w = stepwell.weight <"w"> "parameter" : {w}',
        '%b = stepwell.weight <"b"> "parameter" : tensor<4xf32>',
        f"%y = aten.convolution.default(%x, %w, %b, {stride}, {padding}, {dilation}, {flag},"
        f" [0, 0, 0], {groups}) : ({x}, {w}, tensor<4xf32>) -> {y}",
        gives=y,
    )


@pytest.mark.parametrize(
    ("rest", "gives", "kernel"),
    [
        ("[1, 1, 1];[0, 0, 0];[1, 1, 1];2", "2x4x4x4x4", "4x2x3x2x2"),
        ("[2, 1, 2];[1, 0, 1];[1, 1, 1];2", "2x4x3x4x3", "4x2x3x2x2"),
        ("[1, 2, 1];[2, 1, 0];[2, 1, 3];2", "2x4x6x3x2", "4x2x3x2x2"),
        ("[3, 1, 1];[0, 0, 0];[1, 1, 1];1", "2x4x2x4x4", "4x4x1x2x2"),
    ],
)
def test_slices_of_the_kernel_add_up_to_it(
    rest: str, gives: str, kernel: str, apply: Any, method: Any
):
    done = apply(convolved(rest, gives, method, kernel), step(filters.volumes_to_images))
    count = int(kernel.split("x")[2])
    assert done.ops().count("aten.convolution.default") == count
    assert done.ops().count("aten.add.Tensor") == count - 1


def test_no_kernel_is_copied(apply: Any, method: Any):
    rest = "[1, 1, 1];[0, 0, 0];[1, 1, 1];2"
    weights = apply(
        convolved(rest, "2x4x4x4x4", method), step(filters.volumes_to_images)
    ).program.weights
    storages = {w.untyped_storage().data_ptr() for k, w in weights.tensors().items() if k != "b"}
    assert len(storages) == 1


def test_a_transposed_convolution_is_refused(refused: Any, method: Any):
    text = convolved(
        "[1, 1, 1];[0, 0, 0];[1, 1, 1];1", "2x4x8x6x6", method, "4x4x3x2x2", transposed=True
    )
    refused(text, step(filters.volumes_to_images), "transposed")


def test_a_computed_kernel_is_refused(refused: Any, method: Any):
    x, w, y = "tensor<1x2x3x3x3xf32>", "tensor<2x2x1x1x1xf32>", "tensor<1x2x3x3x3xf32>"
    text = method(
        f"%x: {x}, %w: {w}",
        "%y = aten.convolution.default(%x, %w, none, [1, 1, 1], [0, 0, 0], [1, 1, 1], false,"
        f" [0, 0, 0], 1) : ({x}, {w}) -> {y}",
        gives=y,
    )
    refused(text, step(filters.volumes_to_images), "computed")


def test_images_are_left_alone(refused: Any, method: Any):
    x, w = "tensor<1x2x3x3xf32>", "tensor<2x2x1x1xf32>"
    text = method(
        f"%x: {x}",
        f'%w = stepwell.weight <"w"> "parameter" : {w}',
        "%y = aten.convolution.default(%x, %w, none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1)"
        f" : ({x}, {w}) -> {x}",
        gives=x,
    )
    refused(text, step(filters.volumes_to_images))


def test_a_symbolic_volume_is_refused(refused: Any, method: Any):
    x = 'tensor<?x2x3x3x3xf32, #stepwell.shape<["s0", 2, 3, 3, 3]>>'
    text = method(
        f"%x: {x}",
        '%w = stepwell.weight <"w"> "parameter" : tensor<2x2x1x1x1xf32>',
        "%y = aten.convolution.default(%x, %w, none, [1, 1, 1], [0, 0, 0], [1, 1, 1], false,"
        f" [0, 0, 0], 1) : ({x}, tensor<2x2x1x1x1xf32>) -> {x}",
        gives=x,
    )
    refused(text, step(filters.volumes_to_images), "symbolic")
