"""Generate `operators.txt`, the schema of every operator that rewrites and targets name, and
`operators.pyi`, which declares the classes that `operators.py` creates from it.

Run as `python -m stepwell.dialects.aten.generate`; a test regenerates and compares. The source is
the schema that torch registers. The table contains ATen's core operators (tagged `torch.Tag.core`),
the composite ones of a program before decomposition, those that lowering and edge programs add, and
those of the quantization libraries. Every other functional overload has a class of the same kind,
created on first use (`registry.find`).
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from stepwell.dialects.aten.registry import LIBRARIES, class_name, is_elementwise, is_pure
from stepwell.dialects.aten.schema import Argument, Schema, parse_schema
from stepwell.ir.compat.torch.torch_private import operator_names, schema_of
from stepwell.ir.diagnostics import ParseFailure

FOLDER = Path(__file__).parent

PACKETS = tuple(
    """
    __and__ __or__ __xor__ _adaptive_avg_pool2d _adaptive_avg_pool3d _assert_scalar
    _assert_tensor_metadata _batch_norm_no_update _convolution _fused_rms_norm
    _local_scalar_dense _log_softmax _native_batch_norm_legit_no_training _prelu_kernel
    _reshape_copy _safe_softmax _softmax _to_copy _unsafe_view abs absolute acos
    adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool2d add addcdiv
    addcmul addmm addmv addr adjoint alias alias_copy all alpha_dropout aminmax any arange
    arccos arctan argmax argmin argsort as_strided as_strided_copy asin atan atan2 avg_pool1d
    avg_pool2d avg_pool3d baddbmm batch_norm bernoulli bitwise_and bitwise_not bitwise_or
    bitwise_xor bmm broadcast_tensors broadcast_to bucketize cat cdist ceil celu channel_shuffle
    chunk clamp clamp_max clamp_min clip clone col2im concat concatenate constant_pad_nd
    contiguous conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d
    convolution copy cos cosh cosine_similarity cross_entropy_loss cudnn_batch_norm cumprod
    cumsum deg2rad detach detach_copy diag diagonal diagonal_copy diff div divide dot dropout
    einsum elu embedding embedding_bag empty empty_like eq erf erfc erfinv exp exp2 expand
    expand_as expand_copy expm1 eye feature_alpha_dropout feature_dropout fill flatten flip
    floor floor_divide fmod frac full full_like gather ge gelu glu greater greater_equal
    grid_sampler_2d group_norm gru gt hardshrink hardsigmoid hardswish hardtanh
    hinge_embedding_loss hstack huber_loss hypot im2col index index_add index_copy index_fill
    index_put index_select instance_norm is_nonzero isclose isfinite isinf isnan item kthvalue
    layer_norm le leaky_relu lerp less less_equal lgamma lift_fresh lift_fresh_copy linalg_cross
    linalg_matrix_norm linalg_norm linalg_vector_norm linear linspace log log10 log1p log2
    log_sigmoid log_softmax logaddexp logical_and logical_not logical_or logical_xor logit
    logsumexp lstm lt mT masked_fill masked_scatter masked_select matmul matrix_exp max
    max_pool1d max_pool2d max_pool2d_with_indices max_pool3d max_pool3d_with_indices maximum
    mean median meshgrid min minimum miopen_batch_norm mish mm moveaxis movedim mse_loss mul
    multi_head_attention_forward multinomial multiply mv nan_to_num narrow narrow_copy
    native_batch_norm native_dropout native_group_norm native_layer_norm ne neg negative
    new_empty new_full new_ones new_zeros nll_loss nonzero norm normal not_equal numel numpy_T
    one_hot ones ones_like outer pad permute permute_copy pixel_shuffle pixel_unshuffle pow
    prelu prod rad2deg rand rand_like randint randn randn_like ravel reciprocal reflection_pad1d
    reflection_pad2d reflection_pad3d relu relu6 remainder renorm repeat repeat_interleave
    replication_pad1d replication_pad2d replication_pad3d reshape reshape_as resolve_conj
    resolve_neg rms_norm rnn_tanh roll rot90 round rrelu rsqrt rsub scalar_tensor
    scaled_dot_product_attention scatter scatter_add scatter_reduce searchsorted select
    select_copy select_scatter selu sigmoid sign silu sin sinc sinh slice slice_copy
    slice_scatter smooth_l1_loss soft_margin_loss softmax softplus softshrink sort split
    split_copy split_with_sizes split_with_sizes_copy sqrt square squeeze squeeze_copy stack std
    std_mean sub subtract sum swapaxes swapdims sym_constrain_range sym_constrain_range_for_size
    sym_numel sym_size sym_storage_offset sym_stride t t_copy take_along_dim tan tanh
    tensor_split threshold tile to topk trace transpose transpose_copy tril triu true_divide
    trunc type_as unbind unbind_copy unflatten unfold unfold_copy unsafe_chunk unsafe_split
    unsafe_split_with_sizes unsqueeze unsqueeze_copy upsample_bicubic2d upsample_bilinear2d
    upsample_linear1d upsample_nearest1d upsample_nearest2d upsample_nearest3d
    upsample_trilinear3d var var_mean vdot view view_as view_as_complex view_as_real view_copy
    vstack where xlogy zeros zeros_like
    """.split()
)
"""Operators of `aten`, with all functional overloads, in addition to those tagged core."""

LIBRARY_OPERATORS: dict[str, tuple[str, ...]] = {
    "dim_order_ops": ("_clone_dim_order", "_empty_dim_order", "_to_dim_order_copy"),
    "quantized_decomposed": tuple(
        """
        _choose_qparams_per_token_asymmetric_impl add add_relu choose_qparams
        choose_qparams_per_token choose_qparams_per_token_asymmetric choose_qparams_symmetric
        convert_element_type dequantize_per_channel dequantize_per_channel_group
        dequantize_per_tensor dequantize_per_token embedding_2bit embedding_4bit embedding_byte
        fake_quant_per_channel mixed_linear mixed_mm quantize_per_channel
        quantize_per_channel_group quantize_per_tensor quantize_per_token
        """.split()
    ),
    "torchao": tuple(
        """
        choose_qparams_affine choose_scale_float8 dequantize_affine
        dequantize_affine_float8_non_decomposed mx_fp8_bf16 quantize_affine
        quantize_affine_float8_non_decomposed
        """.split()
    ),
}
"""Operators of other libraries: PT2E quantization, torchao's affine, float8 and MX, edge."""

