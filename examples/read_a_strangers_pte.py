"""Read a third-party .pte: convert a file that ExecuTorch's own flow wrote back to a program.

Here the file comes from ExecuTorch's XNNPACK partitioner; any `.pte` can be read:

    stepwell show stranger.pte --summary
    stepwell show stranger.pte --html stranger.html

Run: python examples/read_a_strangers_pte.py
"""

from __future__ import annotations

import torch

import stepwell
from stepwell.inspection.viewer.summary import summarize


class Model(torch.nn.Module):
    """A small classifier; XNNPACK has no atan, so a kernel stays outside the delegate."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 8, 3, stride=2)
        self.head = torch.nn.Linear(8, 5)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Image `[1, 3, 16, 16]` to running sums of 5 scores."""
        seen = torch.relu(self.conv(image)).mean((2, 3))
        return torch.atan(self.head(seen))


def strangers_pte(model: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> bytes:
    """Write a file with ExecuTorch's stock flow, without stepwell."""
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower

    exported = torch.export.export(model, inputs)
    edge = to_edge_transform_and_lower(exported, partitioner=[XnnpackPartitioner()])
    return bytes(edge.to_executorch().buffer)


def main() -> None:
    """Write, read, print, run."""
    torch.manual_seed(0)
    model, inputs = Model().eval(), (torch.randn(1, 3, 16, 16),)
    data = strangers_pte(model, inputs)
    program = stepwell.read_pte(data)
    program.verify()
    print(program)
    print(summarize(program))
    with torch.no_grad():
        expected = model(*inputs)
    read, run = program.run(*inputs)[0], stepwell.run_pte(data, inputs)[0]
    print("largest difference from eager, as read:", (read - expected).abs().max().item())
    print("and on the ExecuTorch runtime:         ", (run - expected).abs().max().item())
    assert torch.allclose(read, expected, atol=1e-5) and torch.allclose(run, expected, atol=1e-5)


if __name__ == "__main__":
    main()
