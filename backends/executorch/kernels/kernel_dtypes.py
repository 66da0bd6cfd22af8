"""What the runtime's kernels refuse or get wrong; from generate_kernel_dtypes.py."""

# fmt: off
# ruff: noqa: E501

PROBED = frozenset(
    "aten::_adaptive_avg_pool2d.out aten::_cdist_forward.out aten::_log_softmax.out aten::_native_batch_norm_legit.no_stats_out aten::_native_batch_norm_legit_no_training.out aten::_pdist_forward.out aten::_softmax.out aten::_to_copy.out aten::_upsample_bilinear2d_aa.out aten::abs.out aten::acos.out aten::acosh.out aten::add.Scalar_out aten::add.out aten::addmm.out aten::amax.out aten::amin.out aten::any.all_out aten::any.dims_out aten::any.out aten::arange.out aten::arange.start_out aten::argmax.out aten::argmin.out aten::as_strided_copy.out aten::asin.out aten::asinh.out aten::atan.out aten::atan2.out aten::atanh.out aten::avg_pool2d.out aten::bitwise_and.Scalar_out aten::bitwise_and.Tensor_out aten::bitwise_left_shift.Tensor_Scalar_out aten::bitwise_left_shift.Tensor_out aten::bitwise_not.out aten::bitwise_or.Scalar_out aten::bitwise_or.Tensor_out aten::bitwise_right_shift.Tensor_Scalar_out aten::bitwise_right_shift.Tensor_out aten::bitwise_xor.Scalar_out aten::bitwise_xor.Tensor_out aten::bmm.out aten::cat.out aten::ceil.out aten::constant_pad_nd.out aten::convolution.out aten::copy.out aten::cos.out aten::cosh.out aten::cumsum.out aten::diagonal_copy.out aten::div.Scalar_mode_out aten::div.Scalar_out aten::div.out aten::div.out_mode aten::elu.out aten::embedding.out aten::eq.Scalar_out aten::eq.Tensor_out aten::erf.out aten::exp.out aten::expand_copy.out aten::expm1.out aten::fill.Scalar_out aten::fill.Tensor_out aten::flip.out aten::floor.out aten::floor_divide.out aten::fmod.Scalar_out aten::fmod.Tensor_out aten::full.out aten::full_like.out aten::gather.out aten::ge.Scalar_out aten::ge.Tensor_out aten::gelu.out aten::glu.out aten::grid_sampler_2d.out aten::gt.Scalar_out aten::gt.Tensor_out aten::hardtanh.out aten::index.Tensor_out aten::index_put.out aten::index_select.out aten::isinf.out aten::isnan.out aten::le.Scalar_out aten::le.Tensor_out aten::leaky_relu.out aten::linear.out aten::log.out aten::log10.out aten::log1p.out aten::log2.out aten::logical_and.out aten::logical_not.out aten::logical_or.out aten::logical_xor.out aten::logit.out aten::lt.Scalar_out aten::lt.Tensor_out aten::masked_fill.Scalar_out aten::masked_scatter.out aten::masked_select.out aten::max.dim_max aten::max.unary_out aten::max_pool2d_with_indices.out aten::maximum.out aten::mean.dtype_out aten::mean.out aten::min.dim_min aten::min.unary_out aten::minimum.out aten::mm.out aten::mul.Scalar_out aten::mul.out aten::narrow_copy.out aten::native_group_norm.out aten::native_layer_norm.out aten::ne.Scalar_out aten::ne.Tensor_out aten::neg.out aten::nonzero.out aten::ones.out aten::permute_copy.out aten::pixel_shuffle.out aten::pixel_unshuffle.out aten::pow.Scalar_out aten::pow.Tensor_Scalar_out aten::pow.Tensor_Tensor_out aten::prod.int_out aten::prod.out aten::reciprocal.out aten::reflection_pad1d.out aten::reflection_pad2d.out aten::reflection_pad3d.out aten::relu.out aten::remainder.Scalar_out aten::remainder.Tensor_out aten::repeat.out aten::replication_pad1d.out aten::replication_pad2d.out aten::replication_pad3d.out aten::roll.out aten::round.out aten::rsqrt.out aten::rsub.Scalar_out aten::scalar_tensor.out aten::scatter.src_out aten::scatter.value_out aten::scatter_add.out aten::select_copy.int_out aten::select_scatter.out aten::sigmoid.out aten::sign.out aten::sin.out aten::sinh.out aten::slice_copy.Tensor_out aten::slice_scatter.out aten::split_copy.Tensor_out aten::split_with_sizes_copy.out aten::sqrt.out aten::stack.out aten::sub.Scalar_out aten::sub.out aten::sum.IntList_out aten::t_copy.out aten::tan.out aten::tanh.out aten::topk.values aten::transpose_copy.int_out aten::tril.out aten::trunc.out aten::unbind_copy.int_out aten::unfold_copy.out aten::upsample_bilinear2d.vec_out aten::upsample_nearest2d.vec_out aten::var.correction_out aten::var.out aten::var_mean.correction_out aten::where.self_out aten::zeros.out dim_order_ops::_clone_dim_order.out dim_order_ops::_to_dim_order_copy.out llama::custom_sdpa.out llama::fast_hadamard_transform.out quantized_decomposed::choose_qparams.Tensor_out quantized_decomposed::choose_qparams_per_token_asymmetric.out quantized_decomposed::dequantize_per_channel.out quantized_decomposed::dequantize_per_tensor.Tensor_out quantized_decomposed::dequantize_per_tensor.out quantized_decomposed::dequantize_per_token.out quantized_decomposed::embedding_2bit.dtype_out quantized_decomposed::embedding_2bit.out quantized_decomposed::embedding_4bit.dtype_out quantized_decomposed::embedding_4bit.out quantized_decomposed::embedding_byte.dtype_out quantized_decomposed::embedding_byte.out quantized_decomposed::quantize_per_channel.out quantized_decomposed::quantize_per_tensor.Tensor_out quantized_decomposed::quantize_per_tensor.out quantized_decomposed::quantize_per_token.out".split()
)

