"""Operators that round compute, in the interpreter, the reference model's very bits."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from xdsl.dialects.builtin import DenseArrayBase, IntegerAttr, IntegerType

from stepwell.backends.tosa.emit import to_tosa
from stepwell.backends.tosa.reference_model import run_reference_model
from stepwell.dialects.tosa import generated as t
from stepwell.dialects.tosa.base import TosaOp
from stepwell.dialects.tosa.meaning import c_library
from stepwell.ir.dtypes import bf16, element_type, f16, f32, i32, torch_dtype
from stepwell.ir.types import tensor

from .graphs import bits, program_of_op

FLOATS = {"fp32": f32, "fp16": f16, "bf16": bf16}


def same_bits(cls: type[TosaOp], inputs: list[torch.Tensor], shape: list[int], **properties: Any):
    held = [tensor(x.shape, element_type(x.dtype)) for x in inputs]
    result = tensor(shape, element_type(inputs[0].dtype))
    program = program_of_op(cls, held, [result], **properties)
    (expected,) = run_reference_model(to_tosa(program), inputs)
    (found,) = program.run(*inputs)
    assert torch.equal(bits(found), bits(expected))


def arguments(name: str) -> torch.Tensor:
    """Every fp16 or bf16 number; of fp32, numbers of all sizes and the special ones."""
    if name != "fp32":
        every = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16)
        return every.view(torch_dtype(FLOATS[name]))
    special = [0.0, -0.0, torch.inf, -torch.inf, torch.nan, 1e-40, -1e-40, 88.8, -104.0, 3e38]
    scale = torch.exp2(torch.randint(-12, 6, (20000,)).float())
    return torch.cat([torch.randn(20000) * scale, torch.tensor(special)])


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize(
    ("cls", "takes"),
    [
        (t.ExpOp, None),
        (t.ErfOp, None),
        (t.TanhOp, None),
        (t.SigmoidOp, None),
        (t.RsqrtOp, torch.abs),
        (t.LogOp, torch.abs),
        (t.ReciprocalOp, None),
    ],
)
def test_functions_are_the_c_librarys(
    cls: type[TosaOp], takes: Callable[[torch.Tensor], torch.Tensor] | None, name: str
) -> None:
    x = arguments(name)
    x = takes(x) if takes else x
    same_bits(cls, [x], list(x.shape))


@pytest.mark.parametrize("cls", [t.SinOp, t.CosOp])
def test_trigonometric_functions_are_the_c_librarys(cls: type[TosaOp]) -> None:
    x = torch.randn(5000) * 100
    same_bits(cls, [x], [5000])


def test_a_power_is_the_exponential_of_a_product() -> None:
    same_bits(t.PowOp, [torch.rand(5000) * 10, torch.randn(5000) * 3], [5000])


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("cls", [t.ReduceSumOp, t.ReduceProductOp])
def test_a_sum_or_product_goes_from_first_to_last(cls: type[TosaOp], axis: int, name: str) -> None:
    x = torch.randn(40, 197).to(torch_dtype(FLOATS[name]))
    shape = [1 if i == axis else d for i, d in enumerate(x.shape)]
    same_bits(cls, [x], shape, axis=IntegerAttr(axis, i32))


@pytest.mark.parametrize("name", ["exp", "erf", "log", "sin", "tanh", "power"])
def test_a_parameter_is_a_tensor_with_elements(name: str) -> None:
    x = [torch.rand(5000) * 3] * (1 + (name == "power"))
    function = getattr(c_library, name)
    found = function(*map(torch.nn.Parameter, x))
    assert torch.equal(found.detach(), function(*x))


def test_a_matrix_product_goes_from_first_to_last() -> None:
    zero = torch.zeros(1)
    same_bits(
        t.MatMulOp, [torch.randn(2, 7, 197), torch.randn(2, 197, 9), zero, zero.clone()], [2, 7, 9]
    )


def i64s(*values: int) -> DenseArrayBase:
    return DenseArrayBase.from_list(IntegerType(64), list(values))


@pytest.mark.parametrize("cls", [t.Conv2dOp, t.DepthwiseConv2dOp])
def test_a_convolution_goes_over_rows_columns_and_channels(cls: type[TosaOp]) -> None:
    kernel = [8, 3, 2, 20] if cls is t.Conv2dOp else [3, 2, 20, 2]
    out = 8 if cls is t.Conv2dOp else 40
    inputs = [torch.randn(1, 9, 8, 20), torch.randn(kernel), torch.randn(out)]
    inputs[1].view(-1)[0] = torch.nan  # skipped where the tap falls on padding
    zeros = [torch.zeros(1), torch.zeros(1)]
    lists = {"pad": i64s(1, 1, 0, 1), "stride": i64s(2, 1), "dilation": i64s(1, 2)}
    same_bits(cls, [*inputs, *zeros], [1, 5, 7, out], acc_type=f32, **lists)
