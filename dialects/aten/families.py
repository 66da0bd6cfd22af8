"""The families of ATen's operators; `stepwell.ir.declared.families` defines them.

An overload is named as in its schema, without `.default`. Overloads that PyTorch tags `pointwise`
are elementwise (`registry.define`); those listed here have no tag, or belong to a narrower family.
`tests/aten/test_families.py` compares `elementwise` and `random` with PyTorch's tags (`torch.Tag`)
and runs the data movements.
"""

from __future__ import annotations

from stepwell.dialects.aten.axes import elementwise_axes, normalization_axes
from stepwell.ir.axes.maps import maps
from stepwell.ir.declared.families import Family, belong

_OF_SHAPE = "layer_norm native_layer_norm rms_norm _fused_rms_norm"
_ROWS: dict[Family, str] = {
    "distribution": "softmax.int _softmax",
    "probabilities": "_safe_softmax",
    "normalization": f"log_softmax.int _log_softmax {_OF_SHAPE}",
}
"""Normalizations along the axis `dim`, or along the trailing axes of `normalized_shape`."""
_TABLE: dict[Family, str] = {
    "reshape": """
        view _unsafe_view _reshape_copy reshape view_as reshape_as flatten.using_ints
        unflatten.int ravel squeeze squeeze.dim squeeze.dims unsqueeze alias detach lift
        lift_fresh clone contiguous positive dropout feature_dropout alpha_dropout
        feature_alpha_dropout""",
    "permutation": """
        permute transpose.int t numpy_T mT matrix_H adjoint swapaxes swapdims movedim.int
        movedim.intlist moveaxis.int moveaxis.intlist""",
    "rearrangement": """
        flip fliplr flipud roll rot90 pixel_shuffle pixel_unshuffle channel_shuffle""",
    "repetition": "expand expand_as broadcast_to repeat tile repeat_interleave.self_int",
    "part": """
        slice.Tensor select.int narrow split.Tensor split_with_sizes unsafe_split.Tensor
        unsafe_split_with_sizes chunk unsafe_chunk tensor_split.sections tensor_split.indices
        unbind.int diagonal""",
    "join": "cat concat concatenate stack hstack vstack dstack column_stack",
    "lookup": "index_select gather index.Tensor embedding take take_along_dim",
    "padding": "constant_pad_nd",
    "cast": "_to_copy to.dtype to.dtype_layout to.device to.other type_as",
    "comparison": """
        eq.Scalar eq.Tensor ne.Scalar ne.Tensor lt.Scalar lt.Tensor le.Scalar le.Tensor gt.Scalar
        gt.Tensor ge.Scalar ge.Tensor not_equal.Scalar not_equal.Tensor less.Scalar less.Tensor
        less_equal.Scalar less_equal.Tensor greater.Scalar greater.Tensor greater_equal.Scalar
        greater_equal.Tensor isclose isfinite isinf isnan isneginf isposinf logical_and
        logical_not logical_or logical_xor signbit""",
    "choice": """
        where.self where.ScalarOther where.ScalarSelf where.Scalar masked_fill.Scalar
        masked_fill.Tensor""",
    "elementwise": """
        __and__.Scalar __and__.Tensor __or__.Scalar __or__.Tensor _prelu_kernel absolute
        arccos arccosh arcsin arcsinh arctan arctan2 arctanh divide.Scalar divide.Tensor fix
        floor_divide floor_divide.Scalar hardswish log_sigmoid multiply.Scalar
        multiply.Tensor negative rsub.Tensor subtract.Scalar subtract.Tensor
        true_divide.Scalar""",
    "reduction": """
        sum sum.dim_IntList mean mean.dim prod prod.dim_int amax amin max max.dim min min.dim
        argmax argmin any any.dim any.dims all all.dim all.dims std std.dim std.correction var
        var.dim var.correction var_mean.dim var_mean.correction std_mean.dim std_mean.correction
        logsumexp norm.Scalar norm.ScalarOpt_dim linalg_vector_norm aminmax median median.dim
        nansum nanmean count_nonzero count_nonzero.dim_IntList""",
    "product": """
        mm bmm matmul baddbmm addmm addmv mv dot linear einsum convolution _convolution conv1d
        conv2d conv3d conv1d.padding conv2d.padding conv3d.padding conv_transpose1d
        conv_transpose2d.input conv_transpose3d.input outer tensordot""",
    "normalization": """
        group_norm native_group_norm batch_norm native_batch_norm
        _native_batch_norm_legit_no_training instance_norm""",
    "factory": """
        arange arange.start arange.start_step eye eye.m full full_like linspace logspace new_full
        new_ones new_zeros ones ones_like scalar_tensor tril_indices triu_indices zeros
        zeros_like""",
    "uninitialized": """
        empty.memory_format empty_like empty_permuted empty_strided new_empty new_empty_strided""",
    "random": """
        bernoulli bernoulli.Tensor bernoulli.p binomial cauchy dropout alpha_dropout
        feature_dropout feature_alpha_dropout exponential geometric log_normal multinomial
        native_dropout normal.Tensor_Tensor normal.Tensor_float normal.float_Tensor
        normal.float_float normal_functional poisson rand rand_like randint randint.low
        randint_like randint_like.Tensor randint_like.low_dtype randn randn_like random
        random.from random.to randperm rrelu rrelu_with_noise_functional uniform""",
    "write": """
        as_strided_scatter diagonal_scatter select_scatter slice_scatter index_add index_copy
        index_fill.int_Scalar index_fill.int_Tensor index_put index_reduce masked_scatter put
        scatter.reduce scatter.src scatter.value scatter.value_reduce scatter_add
        scatter_reduce.two copy""",
}
_COPIED = frozenset(
    """alias detach diagonal expand lift_fresh narrow permute select slice split split_with_sizes
    squeeze t transpose unbind unsqueeze view""".split()
)
"""Views with a copying variant in torch."""


def _name(overload: str, form: str = "") -> str:
    operator, _, spelled = overload.partition(".")
    return f"aten.{operator}{form}.{spelled or 'default'}"


for _family, _overloads in _ROWS.items():
    for _overload in _overloads.split():
        belong(_family, _name(_overload))
        maps(_name(_overload))(normalization_axes)
for _family, _overloads in _TABLE.items():
    for _overload in _overloads.split():
        belong(_family, _name(_overload))
        if _family == "elementwise":
            maps(_name(_overload))(elementwise_axes)
        if _overload.partition(".")[0] in _COPIED:
            belong(_family, _name(_overload, "_copy"))
ROWS = tuple(_name(overload) for overloads in _ROWS.values() for overload in overloads.split())
"""Normalizations along the axis `dim`, or along trailing axes."""
NORMS = tuple(map(_name, _OF_SHAPE.split()))
"""Norms over the trailing axes of `normalized_shape`, with a weight for each element of it."""
belong("reshape", "dim_order_ops._clone_dim_order.default")
belong("cast", "dim_order_ops._to_dim_order_copy.default")
