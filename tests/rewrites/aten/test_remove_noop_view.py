"""RemoveNoopView: beyond its documented example, and what it leaves alone."""

from typing import Any

from stepwell.translate.rewrites.aten.remove_noop_view import RemoveNoopView


def test_a_transposition_of_a_square_stays(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<3x3xf32>",
            "%y = aten.permute.default(%x, [1, 0]) : (tensor<3x3xf32>) -> tensor<3x3xf32>",
            gives="tensor<3x3xf32>",
        ),
        RemoveNoopView(),
    )


def test_a_pad_that_moves_but_keeps_the_shape_stays(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<2x3xf32>",
            "%y = aten.constant_pad_nd.default(%x, [1, -1]) : (tensor<2x3xf32>) -> tensor<2x3xf32>",
            gives="tensor<2x3xf32>",
        ),
        RemoveNoopView(),
    )


def test_a_roll_stays(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<2x3xf32>",
            "%y = aten.roll.default(%x, [1], [0]) : (tensor<2x3xf32>) -> tensor<2x3xf32>",
            gives="tensor<2x3xf32>",
        ),
        RemoveNoopView(),
    )


def test_a_flip_stays(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<2x3xf32>",
            "%y = aten.flip.default(%x, [0]) : (tensor<2x3xf32>) -> tensor<2x3xf32>",
            gives="tensor<2x3xf32>",
        ),
        RemoveNoopView(),
    )


def test_a_view_to_the_same_symbolic_shape_goes(apply: Any, method: Any):
    done = apply(
        method(
            '%x: tensor<?x3xf32, #stepwell.shape<["s0", 3]>>',
            '%a = aten.view.default(%x, [-1, 3]) : (tensor<?x3xf32, #stepwell.shape<["s0", 3]>>) -> tensor<?x3xf32, #stepwell.shape<["s0", 3]>>',
            '%y = aten.neg.default(%a) : (tensor<?x3xf32, #stepwell.shape<["s0", 3]>>) -> tensor<?x3xf32, #stepwell.shape<["s0", 3]>>',
            gives='tensor<?x3xf32, #stepwell.shape<["s0", 3]>>',
        ),
        RemoveNoopView(),
    )
    assert done.ops() == ["aten.neg.default"]
