"""Nodes that move and the softmax node: what moves elements in ways that the static nodes do not have."""

from rewrite_cases import cases

from stepwell.translate.lowerings.xnnpack import reductions
from stepwell.translate.rewrites.xnnpack.nodes.lower_shape import RULES as MOVES
from stepwell.translate.rewrites.xnnpack.nodes.lower_softmax import RULES

(RULE,) = RULES.named("lower-softmax")


test_lower_shape = cases(
    MOVES,
    reductions,
    RULE,
    """
lower-slice: a slice with a step -> refused: step 1
    %y = aten.slice.Tensor(%x: f32[4, 6], 1, 0, 6, 2)
lower-pad: a pad that crops -> refused: write it as a slice
    %y = aten.constant_pad_nd.default(%x: f32[4, 6], [-1, 0])
lower-expand: a broadcast of two symbolic sizes to a third axis -> refused: adds an axis next to two of symbolic sizes
    %y = aten.expand.default(%x: f32[s0, s1], [3, -1, -1])
lower-view-of-open-sizes: a view of two symbolic sizes parts no axis -> refused: XNNPACK infers one
    %n = aten.sym_size.int(%x: f32[s0, 4, s1], 2)
    %y = aten.view.default(%x, [-1, 2, 2, %n])
lower-cat: six parts of a symbolic size -> refused: more than five tensors
    %y = aten.cat.default([%x: f32[s0, 6], %x, %x, %x, %x, %x])
lower-cat: five parts or known sizes are joined -> xnnpack.concatenate5
    %y = aten.cat.default([%x: f32[s0, 6], %x, %x, %x, %x])
lower-cat: five parts or known sizes are joined -> xnnpack.concatenate5, xnnpack.concatenate2
    %y = aten.cat.default([%x: f32[2, 6], %x, %x, %x, %x, %x])
lower-permute: constants are moved at compile time and by no node -> refused: one that is computed
    %c = aten.permute.default(%w: weight f32[4, 6], [1, 0])
    %y = aten.erf.default(%c)
lower-softmax: a softmax of one number -> refused: a scalar, which has no axis
    %y = aten._softmax.default(%x: f32[], 0, false)
""",
)
