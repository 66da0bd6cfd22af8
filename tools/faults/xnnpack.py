"""ExecuTorch's XNNPACK backend, and XNNPACK in it."""

import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import to_edge_transform_and_lower
from executorch.runtime import Runtime
from tools.faults.calling import Of
from torch import Tensor
from torch.nn import functional as F


def lowered(module: torch.nn.Module, inputs: tuple[Tensor, ...]) -> bytes:
    """Lower with the usual flow and return the `.pte`."""
    exported = torch.export.export(module.eval(), inputs)
    edge = to_edge_transform_and_lower(exported, partitioner=[XnnpackPartitioner()])
    return edge.to_executorch().buffer


def same(module: torch.nn.Module, *inputs: Tensor, at_most: float = 1e-5) -> None:
    """Assert that the program computes eager's result."""
    with torch.no_grad():
        wanted = module.eval()(*inputs)
    program = Runtime.get().load_program(lowered(module, inputs))
    result = program.load_method("forward").execute([x.clone() for x in inputs])[0]
    assert torch.allclose(result, wanted, at_most, at_most, equal_nan=True), (
        f"{result.flatten()[:2].tolist()} should be {wanted.flatten()[:2].tolist()}"
    )


INF, NAN = float("inf"), float("nan")


def gelu_by_tanh() -> None:
    """`gelu(approximate="tanh")` is run as the exact gelu, without a word."""
    same(Of(lambda x: F.gelu(x, approximate="tanh")), torch.linspace(-4, 4, 64))


def root_of_infinity() -> None:
    """`sqrt` of infinity is NaN."""
    same(Of(torch.sqrt), torch.tensor([INF, 4.0] * 8))


def inverse_root_of_zero() -> None:
    """`rsqrt` of 0 is NaN, where it is infinity."""
    same(Of(torch.rsqrt), torch.tensor([0.0, 4.0] * 8))


def sigmoid_of_a_large_number() -> None:
    """`sigmoid` of -1e31 is NaN, where it is 0."""
    same(Of(torch.sigmoid), torch.tensor([-1e31, -1e38, 1e31, 1e38] * 4))


def exponential_of_nan() -> None:
    """`exp` of NaN is a number."""
    same(Of(torch.exp), torch.tensor([NAN, 1.0] * 8))


def maximum_of_nan() -> None:
    """`maximum` of a NaN and a number is the number."""
    same(Of(torch.maximum), torch.tensor([NAN] * 16), torch.ones(16))


def pool_of_nan() -> None:
    """`max_pool2d` of nothing but NaN is -inf."""
    same(Of(lambda x: F.max_pool2d(x, 2)), torch.full((1, 1, 4, 4), NAN))


def slope_for_each_channel_of_a_line() -> None:
    """`prelu` with a slope for each channel of a tensor of rank 3 ends the lowering."""
    same(torch.nn.PReLU(4), -torch.rand(1, 4, 6))


def linear_of_halves_with_nan() -> None:
    """A linear layer of halves makes -inf of NaN."""
    layer = torch.nn.Linear(8, 4).half()
    same(layer, torch.full((2, 8), NAN).half())
