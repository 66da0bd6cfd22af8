"""NormalizeExpand: beyond its documented example, and what it leaves alone."""

from typing import Any

from stepwell.translate.decompositions.aten import views
from stepwell.translate.lowerings.lowering import step


def test_an_expand_to_a_symbolic_shape_is_refused(refused: Any, method: Any):
    refused(
        method(
            '%x: tensor<1x3xf32>, %z: tensor<?x3xf32, #stepwell.shape<["s0", 3]>>',
            '%y = aten.expand_as.default(%x, %z) : (tensor<1x3xf32>, tensor<?x3xf32, #stepwell.shape<["s0", 3]>>) -> tensor<?x3xf32, #stepwell.shape<["s0", 3]>>',
            gives='tensor<?x3xf32, #stepwell.shape<["s0", 3]>>',
        ),
        step(views.normalize_expand),
        "symbolic",
    )


def test_an_expand_in_normal_form_stays(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<1x3xf32>",
            "%y = aten.expand.default(%x, [2, 3]) : (tensor<1x3xf32>) -> tensor<2x3xf32>",
            gives="tensor<2x3xf32>",
        ),
        step(views.normalize_expand),
    )
