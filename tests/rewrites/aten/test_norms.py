"""Norms: beyond their examples, and what stays."""

from rewrite_cases import cases

from stepwell.translate.canonicalize import norms as canonical
from stepwell.translate.decompositions import norms

RULES = (*canonical.RULES, *norms.RULES.named("rms-norm-to-means", "plain-rms-norm-to-means"))

test_norms = cases(RULES)("""
native-layer-norm-to-layer-norm: statistics that are used keep the op -> refused: training
    %a, %y, %r = aten.native_layer_norm.default(%x: f32[2, 3], [3], none, none, 1e-05); return %y
a native group norm is a group norm -> aten.group_norm.default
    %y, %m, %r = aten.native_group_norm.default(%x: f32[2, 4, 6], %w: f32[4], none, 2, 4, 6, 2, 1e-05)
    return %y
instance-norm-to-group-norm: an instance norm over running statistics is no group norm -> refused: running statistics
    %q = aten.mul.Tensor(%m: f32[3], %m)
    %y = aten.instance_norm.default(%x: f32[2, 3, 4], none, none, %m, %q, false, 0.1, 1e-05, false)
native-batch-norm-to-batch-norm: training mode -> refused: training mode
    %y, %a, %b = aten.native_batch_norm.default(%x: f32[2, 3, 4], none, none, none, none, true, 0.1, 1e-05)
    return %y
an instance norm over running statistics is a batch norm -> aten.mul.Tensor, aten.batch_norm.default
    %q = aten.mul.Tensor(%m: f32[3], %m)
    %y = aten.instance_norm.default(%x: f32[2, 3, 4], none, none, %m, %q, false, 0.1, 1e-05, false)
instance-norm-to-batch-norm: an instance norm over its own statistics is no batch norm -> unchanged
    %q = aten.mul.Tensor(%m: f32[3], %m)
    %y = aten.instance_norm.default(%x: f32[2, 3, 4], none, none, %m, %q, true, 0.1, 1e-05, false)
inference-batch-norm-to-batch-norm: saved statistics that are used keep the op -> refused: saves
    %q = aten.mul.Tensor(%m: f32[3], %m)
    %a, %y, %b = aten._native_batch_norm_legit_no_training.default(%x: f32[2, 3, 4], none, none, %m, %q, 0.1, 1e-05)
    return %y
plain-rms-norm-to-means: half precision -> refused: float32
    %y = aten.rms_norm.default(%x: f16[2, 3], [3])
a missing epsilon is that of the dtype -> aten.mul.Tensor, aten.mean.dim, aten.add.Scalar, aten.rsqrt.default, aten.mul.Tensor
    %y = aten.rms_norm.default(%x: f32[2, 3], [2, 3])
fused-rms-norm-to-rms-norm: a root that is used keeps the op -> refused: training
    %a, %y = aten._fused_rms_norm.default(%x: f32[2, 6], [6], none, 1e-05); return %y
""")
