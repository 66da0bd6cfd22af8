"""What the runtime's kernels refuse or get wrong; from generate_kernel_dtypes.py."""

# fmt: off
# ruff: noqa: E501

REFUSED: dict[str, dict[str, str]] = {
    "aten::_adaptive_avg_pool2d.out": {"differs": "f64 -> f64"},
    "aten::_log_softmax.out": {"fails": "f64 -> f64"},
    "aten::_native_batch_norm_legit.no_stats_out": {"differs": "bf16 -> bf16, f64 -> f64"},
    "aten::_upsample_bilinear2d_aa.out": {"differs": "ui8 -> ui8"},
    "aten::add.Scalar_out": {"fails": "i1 -> i64"},
    "aten::logit.out": {"fails": "bf16 -> bf16, f16 -> f16"},
    "aten::native_group_norm.out": {"differs": "f64 -> f64"},
    "aten::native_layer_norm.out": {"differs": "f64 -> f64"},
    "aten::remainder.Scalar_out": {"differs": "f64 -> f64"},
    "aten::remainder.Tensor_out": {"differs": "bf16+f64 -> f64, f16+f64 -> f64, f32+f64 -> f64, f64 -> f64, f64+i1 -> f64, f64+i16 -> f64, f64+i32 -> f64, f64+i64 -> f64, f64+i8 -> f64, f64+ui8 -> f64"},
    "aten::sum.IntList_out": {"differs": "f64 -> f64"},
    "aten::upsample_bilinear2d.vec_out": {"differs": "ui8 -> ui8"},
    "llama::custom_sdpa.out": {"fails": "f64 -> f64, i1 -> i1, i16 -> i16, i32 -> i32, i64 -> i64, i8 -> i8, ui8 -> ui8"},
    "llama::fast_hadamard_transform.out": {"fails": "bf16 -> bf16, i1 -> i1, i16 -> i16, i32 -> i32, i64 -> i64, i8 -> i8, ui8 -> ui8"},
    "quantized_decomposed::choose_qparams.Tensor_out": {"aborts": "bf16 -> f64+i64, f16 -> f64+i64"},
    "quantized_decomposed::choose_qparams_per_token_asymmetric.out": {"aborts": "bf16 -> f64+i64, f16 -> f64+i64, f64 -> f64+i64"},
    "quantized_decomposed::dequantize_per_channel.out": {"aborts": "f32+i16+i32 -> bf16, f32+i16+i64 -> bf16, f32+i32 -> bf16, f32+i32+i64 -> bf16, f32+i32+i8 -> bf16, f32+i32+ui8 -> bf16, f32+i64+i8 -> bf16, f32+i64+ui8 -> bf16, f64+i16+i32 -> bf16, f64+i16+i64 -> bf16, f64+i32 -> bf16, f64+i32+i64 -> bf16, f64+i32+i8 -> bf16, f64+i32+ui8 -> bf16, f64+i64+i8 -> bf16, f64+i64+ui8 -> bf16"},
    "quantized_decomposed::dequantize_per_tensor.Tensor_out": {"aborts": "f32+i16+i32 -> bf16, f32+i16+i32 -> f16, f32+i16+i32 -> f32, f32+i16+i32 -> f64, f32+i16+i64 -> bf16, f32+i16+i64 -> f16, f32+i16+i64 -> f32, f32+i16+i64 -> f64, f32+i32 -> bf16, f32+i32 -> f16, f32+i32 -> f32, f32+i32 -> f64, f32+i32+i64 -> bf16, f32+i32+i64 -> f16, f32+i32+i64 -> f32, f32+i32+i64 -> f64, f32+i32+i8 -> bf16, f32+i32+i8 -> f16, f32+i32+i8 -> f32, f32+i32+i8 -> f64, f32+i32+ui16 -> bf16, f32+i32+ui16 -> f16, f32+i32+ui16 -> f32, f32+i32+ui16 -> f64, f32+i32+ui8 -> bf16, f32+i32+ui8 -> f16, f32+i32+ui8 -> f32, f32+i32+ui8 -> f64, f32+i64+i8 -> bf16, f32+i64+i8 -> f16, f32+i64+i8 -> f32, f32+i64+i8 -> f64, f32+i64+ui16 -> bf16, f32+i64+ui16 -> f16, f32+i64+ui16 -> f32, f32+i64+ui16 -> f64, f32+i64+ui8 -> bf16, f32+i64+ui8 -> f16, f32+i64+ui8 -> f32, f32+i64+ui8 -> f64, f64+i16+i32 -> bf16, f64+i16+i32 -> f16, f64+i16+i32 -> f32, f64+i16+i32 -> f64, f64+i16+i64 -> bf16, f64+i32 -> bf16, f64+i32 -> f16, f64+i32 -> f32, f64+i32 -> f64, f64+i32+i64 -> bf16, f64+i32+i8 -> bf16, f64+i32+i8 -> f16, f64+i32+i8 -> f32, f64+i32+i8 -> f64, f64+i32+ui16 -> bf16, f64+i32+ui16 -> f16, f64+i32+ui16 -> f32, f64+i32+ui16 -> f64, f64+i32+ui8 -> bf16, f64+i32+ui8 -> f16, f64+i32+ui8 -> f32, f64+i32+ui8 -> f64, f64+i64+i8 -> bf16, f64+i64+ui16 -> bf16, f64+i64+ui8 -> bf16"},
    "quantized_decomposed::dequantize_per_tensor.out": {"aborts": "i16 -> bf16, i32 -> bf16, i8 -> bf16, ui16 -> bf16, ui8 -> bf16"},
    "quantized_decomposed::dequantize_per_token.out": {"aborts": "f32+i16+i32 -> bf16, f32+i16+i64 -> bf16, f32+i32 -> bf16, f32+i32+i64 -> bf16, f32+i32+i8 -> bf16, f32+i32+ui8 -> bf16, f32+i64+i8 -> bf16, f32+i64+ui8 -> bf16, f64+i16+i32 -> bf16, f64+i16+i64 -> bf16, f64+i32 -> bf16, f64+i32+i64 -> bf16, f64+i32+i8 -> bf16, f64+i32+ui8 -> bf16, f64+i64+i8 -> bf16, f64+i64+ui8 -> bf16"},
    "quantized_decomposed::embedding_2bit.dtype_out": {"aborts": "bf16+i64+ui8 -> f64, f16+i64+ui8 -> f64, f32+i64+ui8 -> f64"},
    "quantized_decomposed::embedding_4bit.dtype_out": {"aborts": "bf16+i64+ui8 -> f64, f16+i64+ui8 -> f64, f32+i64+ui8 -> f64"},
    "quantized_decomposed::embedding_byte.dtype_out": {"aborts": "bf16+i64+i8 -> f64, bf16+i64+ui8 -> f64, f16+i64+i8 -> f64, f16+i64+ui8 -> f64, f32+i64+i8 -> f64, f32+i64+ui8 -> f64"},
    "quantized_decomposed::quantize_per_channel.out": {"aborts": "bf16+f32+i32 -> i16, bf16+f32+i32 -> i32, bf16+f32+i32 -> i8, bf16+f32+i32 -> ui16, bf16+f32+i32 -> ui8, bf16+f32+i64 -> i16, bf16+f32+i64 -> i32, bf16+f32+i64 -> i8, bf16+f32+i64 -> ui16, bf16+f32+i64 -> ui8, bf16+f64+i32 -> i16, bf16+f64+i32 -> i32, bf16+f64+i32 -> i8, bf16+f64+i32 -> ui16, bf16+f64+i32 -> ui8, bf16+f64+i64 -> i16, bf16+f64+i64 -> i32, bf16+f64+i64 -> i8, bf16+f64+i64 -> ui16, bf16+f64+i64 -> ui8, f16+f32+i32 -> i16, f16+f32+i32 -> i32, f16+f32+i32 -> i8, f16+f32+i32 -> ui16, f16+f32+i32 -> ui8, f16+f32+i64 -> i16, f16+f32+i64 -> i32, f16+f32+i64 -> i8, f16+f32+i64 -> ui16, f16+f32+i64 -> ui8, f16+f64+i32 -> i16, f16+f64+i32 -> i32, f16+f64+i32 -> i8, f16+f64+i32 -> ui16, f16+f64+i32 -> ui8, f32+f64+i32 -> i16, f32+f64+i32 -> i32, f32+f64+i32 -> i8, f32+f64+i32 -> ui16, f32+f64+i32 -> ui8, f32+i32 -> i16, f32+i32 -> i32, f32+i32 -> i8, f32+i32 -> ui16, f32+i32 -> ui8, f32+i64 -> i16, f32+i64 -> i32, f32+i64 -> i8, f32+i64 -> ui16, f32+i64 -> ui8"},
    "quantized_decomposed::quantize_per_tensor.Tensor_out": {"aborts": "bf16+f64+i32 -> i16, bf16+f64+i32 -> i32, bf16+f64+i32 -> i8, bf16+f64+i32 -> ui16, bf16+f64+i32 -> ui8, bf16+f64+i64 -> i16, bf16+f64+i64 -> i32, bf16+f64+i64 -> i8, bf16+f64+i64 -> ui16, bf16+f64+i64 -> ui8, f16+f64+i32 -> i16, f16+f64+i32 -> i32, f16+f64+i32 -> i8, f16+f64+i32 -> ui16, f16+f64+i32 -> ui8, f32+f64+i32 -> i16, f32+f64+i32 -> i32, f32+f64+i32 -> i8, f32+f64+i32 -> ui16, f32+f64+i32 -> ui8", "fails": "bf16+f32+i32 -> i16, bf16+f32+i32 -> i32, bf16+f32+i32 -> i8, bf16+f32+i32 -> ui16, bf16+f32+i32 -> ui8, bf16+f32+i64 -> i16, bf16+f32+i64 -> i32, bf16+f32+i64 -> i8, bf16+f32+i64 -> ui16, bf16+f32+i64 -> ui8, f16+f32+i32 -> i16, f16+f32+i32 -> i32, f16+f32+i32 -> i8, f16+f32+i32 -> ui16, f16+f32+i32 -> ui8, f16+f32+i64 -> i16, f16+f32+i64 -> i32, f16+f32+i64 -> i8, f16+f32+i64 -> ui16, f16+f32+i64 -> ui8, f32+i32 -> i16, f32+i32 -> i32, f32+i32 -> i8, f32+i32 -> ui16, f32+i32 -> ui8, f32+i64 -> i16, f32+i64 -> i32, f32+i64 -> i8, f32+i64 -> ui16, f32+i64 -> ui8"},
    "quantized_decomposed::quantize_per_tensor.out": {"aborts": "bf16 -> i16, bf16 -> i32, bf16 -> i8, bf16 -> ui16, bf16 -> ui8"},
    "quantized_decomposed::quantize_per_token.out": {"aborts": "bf16+f32+i32 -> i16, bf16+f32+i32 -> i32, bf16+f32+i32 -> i8, bf16+f32+i32 -> ui16, bf16+f32+i32 -> ui8, bf16+f32+i64 -> i16, bf16+f32+i64 -> i32, bf16+f32+i64 -> i8, bf16+f32+i64 -> ui16, bf16+f32+i64 -> ui8, bf16+f64+i32 -> i16, bf16+f64+i32 -> i32, bf16+f64+i32 -> i8, bf16+f64+i32 -> ui16, bf16+f64+i32 -> ui8, bf16+f64+i64 -> i16, bf16+f64+i64 -> i32, bf16+f64+i64 -> i8, bf16+f64+i64 -> ui16, bf16+f64+i64 -> ui8, f16+f32+i32 -> i16, f16+f32+i32 -> i32, f16+f32+i32 -> i8, f16+f32+i32 -> ui16, f16+f32+i32 -> ui8, f16+f32+i64 -> i16, f16+f32+i64 -> i32, f16+f32+i64 -> i8, f16+f32+i64 -> ui16, f16+f32+i64 -> ui8, f16+f64+i32 -> i16, f16+f64+i32 -> i32, f16+f64+i32 -> i8, f16+f64+i32 -> ui16, f16+f64+i32 -> ui8, f32+f64+i32 -> i16, f32+f64+i32 -> i32, f32+f64+i32 -> i8, f32+f64+i32 -> ui16, f32+f64+i32 -> ui8, f32+i32 -> i16, f32+i32 -> i32, f32+i32 -> i8, f32+i32 -> ui16, f32+i32 -> ui8, f32+i64 -> i16, f32+i64 -> i32, f32+i64 -> i8, f32+i64 -> ui16, f32+i64 -> ui8"},
}
"""Kernel → verdict → the element types of usual calls."""