REFUSED: dict[str, dict[str, str]] = {
    "aten::_adaptive_avg_pool2d.out": {
        "differs": "f64 -> f64",
    },
    "aten::_log_softmax.out": {
        "fails": "f64 -> f64",
    },
    "aten::_native_batch_norm_legit.no_stats_out": {
        "differs": "bf16 -> bf16, f64 -> f64",
    },
    "aten::_upsample_bilinear2d_aa.out": {
        "differs": "ui8 -> ui8",
    },
    "aten::add.Scalar_out": {
        "fails": "i1 -> i64",
    },
    "aten::logit.out": {
        "fails": "bf16 -> bf16, f16 -> f16",
    },
    "aten::native_group_norm.out": {
        "differs": "f64 -> f64",
    },
    "aten::native_layer_norm.out": {
        "differs": "f64 -> f64",
    },
    "aten::remainder.Scalar_out": {
        "differs": "f64 -> f64",
    },
    "aten::remainder.Tensor_out": {
        "differs": "bf16+f64 -> f64, f16+f64 -> f64, f32+f64 -> f64, f64 -> f64, f64+i1 -> f64, f64+i16 -> f64, f64+i32 -> f64, f64+i64 -> f64, f64+i8 -> f64, f64+ui8 -> f64",
    },
    "aten::sum.IntList_out": {
        "differs": "f64 -> f64",
    },
    "aten::upsample_bilinear2d.vec_out": {
        "differs": "ui8 -> ui8",
    },
    "llama::custom_sdpa.out": {
        "fails": "f64 -> f64, i1 -> i1, i16 -> i16, i32 -> i32, i64 -> i64, i8 -> i8, ui8 -> ui8",
    },
    "llama::fast_hadamard_transform.out": {
        "fails": "bf16 -> bf16, i1 -> i1, i16 -> i16, i32 -> i32, i64 -> i64, i8 -> i8, ui8 -> ui8",
    },
    "quantized_decomposed::choose_qparams.Tensor_out": {
        "aborts": "bf16 -> f64+i64, f16 -> f64+i64",
    },
    "quantized_decomposed::choose_qparams_per_token_asymmetric.out": {
        "aborts": "bf16 -> f64+i64, f16 -> f64+i64, f64 -> f64+i64",
    },
    "quantized_decomposed::dequantize_per_channel.out": {
        "aborts": "f32+i16+i32 -> bf16, f32+i16+i64 -> bf16, f32+i32 -> bf16, f32+i32+i64 -> bf16, f32+i32+i8 -> bf16, f32+i32+ui8 -> bf16, f32+i64+i8 -> bf16, f32+i64+ui8 -> bf16, f64+i16+i32 -> bf16, f64+i16+i64 -> bf16, f64+i32 -> bf16, f64+i32+i64 -> bf16, f64+i32+i8 -> bf16, f64+i32+ui8 -> bf16, f64+i64+i8 -> bf16, f64+i64+ui8 -> bf16",
    },
    "quantized_decomposed::dequantize_per_tensor.Tensor_out": {
        "aborts": "f32+i16+i32 -> bf16, f32+i16+i32 -> f16, f32+i16+i32 -> f32, f32+i16+i32 -> f64, f32+i16+i64 -> bf16, f32+i16+i64 -> f16, f32+i16+i64 -> f32, f32+i16+i64 -> f64, f32+i32 -> bf16, f32+i32 -> f16, f32+i32 -> f32, f32+i32 -> f64, f32+i32+i64 -> bf16, f32+i32+i64 -> f16, f32+i32+i64 -> f32, f32+i32+i64 -> f64, f32+i32+i8 -> bf16, f32+i32+i8 -> f16, f32+i32+i8 -> f32, f32+i32+i8 -> f64, f32+i32+ui16 -> bf16, f32+i32+ui16 -> f16, f32+i32+ui16 -> f32, f32+i32+ui16 -> f64, f32+i32+ui8 -> bf16, f32+i32+ui8 -> f16, f32+i32+ui8 -> f32, f32+i32+ui8 -> f64, f32+i64+i8 -> bf16, f32+i64+i8 -> f16, f32+i64+i8 -> f32, f32+i64+i8 -> f64, f32+i64+ui16 -> bf16, f32+i64+ui16 -> f16, f32+i64+ui16 -> f32, f32+i64+ui16 -> f64, f32+i64+ui8 -> bf16, f32+i64+ui8 -> f16, f32+i64+ui8 -> f32, f32+i64+ui8 -> f64, f64+i16+i32 -> bf16, f64+i16+i32 -> f16, f64+i16+i32 -> f32, f64+i16+i32 -> f64, f64+i16+i64 -> bf16, f64+i32 -> bf16, f64+i32 -> f16, f64+i32 -> f32, f64+i32 -> f64, f64+i32+i64 -> bf16, f64+i32+i8 -> bf16, f64+i32+i8 -> f16, f64+i32+i8 -> f32, f64+i32+i8 -> f64, f64+i32+ui16 -> bf16, f64+i32+ui16 -> f16, f64+i32+ui16 -> f32, f64+i32+ui16 -> f64, f64+i32+ui8 -> bf16, f64+i32+ui8 -> f16, f64+i32+ui8 -> f32, f64+i32+ui8 -> f64, f64+i64+i8 -> bf16, f64+i64+ui16 -> bf16, f64+i64+ui8 -> bf16",
    },
    "quantized_decomposed::dequantize_per_tensor.out": {
        "aborts": "i16 -> bf16, i32 -> bf16, i8 -> bf16, ui16 -> bf16, ui8 -> bf16",
    },
    "quantized_decomposed::dequantize_per_token.out": {
        "aborts": "f32+i16+i32 -> bf16, f32+i16+i64 -> bf16, f32+i32 -> bf16, f32+i32+i64 -> bf16, f32+i32+i8 -> bf16, f32+i32+ui8 -> bf16, f32+i64+i8 -> bf16, f32+i64+ui8 -> bf16, f64+i16+i32 -> bf16, f64+i16+i64 -> bf16, f64+i32 -> bf16, f64+i32+i64 -> bf16, f64+i32+i8 -> bf16, f64+i32+ui8 -> bf16, f64+i64+i8 -> bf16, f64+i64+ui8 -> bf16",
    },
    "quantized_decomposed::embedding_2bit.dtype_out": {
        "aborts": "bf16+i64+ui8 -> f64, f16+i64+ui8 -> f64, f32+i64+ui8 -> f64",
    },
    "quantized_decomposed::embedding_4bit.dtype_out": {
        "aborts": "bf16+i64+ui8 -> f64, f16+i64+ui8 -> f64, f32+i64+ui8 -> f64",
    },
    "quantized_decomposed::embedding_byte.dtype_out": {
        "aborts": "bf16+i64+i8 -> f64, bf16+i64+ui8 -> f64, f16+i64+i8 -> f64, f16+i64+ui8 -> f64, f32+i64+i8 -> f64, f32+i64+ui8 -> f64",
    },
    "quantized_decomposed::quantize_per_channel.out": {
        "aborts": "bf16+f32+i32 -> i16, bf16+f32+i32 -> i32, bf16+f32+i32 -> i8, bf16+f32+i32 -> ui16, bf16+f32+i32 -> ui8, bf16+f32+i64 -> i16, bf16+f32+i64 -> i32, bf16+f32+i64 -> i8, bf16+f32+i64 -> ui16, bf16+f32+i64 -> ui8, bf16+f64+i32 -> i16, bf16+f64+i32 -> i32, bf16+f64+i32 -> i8, bf16+f64+i32 -> ui16, bf16+f64+i32 -> ui8, bf16+f64+i64 -> i16, bf16+f64+i64 -> i32, bf16+f64+i64 -> i8, bf16+f64+i64 -> ui16, bf16+f64+i64 -> ui8, f16+f32+i32 -> i16, f16+f32+i32 -> i32, f16+f32+i32 -> i8, f16+f32+i32 -> ui16, f16+f32+i32 -> ui8, f16+f32+i64 -> i16, f16+f32+i64 -> i32, f16+f32+i64 -> i8, f16+f32+i64 -> ui16, f16+f32+i64 -> ui8, f16+f64+i32 -> i16, f16+f64+i32 -> i32, f16+f64+i32 -> i8, f16+f64+i32 -> ui16, f16+f64+i32 -> ui8, f32+f64+i32 -> i16, f32+f64+i32 -> i32, f32+f64+i32 -> i8, f32+f64+i32 -> ui16, f32+f64+i32 -> ui8, f32+i32 -> i16, f32+i32 -> i32, f32+i32 -> i8, f32+i32 -> ui16, f32+i32 -> ui8, f32+i64 -> i16, f32+i64 -> i32, f32+i64 -> i8, f32+i64 -> ui16, f32+i64 -> ui8",
    },
    "quantized_decomposed::quantize_per_tensor.Tensor_out": {
        "aborts": "bf16+f64+i32 -> i16, bf16+f64+i32 -> i32, bf16+f64+i32 -> i8, bf16+f64+i32 -> ui16, bf16+f64+i32 -> ui8, bf16+f64+i64 -> i16, bf16+f64+i64 -> i32, bf16+f64+i64 -> i8, bf16+f64+i64 -> ui16, bf16+f64+i64 -> ui8, f16+f64+i32 -> i16, f16+f64+i32 -> i32, f16+f64+i32 -> i8, f16+f64+i32 -> ui16, f16+f64+i32 -> ui8, f32+f64+i32 -> i16, f32+f64+i32 -> i32, f32+f64+i32 -> i8, f32+f64+i32 -> ui16, f32+f64+i32 -> ui8",
        "fails": "bf16+f32+i32 -> i16, bf16+f32+i32 -> i32, bf16+f32+i32 -> i8, bf16+f32+i32 -> ui16, bf16+f32+i32 -> ui8, bf16+f32+i64 -> i16, bf16+f32+i64 -> i32, bf16+f32+i64 -> i8, bf16+f32+i64 -> ui16, bf16+f32+i64 -> ui8, f16+f32+i32 -> i16, f16+f32+i32 -> i32, f16+f32+i32 -> i8, f16+f32+i32 -> ui16, f16+f32+i32 -> ui8, f16+f32+i64 -> i16, f16+f32+i64 -> i32, f16+f32+i64 -> i8, f16+f32+i64 -> ui16, f16+f32+i64 -> ui8, f32+i32 -> i16, f32+i32 -> i32, f32+i32 -> i8, f32+i32 -> ui16, f32+i32 -> ui8, f32+i64 -> i16, f32+i64 -> i32, f32+i64 -> i8, f32+i64 -> ui16, f32+i64 -> ui8",
    },
    "quantized_decomposed::quantize_per_tensor.out": {
        "aborts": "bf16 -> i16, bf16 -> i32, bf16 -> i8, bf16 -> ui16, bf16 -> ui8",
    },
    "quantized_decomposed::quantize_per_token.out": {
        "aborts": "bf16+f32+i32 -> i16, bf16+f32+i32 -> i32, bf16+f32+i32 -> i8, bf16+f32+i32 -> ui16, bf16+f32+i32 -> ui8, bf16+f32+i64 -> i16, bf16+f32+i64 -> i32, bf16+f32+i64 -> i8, bf16+f32+i64 -> ui16, bf16+f32+i64 -> ui8, bf16+f64+i32 -> i16, bf16+f64+i32 -> i32, bf16+f64+i32 -> i8, bf16+f64+i32 -> ui16, bf16+f64+i32 -> ui8, bf16+f64+i64 -> i16, bf16+f64+i64 -> i32, bf16+f64+i64 -> i8, bf16+f64+i64 -> ui16, bf16+f64+i64 -> ui8, f16+f32+i32 -> i16, f16+f32+i32 -> i32, f16+f32+i32 -> i8, f16+f32+i32 -> ui16, f16+f32+i32 -> ui8, f16+f32+i64 -> i16, f16+f32+i64 -> i32, f16+f32+i64 -> i8, f16+f32+i64 -> ui16, f16+f32+i64 -> ui8, f16+f64+i32 -> i16, f16+f64+i32 -> i32, f16+f64+i32 -> i8, f16+f64+i32 -> ui16, f16+f64+i32 -> ui8, f32+f64+i32 -> i16, f32+f64+i32 -> i32, f32+f64+i32 -> i8, f32+f64+i32 -> ui16, f32+f64+i32 -> ui8, f32+i32 -> i16, f32+i32 -> i32, f32+i32 -> i8, f32+i32 -> ui16, f32+i32 -> ui8, f32+i64 -> i16, f32+i64 -> i32, f32+i64 -> i8, f32+i64 -> ui16, f32+i64 -> ui8",
    },
}
"""Kernel → verdict → the element types of usual calls."""

