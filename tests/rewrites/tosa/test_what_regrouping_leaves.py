"""What rewrites of shapes, pools, norms and sums leave alone, each with its reason."""

from rewrite_cases import cases

from stepwell.translate.canonicalize import fills, scaled_number_to_sum
from stepwell.translate.decompositions import arithmetic, norms, pools, statistics, views
from stepwell.translate.lowerings.tosa import factories
from stepwell.translate.lowerings.tosa.indexed import patterns

test_what_regrouping_leaves = cases(factories)("""
a diagonal computed at run time -> refused: known only at run time
    %y = aten.tril.default(%x: f32[3, 3], %n: int<s0>)
""")


test_patterns = cases(patterns)("""
a long pattern -> refused: would be a constant
    %y = aten.unfold.default(%x: f32[4100], 0, 2000, 1)
columns without a batch -> refused: no batch axis
    %y = aten.col2im.default(%x: f32[8, 9], [4, 4], [2, 2], [1, 1], [0, 0], [1, 1])
a large kernel -> refused: kernel has 272 cells
    %y = aten.col2im.default(%x: f32[1, 272, 1], [16, 17], [16, 17], [1, 1], [0, 0], [1, 1])
doubles in columns -> refused: float64
    %y = aten.col2im.default(%x: f64[1, 4, 1], [2, 2], [2, 2], [1, 1], [0, 0], [1, 1])
""")


test_views_pools = cases(views, pools, norms, arithmetic, statistics)("""
gather-strides: long strides -> refused: the positions would be a constant of 4200000 elements
    %y = aten.as_strided.default(%x: f32[3000], [2000, 2100], [0, 1])
gather-strides: strides of a product -> refused: not known to be row-major
    %p = aten.linear.default(%x: f32[2, 3], %w: f32[4, 3])
    %y = aten.as_strided.default(%p, [3], [2])
pool-by-images: an image with a batch -> unchanged
    %y = aten.max_pool2d.default(%x: f32[1, 1, 2, 2], [2, 2])
pool-by-images: a volume computed at run time -> refused: is symbolic
    %y = aten.max_pool3d.default(%x: f32[1, 1, 2, 2, s0], [1, 1, 1])
pool-by-images: places in a volume -> refused: the indices of the maxima
    %v, %y = aten.max_pool3d_with_indices.default(%x: f32[1, 1, 2, 2, 2], [2, 2, 2]); return %y
pool-by-images: another divisor of a volume -> refused: the number of elements
    %y = aten.avg_pool3d.default(%x: f32[1, 1, 2, 2, 2], [2, 2, 2], [2, 2, 2], [0, 0, 0], false, true, 3)
adaptive-pool-by-parts: parts known only at run time -> refused: spatial axes are symbolic
    %y = aten.adaptive_avg_pool1d.default(%x: f32[1, 1, s0], [3])
adaptive-pool-by-parts: places in parts -> refused: the indices of the maxima
    %v, %y = aten.adaptive_max_pool2d.default(%x: f32[1, 1, 5, 5], [3, 3]); return %y
maxima-with-places: maxima alone -> unchanged
    %y, %i = aten.max_pool2d_with_indices.default(%x: f32[1, 1, 4, 4], [2, 2]); return %y
maxima-with-places: places known only at run time -> refused: is symbolic
    %v, %y = aten.max_pool2d_with_indices.default(%x: f32[s0, 1, 4, 4], [2, 2]); return %y
maxima-with-places: places in large windows -> refused: 4194304 elements
    %v, %y = aten.max_pool2d_with_indices.default(%x: f32[1, 1, 2048, 2048], [2, 2]); return %y
adaptive-pool-by-parts: many parts -> refused: 65 windows
    %y = aten.adaptive_avg_pool1d.default(%x: f32[1, 1, 80], [65])
norm-by-groups: running statistics -> unchanged
    %y = aten.instance_norm.default(%x: f32[1, 2, 4], none, none, %m: f32[2], %v: f32[2], false, 0.1, 1.0, false)
norm-by-groups: statistics computed at run time -> refused: is symbolic
    %y = aten.instance_norm.default(%x: f32[1, 2, s0], none, none, none, none, true, 0.1, 1.0, false)
norm-by-groups: a saved mean -> refused: saves for training
    %v, %y, %r = aten._native_batch_norm_legit.no_stats(%x: f32[1, 2, 4], none, none, true, 0.1, 1.0)
    return %y
peel-norm-affine: a norm of one axis -> unchanged
    %y = aten.layer_norm.default(%x: f32[2, 4], [4])
peel-norm-affine: a norm computed at run time -> refused: is symbolic
    %y = aten.layer_norm.default(%x: f32[s0, 2, 4], [2, 4])
batch-norm-to-products: a batch computed at run time -> refused: is symbolic
    %y = aten.batch_norm.default(%x: f32[s0, 2], none, none, %m: f32[2], %v: f32[2], false, 0.1, 9.0, false)
batch-norm-to-products: a batch norm in training -> unchanged
    %y = aten.batch_norm.default(%x: f32[3, 2], none, none, %m: f32[2], %v: f32[2], true, 0.1, 9.0, false)
batch-norm-to-products: a batch norm of weights -> unchanged
    %y = aten.batch_norm.default(%x: f32[3, 2], none, none, %m: weight f32[2], %v: weight "v#positive" f32[2], false, 0.1, 9.0, false)
scaled-sum-to-products: a size that scales a product -> refused: known only at run time
    %y = aten.addmm.default(%x: f32[3, 3], %x, %x, alpha=%n: int<s0>)
scaled-sum-to-products: a size that scales a sum -> refused: known only at run time
    %y = aten.addmm.default(%x: f32[3, 3], %x, %x, beta=%n: int<s0>)
scaled-sum-to-products: a product of integers -> refused: the op multiplies integers
    %y = aten.addmm.default(%x: i32[3, 3], %x, %x)
distance-to-norms: points computed at run time -> refused: is symbolic
    %y = aten._cdist_forward.default(%x: f32[s0, 4], %z: f32[2, 4], 2.0, none)
distance-to-norms: other points computed at run time -> refused: is symbolic
    %y = aten._cdist_forward.default(%x: f32[2, 4], %z: f32[s0, 4], 2.0, none)
distance-to-norms: points of several batches -> refused: the two lists of points have different batch axes
    %y = aten._cdist_forward.default(%x: f32[1, 3, 4], %z: f32[2, 2, 4], 2.0, none)
distance-to-norms: many points -> refused: differences are more than
    %y = aten._cdist_forward.default(%x: f32[2100, 4], %z: f32[2100, 4], 2.0, none)
""")


test_fills = cases(fills)("""
a fill computed at run time -> refused: is symbolic
    %y = aten.fill.Scalar(%x: f32[s0], 2.0)
a fill with a size -> refused: known only at run time
    %y = aten.fill.Scalar(%x: f32[3], %n: int<s0>)
""")


test_scaled_number_to_sum = cases(scaled_number_to_sum)("""
a sum without a scale -> unchanged
    %y = aten.add.Scalar(%x: f32[3], 2)
a scaled size -> refused: known only at run time
    %y = aten.add.Scalar(%x: f32[3], %n: int<s0>, 2)
a size that scales -> refused: known only at run time
    %y = aten.add.Scalar(%x: f32[3], 2, %n: int<s0>)
""")