SITUATIONS: dict[str, dict[str, dict[str, str]]] = {
    "a fraction": {
        "aten::add.Scalar_out": {"fails": "i1 -> f32, i16 -> f32, i32 -> f32, i64 -> f32, i8 -> f32, ui8 -> f32"},
        "aten::arange.out": {"fails": " -> i64"},
    },
    "a number above 7": {
        "aten::bitwise_left_shift.Tensor_Scalar_out": {"differs": "i1 -> i64, i16 -> i16, i32 -> i32, i64 -> i64, i8 -> i8, ui8 -> ui8"},
        "aten::bitwise_right_shift.Tensor_Scalar_out": {"differs": "i16 -> i16, i32 -> i32, i64 -> i64, i8 -> i8, ui8 -> ui8"},
        "aten::pow.Tensor_Scalar_out": {"differs": "i16 -> i16, i32 -> i32, i64 -> i64, i8 -> i8, ui8 -> ui8"},
    },
    "a number below 0": {
        "aten::bitwise_left_shift.Tensor_Scalar_out": {"differs": "i1 -> i64, i16 -> i16, i32 -> i32, i64 -> i64, i8 -> i8, ui8 -> ui8"},
        "aten::bitwise_right_shift.Tensor_Scalar_out": {"differs": "i1 -> i64, i16 -> i16, i32 -> i32, i64 -> i64, i8 -> i8, ui8 -> ui8"},
        "aten::fmod.Scalar_out": {"differs": "ui8 -> ui8"},
        "aten::remainder.Scalar_out": {"differs": "i1 -> i64, i16 -> i16, i32 -> i32, i64 -> i64, i8 -> i8"},
    },
    "a tensor without axes": {
        "aten::cumsum.out": {"fails": "bf16 -> bf16, f16 -> f16, f32 -> f32, f64 -> f64, i1 -> i64, i16 -> i64, i32 -> i64, i64 -> i64, i8 -> i64, ui8 -> i64"},
        "aten::sum.IntList_out": {"aborts": "bf16 -> bf16, f16 -> f16, f32 -> f32, i64 -> i64"},
        "aten::unfold_copy.out": {"aborts": "bf16 -> bf16, f16 -> f16, f32 -> f32, f64 -> f64, i1 -> i1, i16 -> i16, i32 -> i32, i64 -> i64, i8 -> i8, ui8 -> ui8"},
        "aten::var_mean.correction_out": {"differs": "bf16 -> bf16, f16 -> f16, f32 -> f32, f64 -> f64"},
    },
    "an empty result": {
        "aten::_adaptive_avg_pool2d.out": {"fails": "bf16 -> bf16, f16 -> f16, f32 -> f32, i1 -> i1, i16 -> i16, i32 -> i32, i64 -> i64, i8 -> i8, ui8 -> ui8"},
        "aten::_log_softmax.out": {"aborts": "bf16 -> bf16, f16 -> f16, f32 -> f32", "fails": "i1 -> i1, i16 -> i16, i32 -> i32, i64 -> i64, i8 -> i8, ui8 -> ui8"},
        "aten::_native_batch_norm_legit_no_training.out": {"fails": "bf16 -> bf16, f16 -> f16, f32 -> f32, f64 -> f64"},
        "aten::_pdist_forward.out": {"fails": "i1 -> i1, i16 -> i16, i32 -> i32, i64 -> i64, i8 -> i8, ui8 -> ui8"},
        "aten::_softmax.out": {"fails": "i1 -> i1, i16 -> i16, i32 -> i32, i64 -> i64, i8 -> i8, ui8 -> ui8"},
        "aten::amax.out": {"aborts": "bf16 -> bf16, f16 -> f16, f32 -> f32, f64 -> f64, i1 -> i1, i16 -> i16, i32 -> i32, i64 -> i64, i8 -> i8, ui8 -> ui8"},
        "aten::amin.out": {"aborts": "bf16 -> bf16, f16 -> f16, f32 -> f32, f64 -> f64, i1 -> i1, i16 -> i16, i32 -> i32, i64 -> i64, i8 -> i8, ui8 -> ui8"},
        "aten::bmm.out": {"fails": "i1 -> i1"},
        "aten::cat.out": {"fails": "bf16 -> bf16, f16 -> f16, f32 -> f32, f64 -> f64, i1 -> i1, i16 -> i16, i32 -> i32, i64 -> i64, i8 -> i8, ui8 -> ui8"},
        "aten::constant_pad_nd.out": {"fails": "bf16 -> bf16, f16 -> f16, f32 -> f32, f64 -> f64, i1 -> i1, i16 -> i16, i32 -> i32, i64 -> i64, i8 -> i8, ui8 -> ui8"},
        "aten::grid_sampler_2d.out": {"fails": "i1 -> i1"},
        "aten::pixel_unshuffle.out": {"fails": "bf16 -> bf16, f16 -> f16, f32 -> f32, f64 -> f64, i1 -> i1, i16 -> i16, i32 -> i32, i64 -> i64, i8 -> i8, ui8 -> ui8"},
    },
    "an empty tensor": {
        "aten::_pdist_forward.out": {"fails": "i1 -> i1, i16 -> i16, i32 -> i32, i64 -> i64, i8 -> i8, ui8 -> ui8"},
        "aten::bmm.out": {"fails": "i1 -> i1"},
        "aten::mm.out": {"fails": "i1 -> i1"},
    },
    "large numbers": {
        "aten::bitwise_left_shift.Tensor_out": {"differs": "i32 -> i32, i64 -> i64"},
        "aten::bitwise_right_shift.Tensor_out": {"differs": "i32 -> i32, i64 -> i64"},
        "aten::ceil.out": {"differs": "i32 -> i32, i64 -> i64"},
        "aten::div.Scalar_mode_out": {"differs": "i64 -> i64"},
        "aten::div.out_mode": {"differs": "i64 -> i64"},
        "aten::floor.out": {"differs": "i32 -> i32, i64 -> i64"},
        "aten::fmod.Scalar_out": {"differs": "i64 -> i64"},
        "aten::fmod.Tensor_out": {"differs": "i64 -> i64"},
        "aten::pow.Scalar_out": {"differs": "i32 -> i32, i64 -> i64"},
        "aten::pow.Tensor_Scalar_out": {"differs": "i32 -> i32, i64 -> i64"},
        "aten::pow.Tensor_Tensor_out": {"differs": "i16 -> i16, i32 -> i32, i64 -> i64, i8 -> i8, ui8 -> ui8"},
        "aten::remainder.Scalar_out": {"differs": "i16 -> i16, i32 -> i32, i64 -> i64, i8 -> i8"},
        "aten::remainder.Tensor_out": {"differs": "i16 -> i16, i32 -> i32, i64 -> i64, i8 -> i8"},
        "aten::sum.IntList_out": {"differs": "i64 -> i64"},
        "aten::trunc.out": {"differs": "i32 -> i32, i64 -> i64"},
    },
    "negative numbers": {
        "aten::bitwise_left_shift.Tensor_out": {"differs": "i32 -> i32, i64 -> i64"},
        "aten::remainder.Scalar_out": {"differs": "i16 -> i16, i32 -> i32, i64 -> i64, i8 -> i8"},
        "aten::remainder.Tensor_out": {"differs": "i16 -> i16, i32 -> i32, i64 -> i64, i8 -> i8"},
    },
    "rank 1": {
        "aten::linear.out": {"fails": "bf16 -> bf16, f16 -> f16, f32 -> f32, f64 -> f64, i16 -> i16, i32 -> i32, i64 -> i64, i8 -> i8, ui8 -> ui8"},
    },
    "rank 5": {
        "aten::convolution.out": {"fails": "bf16 -> bf16, f16 -> f16, f32 -> f32, f64 -> f64, i16 -> i16, i32 -> i32, i64 -> i64, i8 -> i8, ui8 -> ui8"},
    },
    "shapes that broadcast": {
        "aten::le.Tensor_out": {"differs": "i1 -> i1"},
    },
}
"""Situation → kernel → verdict → element types, beyond what usual calls refuse."""
