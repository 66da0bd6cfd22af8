"""Views that meet: beyond its documented example, and what it leaves alone."""

from typing import Any

from stepwell.translate.rewrites.cmsis import MERGE_VIEWS


def test_a_reshape_to_the_same_shape_is_none(apply: Any):
    done = apply("%y = aten.view.default(%x: i8[2, 4], [2, 4])", *MERGE_VIEWS)
    assert done.ops() == []


def test_a_permutation_is_no_reshape(refused: Any, method: Any):
    view = "%v = aten.view.default(%x, [2, 4]) : (tensor<8xi8>) -> tensor<2x4xi8>"
    turn = "%y = aten.permute.default(%v, [1, 0]) : (tensor<2x4xi8>) -> tensor<4x2xi8>"
    for rule in MERGE_VIEWS:
        refused(method("%x: tensor<8xi8>", view, turn, gives="tensor<4x2xi8>"), rule)


def test_a_size_known_only_at_run_time_is_kept(refused: Any, method: Any):
    one = 'tensor<?x4xi8, #stepwell.shape<["s0", 4]>>'
    two = 'tensor<?x1x4xi8, #stepwell.shape<["s0", 1, 4]>>'
    up = f"%u = aten.unsqueeze.default(%x, 1) : ({one}) -> {two}"
    down = f"%y = aten.squeeze.dims(%u, [1]) : ({two}) -> {one}"
    for rule in MERGE_VIEWS:
        refused(method(f"%x: {one}", up, down, gives=one), rule)
