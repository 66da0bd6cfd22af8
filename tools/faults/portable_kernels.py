"""ExecuTorch, portable kernels."""

from collections.abc import Callable
from typing import Any

import torch
from executorch.exir import EdgeCompileConfig, to_edge
from executorch.runtime import Runtime
from tools.faults.calling import Of
from torch import Tensor


def same(function: Callable[..., Any], *inputs: Tensor, at_most: float = 0.0) -> None:
    """Assert that a program of portable kernels computes eager's result."""
    exported = torch.export.export(Of(function), inputs)
    edge = to_edge(exported, compile_config=EdgeCompileConfig(_check_ir_validity=False))
    program = Runtime.get().load_program(edge.to_executorch().buffer)
    result = program.load_method("forward").execute(list(inputs))[0]
    wanted = function(*inputs)
    off = (result.double() - wanted.double()).abs()
    assert torch.all(torch.isclose(result.double(), wanted.double(), 0, at_most, equal_nan=True)), (
        f"{result.flatten()[:2].tolist()} should be {wanted.flatten()[:2].tolist()}, off by "
        f"{float(off[~off.isnan()].max()) if not off.isnan().all() else 'NaN'}"
    )


def remainder_of_a_negative_integer() -> None:
    """`remainder` of integers is C's, of the dividend's sign; PyTorch's has the divisor's."""
    same(lambda x: torch.remainder(x, 3), torch.tensor([-5, -1, 5]))


def sum_of_large_int64() -> None:
    """`sum` of int64 is added up in float32 and loses every bit beyond 24."""
    same(lambda x: x.sum(1), torch.tensor([[2**40 + 1, 3]]))


def sum_of_float64() -> None:
    """`sum` of float64 is added up in float32."""
    same(lambda x: x.sum(1), torch.tensor([[1.0, 1e-10]], dtype=torch.float64), at_most=1e-15)


def remainder_of_float64() -> None:
    """`remainder` of float64 is computed in float32."""
    same(lambda x: torch.remainder(x, 0.7), torch.tensor([1000.1]).double(), at_most=1e-12)


def floor_of_large_integers() -> None:
    """`floor`, `ceil` and `trunc` of integers go through float32: 2^24 + 1 is rounded."""
    same(torch.floor, torch.tensor([2**24 + 1], dtype=torch.int32))


def fmod_of_large_int64() -> None:
    """`fmod` of int64 goes through double precision."""
    same(lambda x: torch.fmod(x, 3), torch.tensor([2**60 + 1]))


def power_of_integers() -> None:
    """`pow` of integers goes through double precision and does not wrap around."""
    same(lambda x: x**11, torch.tensor([1001], dtype=torch.int64))


def shift_by_all_bits() -> None:
    """A shift by as many bits as there are is C's undefined one: `1 << 64` is 1, not 0."""
    same(lambda x, n: torch.bitwise_left_shift(x, n), torch.tensor([1]), torch.tensor([64]))


def byte_image_shrunk_with_antialiasing() -> None:
    """An antialiased resize of bytes truncates."""
    torch.manual_seed(0)
    image = torch.randint(0, 256, (1, 1, 8, 8), dtype=torch.uint8)

    def shrink(x: Tensor) -> Tensor:
        return torch.nn.functional.interpolate(x, (5, 3), mode="bilinear", antialias=True)

    same(shrink, image, at_most=1.0)


def greatest_of_an_empty_row_set() -> None:
    """`amax` with an empty result ends the process."""
    same(lambda x: torch.amax(x, 1), torch.zeros(0, 3))


def sum_of_a_scalar() -> None:
    """`sum` over the axis of a tensor without axes ends the process."""
    same(lambda x: torch.sum(x, 0), torch.tensor(2.0))


def unfold_of_a_scalar() -> None:
    """`unfold` of a tensor without axes ends the process."""
    same(lambda x: x.unfold(0, 1, 1).clone(), torch.tensor(2.0))


def quantized_to_bfloat16() -> None:
    """`dequantize_per_tensor` to bfloat16 ends the process."""
    import executorch.kernels.quantized  # noqa: F401  (registers the kernels)

    def dequantized(x: Tensor) -> Tensor:
        return torch.ops.quantized_decomposed.dequantize_per_tensor.default(
            x, 0.5, 0, -128, 127, torch.int8, out_dtype=torch.bfloat16
        )

    same(dequantized, torch.tensor([1, 2], dtype=torch.int8))


def layer_norm_of_float64() -> None:
    """`native_layer_norm` of float64 is computed in float32."""
    torch.manual_seed(0)
    x = torch.randn(2, 8, dtype=torch.float64)
    same(lambda x: torch.nn.functional.layer_norm(x, (8,)), x, at_most=1e-12)
