"""An average over planes keeps no axes where a reshape only takes them away."""

from rewrite_cases import cases

from stepwell.translate.rewrites.xnnpack.partitioning.merge_transposes import RULES

(DROP,) = (rule() for rule in RULES if rule.name == "drop-averaged-axes")


test_drop_averaged_axes = cases(
    DROP,
    """
the average itself leaves its axes out -> xnnpack.global_average_pooling_2d
    %x: f32[2, 4, 3, 8]
    %p = xnnpack.global_average_pooling_2d(%x, keep_dims) : (f32[2, 4, 3, 8]) -> f32[2, 1, 1, 8]
    %y = xnnpack.static_reshape(%p, new_shape=[2, 8]) : (f32[2, 1, 1, 8]) -> f32[2, 8]
a reshape that does something else stays -> applied 0 times
    - %x: f32[2, 4, 3, 8]
      %p = xnnpack.global_average_pooling_2d(%x, keep_dims) : (f32[2, 4, 3, 8]) -> f32[2, 1, 1, 8]
      %y = xnnpack.static_reshape(%p, new_shape=[2, 8, 1, 1]) : (f32[2, 1, 1, 8]) -> f32[2, 8, 1, 1]
    - %x: f32[2, 4, 3, 8]
      %p = xnnpack.global_average_pooling_2d(%x, keep_dims) : (f32[2, 4, 3, 8]) -> f32[2, 1, 1, 8]
      %y = xnnpack.static_reshape(%p, new_shape=[16]) : (f32[2, 1, 1, 8]) -> f32[16]
    - %x: f32[2, 4, 3, 8]
      %p = xnnpack.global_average_pooling_2d(%x, keep_dims) : (f32[2, 4, 3, 8]) -> f32[2, 1, 1, 8]
      %y = xnnpack.static_reshape(%p, new_shape=[2, 1, 8]) : (f32[2, 1, 1, 8]) -> f32[2, 1, 8]
an average that others read keeps its axes -> applied 0 times
    %x: f32[2, 4, 3, 8]
    %p = xnnpack.global_average_pooling_2d(%x, keep_dims) : (f32[2, 4, 3, 8]) -> f32[2, 1, 1, 8]
    %y = xnnpack.static_reshape(%p, new_shape=[2, 8]) : (f32[2, 1, 1, 8]) -> f32[2, 8]
    return %y, %p
""",
)