_STUB = '''"""Generated by `python -m stepwell.dialects.aten.generate`; do not edit."""

from xdsl.ir import Attribute, OpResult
from xdsl.irdl import Operand, OptOperand, VarOperand, VarOpResult

from stepwell.dialects.aten.op import SchemaOp

OPERATORS: tuple[type[SchemaOp], ...]
'''


def listed_overloads() -> Iterator[tuple[Schema, str]]:
    """Yield every overload of the table, and the notes on its line, ordered by name."""
    found: dict[str, tuple[Schema, str]] = {}
    registered = {
        n.split("::")[1].split(".")[0] for n in operator_names() if n.startswith("aten::")
    }
    for name in sorted(registered):
        for schema, overload in _functional("aten", name):
            if name in PACKETS or torch.Tag.core in overload.tags:
                found[schema.op_name] = schema, _notes(overload)
    for namespace, names in LIBRARY_OPERATORS.items():
        importlib.import_module(LIBRARIES[namespace])
        for name in names:
            for schema, overload in _functional(namespace, name):
                found[schema.op_name] = schema, _notes(overload)
    for name in sorted(found):
        yield found[name]


def _notes(overload: Any) -> str:
    notes = ["impure"] * (not is_pure(overload)) + ["elementwise"] * is_elementwise(overload)
    return f" # {' '.join(notes)}" if notes else ""


def _functional(namespace: str, name: str) -> Iterator[tuple[Schema, Any]]:
    """Yield the overloads of an operator that write to no argument and whose types
    occur in graphs.
    """
    packet = getattr(getattr(torch.ops, namespace), name)
    if not callable(getattr(packet, "overloads", None)):
        return
    for spelled in packet.overloads():
        overload = getattr(packet, spelled)
        try:
            schema = parse_schema(str(schema_of(overload)))
        except ParseFailure:
            continue  # No exported graph has names of dimensions or TorchScript's containers.
        kinds = [item.type for item in (*schema.arguments, *schema.returns)]
        on_tensors = any(kind.is_tensor for kind in kinds) or name.startswith(("_assert", "sym_"))
        if on_tensors and not schema.is_mutable and "generator" not in spelled:
            yield schema, overload


def render() -> dict[str, str]:
    """Render the table and its stub: file name → text."""
    listed = list(listed_overloads())
    lines = ["# Generated by `python -m stepwell.dialects.aten.generate`; do not edit."]
    lines += [f"{schema.text}{notes}" for schema, notes in listed]
    names = "".join(f'    "{class_name(schema)}",\n' for schema, _ in listed)
    classes = "".join(_class(schema) for schema, _ in listed)
    return {
        "operators.txt": "\n".join(lines) + "\n",
        "operators.pyi": f"{_STUB}\n__all__ = [\n{names}]\n{classes}",
    }


def _class(schema: Schema) -> str:
    """Declare the fields that `registry.define` creates, with the types that xDSL gives them."""
    fields = [field for argument in schema.arguments for field in _fields(argument)]
    fields += ["dynamic: VarOperand"] * schema.takes_runtime_scalars
    for index, returned in enumerate(schema.returns):
        name = "result" if len(schema.returns) == 1 else f"result_{index}"
        type_ = "VarOpResult" if returned.type.is_list else "OpResult[Attribute]"
        fields.append(f"{name}: {type_}")
    body = "".join(f"    {field}\n" for field in fields)
    return f'\nclass {class_name(schema)}(SchemaOp):\n    """{schema.text}"""\n\n{body}'


def _fields(argument: Argument) -> Iterator[str]:
    if not argument.type.is_tensor:
        yield f"{argument.field}: Attribute | None"
    elif argument.type.is_list:
        yield f"{argument.field}: VarOperand"
        yield f"{argument.name}_present: Attribute | None"
    else:
        yield f"{argument.field}: {'OptOperand' if argument.type.nullable else 'Operand'}"


def main() -> int:
    """Write both files."""
    for name, text in render().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
