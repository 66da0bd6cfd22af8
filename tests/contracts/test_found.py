"""Variants that were wrong once: each is refused in words now, or right."""

import pytest
from contract_driver import subject_of, tried

from stepwell.validation.contracts import draft_of, edits_of
from stepwell.validation.contracts.variants import Variant

FOUND: dict[str, tuple[str, ...]] = {
    "decompositions.pools: adaptive-pool-to-pool": ("axis 1 of input 0 is 0",),
    "decompositions.sums: split-scaled-addcmul": (
        "float32 becomes uint8 everywhere",
        "float32 becomes int32 everywhere",
    ),
    "canonicalize.clamps: clamp-to-extrema": (
        "size 2 is 16 everywhere",
        "size 2 is 33 everywhere",
    ),
    "canonicalize.clamps: hardtanh-to-clamp": (
        "input 0 is uint8",
        "input 0 is int64",
    ),
    "decompositions.attention: expand-attention": (
        "axis 2 of input 2 is 1",
        "input 2 is led by [1]",
        "input 0 has its last 2 axes",
        "axis 1 of input 2 is 0",
    ),
    "layers.fold_batch_norm": ("b has one axis more",),
    "canonicalize.norms: inference-batch-norm-to-batch-norm": ("input 0 is led by [3, 1]",),
    "canonicalize.norms: instance-norm-to-group-norm": (
        "input 0 has its last 2 axes",
        "size 4 is 0 everywhere",
    ),
    "decompositions.products: normalize-reduction": (
        "aten.sum.default: dtype=i1",
        "aten.sum.default: dtype=ui8",
    ),
    "decompositions.views: pixel-shuffle-to-permute": ("axis 0 of input 0 is 0",),
    "canonicalize.activations: recognize-written-hardswish": ("input 0 is uint8",),
    "decompositions.norms: rms-norm-to-means": ("input 1 is float64",),
    "attention.share_repeated_heads": (
        "aten.scaled_dot_product_attention.default: dropout_p=0.5",
        "input 0 has its last 2 axes",
    ),
    "cmsis.borders: lower-boundary": ("float32 becomes float64 everywhere",),
    "cmsis.layers: lower-convolution": ("size 2 is 0 everywhere",),
    "cmsis.layers: lower-linear": ("w has its last 1 axes",),
    "cmsis.pooling: lower-mean": (
        "axis 1 of input 0 is 0",
        "input 0 has its last 0 axes",
    ),
    "cmsis.borders: lower-pad": ("aten.constant_pad_nd.default: value=nan",),
    "cmsis.elementwise: lower-softmax": (
        "axis 1 of input 0 is 0",
        "input 0 has its last 0 axes",
        "quantization 0: scale 1000000.0",
    ),
    "quant.casts: type-dequantize": (
        "quantized_decomposed.dequantize_per_tensor.default: out_dtype=i32",
        "quantized_decomposed.dequantize_per_tensor.default: out_dtype=ui8",
    ),
    "decompositions.pools: adaptive-pool-by-parts": (
        "aten.adaptive_avg_pool1d.default: output_size=[0]",
    ),
    "decompositions.executorch_mx: adopt-executorch-mx": (
        "float8_e4m3fn becomes float64 everywhere",
        "input 0 is int16",
        "codes is int16",
        "codes is float16",
    ),
    "decompositions.norms: batch-norm-to-products": (
        "axis 1 of input 0 is 0",
        "input 0 is bfloat16",
        "input 0 is float16",
    ),
    "mxfp.choose_mx_form": ("axis 2 of input 0 is 0",),
    "mxfp.choose_mxfp": (
        "size 64 is 0 everywhere",
        "w has its last 1 axes",
    ),
    "attention.fold_scale_into_projection": (
        "float32 becomes int8 everywhere",
        "axis 0 of w is 0",
        "float32 becomes uint8 everywhere",
        "size 4 is 1 everywhere",
    ),
    "tosa.integers.hoist_rescale_over_maximum": ("m is an input",),
    "tosa.discrete: lower-bits-to-tosa": ("aten.bitwise_and.Scalar: other=9007199254740993",),
    "tosa.casts: lower-cast-to-tosa": ("input 0 is int64",),
    "tosa.operators.lower_control": (
        "input 0 is bfloat16",
        "bool becomes int16 everywhere",
        "input 0 is float64",
        "bool becomes uint8 everywhere",
    ),
    "tosa.integers.functions: lower-int16-function": ("size 4 is 0 everywhere",),
    "tosa.integers.functions: lower-int16-scale": ("float32 becomes float16 everywhere",),
    "tosa.integers.functions: lower-int8-requantize": ("every leading axis less",),
    "tosa.integers.layers: lower-int8-linear": (
        "axis 0 of input 0 is 0",
        "size 4 is 0 everywhere",
        "w has its last 1 axes",
        "size 3 is 0 everywhere",
    ),
    "tosa.integers.reductions: lower-int8-reduction": ("aten.sum.dim_IntList: keepdim left out",),
    "tosa.integers.reductions: lower-int8-resize": (
        "aten.upsample_bilinear2d.default: scales_h=-inf",
        "aten.upsample_bilinear2d.default: scales_h=nan",
    ),
    "tosa.integers.distributions: lower-int8-softmax": ("axis 1 of input 0 is 0",),
    "tosa.block_scaled: lower-mx-matmul-to-tosa": ("input 0 is led by [1]",),
    "tosa.indexed.orders: lower-order-to-tosa": (
        "aten.topk.default is aten.argsort.default",
        "size 3 is 5 everywhere",
        "size 3 is 33 everywhere",
    ),
    "tosa.borders: lower-quantize-to-tosa": ("0-d",),
    "tosa.discrete: lower-remainder-to-tosa": ("aten.fmod.Scalar is aten.remainder.Scalar",),
    "tosa.resizing: lower-resize-to-tosa": (
        "aten.upsample_nearest2d.default: scales_h=1e-40",
        "aten.upsample_nearest2d.default: scales_w=inf",
        "aten.upsample_nearest2d.default: scales_h=nan",
    ),
    "tosa.discrete: lower-truth-to-tosa": ("float32 becomes int8 everywhere",),
    "tosa.discrete: lower-whole-division-to-tosa": ("aten.div.Scalar_mode: other=2147483648",),
    "tosa.indexed.patterns: lower-pattern-to-tosa": ("input 0 is int64",),
    "decompositions.norms: norm-by-groups": (
        "size 4 is 1 everywhere",
        "axis 1 of input 0 is 0",
        "aten.instance_norm.default: eps=-0.0",
        "input 0 has its last 2 axes",
    ),
    "decompositions.norms: split-layer-norm": ("size 4 is 0 everywhere",),
    "xnnpack.convolutions.convolve_by_winograd": ("w holds extremes",),
    "decompositions.norms: decompose-group-norm": ("aten.group_norm.default: eps=3.5e+38",),
    "decompositions.norms: decompose-layer-norm": ("aten.layer_norm.default: eps=3.5e+38",),
    "decompositions.logarithms: expand-log-softmax": ("size 3 is 0 everywhere",),
    "attention.limit_by_mask": (
        "m has its last 0 axes",
        "1 leading axes more",
        "aten.masked_fill.Scalar: value=-0.0",
        "size 3 is 2 everywhere",
        "2 leading axes more",
    ),
    "xnnpack.reductions: lower-greatest": (
        "input 0 is led by [1]",
        "aten.amax.default: dim=[0]",
        "size 8 is 33 everywhere",
    ),
    "xnnpack.quantized.leftover_casts: lower-quantization": ("quantization 0: i32",),
    "xnnpack.quantized_layers: lower-quantized-convolution": (
        "quantization 2: 3 scales along axis 1",
    ),
    "xnnpack.quantized_layers: lower-quantized-linear": (
        "quantization 2: 2 scales along axis 0",
        "quantization 0: 2 scales along axis 0",
    ),
    "decompositions.activations_of_targets: prelu-channels-last": (
        "w holds special",
        "size 3 is 5 everywhere",
        "input 0 has one axis more",
    ),
    "xnnpack.expressions.recognize_gelu": ("input 0 is uint8",),
    "xnnpack.expressions.rectify_before_scale": ("float32 becomes int32 everywhere",),
    "attention.skip_masked_attention": (
        "axis 2 of input 2 is 0",
        "axis 0 of input 0 is 0",
        "input 1 has its last 3 axes",
        "input 0 has its last 3 axes",
        "input 1 has its last 2 axes",
        "size 128 is 0 everywhere",
        "input 2 has its last 3 axes",
    ),
    "decompositions.filters: volumes-to-images": ("size 2 is 0 everywhere",),
}
"""What was done to the example of each module, or of one of its rules."""


CASES = [(name, label) for name, labels in FOUND.items() for label in labels]


@pytest.mark.parametrize(("name", "label"), CASES)
def test_a_variant_that_was_wrong_once_is_not(name: str, label: str):
    subject = subject_of(name)
    draft = draft_of(subject.examples[0])
    edit = next(edit for edit in edits_of(draft, subject.anchors) if edit.label == label)
    edit.change(draft)
    verdict = tried(subject.steps, Variant(draft, (label,), (edit.kind,)), name.partition(": ")[0])
    assert verdict.outcome != "wrong", verdict.why
