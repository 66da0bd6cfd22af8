"""LowerPooling and LowerReduction: windows and means that XNNPACK's nodes compute as torch does."""

from rewrite_cases import cases

from stepwell.translate.lowerings.xnnpack import images, reductions

test_lower_pooling = cases(
    images,
    reductions,
    """
lower-pooling: windows of one element -> refused: one element
    %y = aten.max_pool2d.default(%x: f32[2, 3, 6, 6], [1, 1], [2, 2])
lower-pooling: averages of one element -> refused: one element
    %y = aten.avg_pool2d.default(%x: f32[2, 3, 6, 6], [1, 1], [2, 2])
lower-pooling: an adaptive pool of nothing -> refused: one element
    %y = aten.adaptive_avg_pool2d.default(%x: f32[2, 3, 6, 6], [6, 6])
lower-pooling: uneven rows -> refused: windows of several sizes
    %y = aten.adaptive_avg_pool2d.default(%x: f32[2, 3, 6, 6], [4, 3])
lower-pooling: uneven columns -> refused: windows of several sizes
    %y = aten.adaptive_avg_pool2d.default(%x: f32[2, 3, 6, 6], [3, 4])
lower-pooling: another divisor -> refused: divisor_override
    %y = aten.avg_pool2d.default(%x: f32[2, 3, 6, 6], [2, 2], [2, 2], [0, 0], false, false, 3)
lower-pooling: a divisor at the edge -> refused: extend past the edge
    %y = aten.avg_pool2d.default(%x: f32[2, 3, 6, 6], [2, 2], [2, 2], [1, 1], false, false, 4)
lower-pooling: windows are nodes -> applied once
    - %y = aten.max_pool2d.default(%x: f32[2, 3, 6, 6], [2, 2])
    - %y = aten.avg_pool2d.default(%x: f32[2, 3, 6, 6], [3, 3], [2, 2], [1, 1], true)
    - %y = aten.avg_pool2d.default(%x: f32[2, 3, 6, 6], [2, 2], [2, 2], [1, 1], false, false, none)
    - %y = aten.avg_pool2d.default(%x: f32[2, 3, 6, 6], [2, 2], [2, 2], [0, 0], false, false, 4)
    - %y = aten.adaptive_avg_pool2d.default(%x: f32[2, 3, 6, 6], [3, 2])
    - %y = aten.adaptive_avg_pool2d.default(%x: f32[2, 3, 6, 6], [1, 1])
lower-pooling: an image without a batch -> refused: not a batch of images
    %y = aten.max_pool2d.default(%x: f32[3, 6, 6], [2, 2])
lower-pooling: an image of symbolic width is pooled -> applied once
    - %y = aten.mean.dim(%x: f32[2, 3, 6, s0], [2, 3], true)
    - %y = aten.adaptive_avg_pool2d.default(%x: f32[2, 3, 6, s0], [1, 1])
    - %y = aten.max_pool2d.default(%x: f32[2, 3, 6, s0], [3, 3], [1, 1], [1, 1])
    - %y = aten.avg_pool2d.default(%x: f32[2, 3, 6, s0], [3, 3], [1, 1], [1, 1])
    - %y = aten.upsample_bilinear2d.vec(%x: f32[2, 3, 6, s0], [4, 5], false, none) -> f32[2, 3, 4, 5]
lower-pooling: windows that follow from a symbolic size -> refused: symbolic size
    %y = aten.adaptive_avg_pool2d.default(%x: f32[2, 3, 6, s0], [3, 2])
lower-pooling: windows that follow from a symbolic size -> refused: in the padding
    - %y = aten.max_pool2d.default(%x: f32[2, 3, 6, s0], [3, 3], [3, 3], [1, 1], [1, 1], true)
    - %y = aten.avg_pool2d.default(%x: f32[2, 3, 6, s0], [3, 3], [3, 3], [1, 1], true)
lower-pooling: windows that follow from a symbolic height -> refused: so have its windows
    %y = aten.adaptive_avg_pool2d.default(%x: f32[2, 3, s0, 6], [3, 2])
lower-pooling: a resize to a symbolic size -> refused: resizes to a constant
    %y = aten.upsample_bilinear2d.vec(%x: f32[2, 3, 6, s0], none, false, [1.0, 1.0]) -> f32[2, 3, 6, s0]
lower-pooling: a mean over other axes than planes is no pooling -> unchanged
    - %y = aten.mean.dim(%x: f32[2, 3, 6, 6], [1, 3], true)
    - %y = aten.mean.dim(%x: f32[2, 3, 6, 6], [2], true)
    - %y = aten.mean.dim(%x: f32[2, 3, 6, 6], none)
lower-reduction: a mean over other axes than planes is no pooling -> applied once
    - %y = aten.mean.dim(%x: f32[2, 3, 6, 6], [1, 3], true)
    - %y = aten.mean.dim(%x: f32[2, 3, 6, 6], [2], true)
    - %y = aten.mean.dim(%x: f32[2, 3, 6, 6], none)
lower-reduction: a mean of one number is the number -> applied once
    - %y = aten.mean.dim(%x: f32[], [0])
    - %y = aten.mean.dim(%x: f32[], none)
lower-reduction: a mean over static axes of a symbolic tensor is taken -> applied once
    %y = aten.mean.dim(%x: f32[s0, 3, 6], [1])
lower-reduction: axes of symbolic size that no pool averages -> refused: not the planes
    %y = aten.mean.dim(%x: f32[s0, s1, 6], [0, 1])
lower-reduction: axes of symbolic size that no pool averages -> refused: not known
    %y = aten.mean.dim(%x: f32[?, 6], [0]) -> f32[6]
lower-reduction: one axis of symbolic size is pooled -> aten.view.default, xnnpack.global_average_pooling_2d, aten.sym_size.int, aten.full.default, aten.mul.Tensor, aten.view.default, aten.view.default
    %y = aten.sum.dim_IntList(%x: f32[s0, 3, 6], [0])
lower-reduction: one axis of symbolic size is pooled -> aten.sym_size.int, aten.view.default, xnnpack.global_average_pooling_2d, aten.view.default, aten.view.default
    %y = aten.mean.dim(%x: f32[s0, s1, 6], [1])
lower-reduction: a mean over the last axis of a symbolic tensor is a layer -> aten.linear.default
    %y = aten.mean.dim(%x: f32[s0, 3, 6], [-1], true)
""",
)
