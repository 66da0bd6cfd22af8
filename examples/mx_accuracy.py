"""An MX accuracy study: one model, every block-scaled payload, the error of each.

Run: python examples/mx_accuracy.py
"""

from __future__ import annotations

import torch

import stepwell

PAYLOADS = ("fp8e4m3", "fp8e5m2", "fp6e2m3", "fp6e3m2", "fp4e2m1", "mxint8")


class Model(torch.nn.Module):
    """Two linear layers whose widths are whole blocks of 32."""

    def __init__(self) -> None:
        super().__init__()
        self.up = torch.nn.Linear(64, 128)
        self.down = torch.nn.Linear(128, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """`[4, 64]` to `[4, 64]`, with a residual."""
        return x + self.down(torch.nn.functional.gelu(self.up(x)))


def main() -> None:
    """Convert to each payload, interpret, compare with the float model."""
    torch.manual_seed(0)
    inputs = (torch.randn(4, 64),)
    program = stepwell.from_exported_program(torch.export.export(Model().eval(), inputs))
    expected = program.run(*inputs)[0]
    errors: dict[str, float] = {}
    for payload in PAYLOADS:
        converted = stepwell.to_mxfp(program, payload)
        given = converted.run(*inputs)[0]
        errors[payload] = ((given - expected).norm() / expected.norm()).item()
        print(f"{payload:8} {errors[payload]:8.3%}")
    assert errors["fp8e4m3"] < errors["fp4e2m1"], "more bits, smaller error"


if __name__ == "__main__":
    main()
