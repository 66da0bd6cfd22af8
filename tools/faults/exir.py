"""ExecuTorch's export, memory plan and runtime."""

import torch
from executorch.exir import to_edge, to_edge_transform_and_lower
from executorch.runtime import Runtime
from tools.faults.calling import Of
from torch import Tensor
from torch.export import export


class Counter(torch.nn.Module):
    """Adds to a state that starts with ones."""

    def __init__(self, begin: float = 1.0) -> None:
        super().__init__()
        self.register_buffer("state", torch.full((4,), begin))

    def forward(self, x: Tensor) -> Tensor:
        self.state.add_(x)
        return self.state.clone()


def called(data: bytes, *inputs: Tensor, method: str = "forward") -> Tensor:
    """Return the first result of a program."""
    return Runtime.get().load_program(data).load_method(method).execute(list(inputs))[0]


def state_that_does_not_begin_with_zeros() -> None:
    """A mutable buffer begins with zeros, whatever the module's holds."""
    x = torch.ones(4)
    result = called(to_edge(export(Counter(), (x,))).to_executorch().buffer, x)
    assert torch.equal(result, torch.full((4,), 2.0)), f"{result.tolist()} should be twos"


def rows_for_channels_last() -> None:
    """A program that says channels-last takes a contiguous input, and reads it wrongly."""
    torch.manual_seed(0)
    module = torch.nn.Conv2d(3, 2, 3).to(memory_format=torch.channels_last).eval()
    x = torch.randn(1, 3, 6, 6)
    given = x.to(memory_format=torch.channels_last)
    data = to_edge_transform_and_lower(export(module, (given,))).to_executorch().buffer
    try:
        result = called(data, x)
    except RuntimeError:
        return  # Refusing it is correct too.
    assert torch.allclose(result, module(x), 1e-4, 1e-4), (
        f"off by {float((result - module(x)).abs().max()):.3g}"
    )


def bytes_that_are_loaded_twice() -> None:
    """`to_executorch` changes the program that it is called on."""
    x = torch.randn(4)
    edge = to_edge(export(Of(lambda x: torch.relu(x) + 1.0), (x,)))
    before = str(edge.exported_program().graph)
    edge.to_executorch()
    assert str(edge.exported_program().graph) == before, "the edge program is another one now"
