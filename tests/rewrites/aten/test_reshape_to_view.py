"""ReshapeToView: beyond its documented example, and what it leaves alone."""

from typing import Any

from stepwell.translate.decompositions.aten import views
from stepwell.translate.lowerings.lowering import step


def test_a_view_that_is_written_out_stays(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<2x3xf32>",
            "%y = aten.view.default(%x, [3, 2]) : (tensor<2x3xf32>) -> tensor<3x2xf32>",
            gives="tensor<3x2xf32>",
        ),
        step(views.reshape_to_view),
    )


def test_a_symbolic_size_is_written_as_minus_one(apply: Any, method: Any):
    done = apply(
        method(
            '%x: tensor<?x3xf32, #stepwell.shape<["s0", 3]>>',
            '%y = aten.unsqueeze.default(%x, 1) : (tensor<?x3xf32, #stepwell.shape<["s0", 3]>>) -> tensor<?x1x3xf32, #stepwell.shape<["s0", 1, 3]>>',
            gives='tensor<?x1x3xf32, #stepwell.shape<["s0", 1, 3]>>',
        ),
        step(views.reshape_to_view),
    )
    assert done.ops() == ["aten.view.default"]


def test_a_second_symbolic_size_is_read_from_the_operand(apply: Any, method: Any):
    done = apply(
        method(
            '%x: tensor<?x?x3xf32, #stepwell.shape<["s0", "s1", 3]>>',
            '%y = aten.unsqueeze.default(%x, 0) : (tensor<?x?x3xf32, #stepwell.shape<["s0", "s1", 3]>>) -> tensor<1x?x?x3xf32, #stepwell.shape<[1, "s0", "s1", 3]>>',
            gives='tensor<1x?x?x3xf32, #stepwell.shape<[1, "s0", "s1", 3]>>',
        ),
        step(views.reshape_to_view),
    )
    assert done.ops() == ["aten.sym_size.int", "aten.view.default"]


def test_a_view_as_a_number_stays(refused: Any, method: Any):
    line = "%y = aten.view.default(%x, []) : (tensor<1xf32>) -> tensor<f32>"
    refused(method("%x: tensor<1xf32>", line, gives="tensor<f32>"), step(views.reshape_to_view))
