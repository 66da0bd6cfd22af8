"""VolumesToImages: strides, padding, dilation and groups, and what it leaves alone."""

from typing import Any

import pytest
from rewrite_cases import cases

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


def test_no_kernel_is_copied(apply: Any):
    weights = apply(
        """
        %y = aten.convolution.default(%x: f32[2, 4, 6, 5, 5], %w: weight f32[4, 2, 3, 2, 2], %b: weight f32[4], [1, 1, 1], [0, 0, 0], [1, 1, 1], false, [0, 0, 0], 2)
        """,
        step(filters.volumes_to_images),
    ).program.weights
    storages = {w.untyped_storage().data_ptr() for k, w in weights.tensors().items() if k != "b"}
    assert len(storages) == 1


test_volumes_to_images = cases(
    filters,
    """
volumes-to-images: a transposed convolution -> refused: transposed
    %y = aten.convolution.default(%x: f32[2, 4, 6, 5, 5], %w: weight f32[4, 4, 3, 2, 2], %b: weight f32[4], [1, 1, 1], [0, 0, 0], [1, 1, 1], true, [0, 0, 0], 1)
volumes-to-images: a computed kernel -> refused: computed
    %y = aten.convolution.default(%x: f32[1, 2, 3, 3, 3], %w: f32[2, 2, 1, 1, 1], none, [1, 1, 1], [0, 0, 0], [1, 1, 1], false, [0, 0, 0], 1)
volumes-to-images: images -> unchanged
    %y = aten.convolution.default(%x: f32[1, 2, 3, 3], %w: weight f32[2, 2, 1, 1], none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1)
volumes-to-images: a symbolic volume -> refused: symbolic
    %y = aten.convolution.default(%x: f32[s0, 2, 3, 3, 3], %w: weight f32[2, 2, 1, 1, 1], none, [1, 1, 1], [0, 0, 0], [1, 1, 1], false, [0, 0, 0], 1)
""",
)