SITUATIONS: dict[str, dict[str, dict[str, str]]] = {
    "a fraction": {
        "aten::add.Scalar_out": {
            "fails": "i1 -> f32, i16 -> f32, i32 -> f32, i64 -> f32, i8 -> f32, ui8 -> f32",
        },
        "aten::arange.out": {
            "fails": " -> i64",
        },
    },
    "a number above 7": {
        "aten::bitwise_left_shift.Tensor_Scalar_out": {
            "differs": "i1 -> i64, i16 -> i16, i32 -> i32, i64 -> i64, i8 -> i8, ui8 -> ui8",
        },
        "aten::bitwise_right_shift.Tensor_Scalar_out": {
            "differs": "i16 -> i16, i32 -> i32, i64 -> i64, i8 -> i8, ui8 -> ui8",
        },
        "aten::pow.Tensor_Scalar_out": {
            "differs": "i16 -> i16, i32 -> i32, i64 -> i64, i8 -> i8, ui8 -> ui8",
        },
    },
    "a number below 0": {
        "aten::bitwise_left_shift.Tensor_Scalar_out": {
            "differs": "i1 -> i64, i16 -> i16, i32 -> i32, i64 -> i64, i8 -> i8, ui8 -> ui8",
        },
        "aten::bitwise_right_shift.Tensor_Scalar_out": {
            "differs": "i1 -> i64, i16 -> i16, i32 -> i32, i64 -> i64, i8 -> i8, ui8 -> ui8",
        },
        "aten::fmod.Scalar_out": {
            "differs": "ui8 -> ui8",
        },
        "aten::remainder.Scalar_out": {
            "differs": "i1 -> i64, i16 -> i16, i32 -> i32, i64 -> i64, i8 -> i8",
        },
    },
    "a tensor without axes": {
        "aten::cumsum.out": {
            "fails": "bf16 -> bf16, f16 -> f16, f32 -> f32, f64 -> f64, i1 -> i64, i16 -> i64, i32 -> i64, i64 -> i64, i8 -> i64, ui8 -> i64",
        },
        "aten::sum.IntList_out": {
            "aborts": "bf16 -> bf16, f16 -> f16, f32 -> f32, i64 -> i64",
        },
        "aten::unfold_copy.out": {
            "aborts": "bf16 -> bf16, f16 -> f16, f32 -> f32, f64 -> f64, i1 -> i1, i16 -> i16, i32 -> i32, i64 -> i64, i8 -> i8, ui8 -> ui8",
        },
        "aten::var_mean.correction_out": {
            "differs": "bf16 -> bf16, f16 -> f16, f32 -> f32, f64 -> f64",
        },
    },
    "an empty result": {
        "aten::_adaptive_avg_pool2d.out": {
            "fails": "bf16 -> bf16, f16 -> f16, f32 -> f32, i1 -> i1, i16 -> i16, i32 -> i32, i64 -> i64, i8 -> i8, ui8 -> ui8",
        },
        "aten::_log_softmax.out": {
            "aborts": "bf16 -> bf16, f16 -> f16, f32 -> f32",
            "fails": "i1 -> i1, i16 -> i16, i32 -> i32, i64 -> i64, i8 -> i8, ui8 -> ui8",
        },
        "aten::_native_batch_norm_legit_no_training.out": {
            "fails": "bf16 -> bf16, f16 -> f16, f32 -> f32, f64 -> f64",
        },
        "aten::_pdist_forward.out": {
            "fails": "i1 -> i1, i16 -> i16, i32 -> i32, i64 -> i64, i8 -> i8, ui8 -> ui8",
        },
        "aten::_softmax.out": {
            "fails": "i1 -> i1, i16 -> i16, i32 -> i32, i64 -> i64, i8 -> i8, ui8 -> ui8",
        },
        "aten::amax.out": {
            "aborts": "bf16 -> bf16, f16 -> f16, f32 -> f32, f64 -> f64, i1 -> i1, i16 -> i16, i32 -> i32, i64 -> i64, i8 -> i8, ui8 -> ui8",
        },
        "aten::amin.out": {
            "aborts": "bf16 -> bf16, f16 -> f16, f32 -> f32, f64 -> f64, i1 -> i1, i16 -> i16, i32 -> i32, i64 -> i64, i8 -> i8, ui8 -> ui8",
        },
        "aten::bmm.out": {
            "fails": "i1 -> i1",
        },
        "aten::cat.out": {
            "fails": "bf16 -> bf16, f16 -> f16, f32 -> f32, f64 -> f64, i1 -> i1, i16 -> i16, i32 -> i32, i64 -> i64, i8 -> i8, ui8 -> ui8",
        },
        "aten::constant_pad_nd.out": {
            "fails": "bf16 -> bf16, f16 -> f16, f32 -> f32, f64 -> f64, i1 -> i1, i16 -> i16, i32 -> i32, i64 -> i64, i8 -> i8, ui8 -> ui8",
        },
        "aten::grid_sampler_2d.out": {
            "fails": "i1 -> i1",
        },
        "aten::pixel_unshuffle.out": {
            "fails": "bf16 -> bf16, f16 -> f16, f32 -> f32, f64 -> f64, i1 -> i1, i16 -> i16, i32 -> i32, i64 -> i64, i8 -> i8, ui8 -> ui8",
        },
    },
    "an empty tensor": {
        "aten::_pdist_forward.out": {
            "fails": "i1 -> i1, i16 -> i16, i32 -> i32, i64 -> i64, i8 -> i8, ui8 -> ui8",
        },
        "aten::bmm.out": {
            "fails": "i1 -> i1",
        },
        "aten::mm.out": {
            "fails": "i1 -> i1",
        },
    },
    "large numbers": {
        "aten::bitwise_left_shift.Tensor_out": {
            "differs": "i32 -> i32, i64 -> i64",
        },
        "aten::bitwise_right_shift.Tensor_out": {
            "differs": "i32 -> i32, i64 -> i64",
        },
        "aten::ceil.out": {
            "differs": "i32 -> i32, i64 -> i64",
        },
        "aten::div.Scalar_mode_out": {
            "differs": "i64 -> i64",
        },
        "aten::div.out_mode": {
            "differs": "i64 -> i64",
        },
        "aten::floor.out": {
            "differs": "i32 -> i32, i64 -> i64",
        },
        "aten::fmod.Scalar_out": {
            "differs": "i64 -> i64",
        },
        "aten::fmod.Tensor_out": {
            "differs": "i64 -> i64",
        },
        "aten::pow.Scalar_out": {
            "differs": "i32 -> i32, i64 -> i64",
        },
        "aten::pow.Tensor_Scalar_out": {
            "differs": "i32 -> i32, i64 -> i64",
        },
        "aten::pow.Tensor_Tensor_out": {
            "differs": "i16 -> i16, i32 -> i32, i64 -> i64, i8 -> i8, ui8 -> ui8",
        },
        "aten::remainder.Scalar_out": {
            "differs": "i16 -> i16, i32 -> i32, i64 -> i64, i8 -> i8",
        },
        "aten::remainder.Tensor_out": {
            "differs": "i16 -> i16, i32 -> i32, i64 -> i64, i8 -> i8",
        },
        "aten::sum.IntList_out": {
            "differs": "i64 -> i64",
        },
        "aten::trunc.out": {
            "differs": "i32 -> i32, i64 -> i64",
        },
    },
    "negative numbers": {
        "aten::bitwise_left_shift.Tensor_out": {
            "differs": "i32 -> i32, i64 -> i64",
        },
        "aten::remainder.Scalar_out": {
            "differs": "i16 -> i16, i32 -> i32, i64 -> i64, i8 -> i8",
        },
        "aten::remainder.Tensor_out": {
            "differs": "i16 -> i16, i32 -> i32, i64 -> i64, i8 -> i8",
        },
    },
    "rank 1": {
        "aten::linear.out": {
            "fails": "bf16 -> bf16, f16 -> f16, f32 -> f32, f64 -> f64, i16 -> i16, i32 -> i32, i64 -> i64, i8 -> i8, ui8 -> ui8",
        },
    },
    "rank 5": {
        "aten::convolution.out": {
            "fails": "bf16 -> bf16, f16 -> f16, f32 -> f32, f64 -> f64, i16 -> i16, i32 -> i32, i64 -> i64, i8 -> i8, ui8 -> ui8",
        },
    },
    "shapes that broadcast": {
        "aten::le.Tensor_out": {
            "differs": "i1 -> i1",
        },
    },
}
"""Situation → kernel → verdict → element types, beyond what usual calls refuse."""
