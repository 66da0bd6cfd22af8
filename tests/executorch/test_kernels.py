"""The kernel table is what the installed runtime has, and pairs as ExecuTorch pairs them."""

import sys
from pathlib import Path

import pytest
import torch

from stepwell.backends.executorch.kernels import kernel_tables as kernels
from stepwell.backends.executorch.kernels.signatures import Input, Output

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

from generate_kernels import generate
from kernel_trials import out_variant


def test_the_checked_in_kernel_table_is_what_the_installed_runtime_says() -> None:
    assert kernels.STOCK.read_text(encoding="utf-8") == generate()


def test_the_wheels_runtime_has_240_kernels_and_19_quantized_ones() -> None:
    assert (len(kernels.RUNTIME), len(kernels.QUANTIZED)) == (240, 19)


def test_every_pair_is_the_one_executorchs_own_to_out_variant_finds() -> None:
    from executorch.exir.operator.convert import to_out_variant

    compared = 0
    for name in sorted(torch._C._dispatch_get_all_op_names()):
        if not name.startswith("aten::"):
            continue
        base, _, overload = name.partition(".")
        op = getattr(torch.ops.aten, base.removeprefix("aten::"))
        overload = overload or "default"
        if overload not in op.overloads() or getattr(op, overload)._schema.is_mutable:
            continue
        try:
            stock, _ = to_out_variant(getattr(op, overload))
        except (RuntimeError, AssertionError, AttributeError):
            continue  # It has no pair for this operator, or no schema.
        ours = out_variant(f"aten.{base.removeprefix('aten::')}.{overload}")
        kernel = f"{stock._schema.name}.{stock._schema.overload_name}"
        if kernel not in kernels.RUNTIME:
            assert ours is None or ours.schema.operator.endswith("_copy"), name
            continue
        assert ours is not None and ours.kernel == kernel, name
        compared += 1
    assert compared > 150


@pytest.mark.parametrize(
    ("op", "kernel"),
    [
        ("aten.view.default", "aten::view_copy.out"),
        ("aten._unsafe_view.default", "aten::view_copy.out"),
        ("aten.reshape.default", "aten::view_copy.out"),
        ("aten.transpose.int", "aten::transpose_copy.int_out"),
        ("aten.split.Tensor", "aten::split_copy.Tensor_out"),
        ("aten.max.dim", "aten::max.dim_max"),
        ("aten._to_copy.default", "aten::_to_copy.out"),
        ("aten.mean.dim", "aten::mean.out"),
    ],
)
def test_views_and_multi_result_operators_find_their_kernels(op: str, kernel: str) -> None:
    signature = out_variant(op)
    assert signature is not None and signature.kernel == kernel


@pytest.mark.parametrize(
    "op", ["aten.conv2d.default", "aten.layer_norm.default", "aten.sort.default"]
)
def test_an_operator_without_a_kernel_finds_none(op: str) -> None:
    assert out_variant(op) is None


def test_a_kernels_arguments_follow_its_own_order_with_outputs_in_place() -> None:
    signature = out_variant("aten.native_layer_norm.default")
    assert signature is not None
    assert signature.arguments == (
        Input("input"), Input("normalized_shape"), Input("weight"), Input("bias"), Input("eps"),
        Output(0), Output(1), Output(2),
    )  # fmt: skip
