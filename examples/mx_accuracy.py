"""An MX accuracy study: the error of each layer in each payload, then the choice of payloads within
a budget.

Run: python examples/mx_accuracy.py
"""

from __future__ import annotations

from collections import Counter

import torch

import stepwell

PAYLOADS = ("fp8e4m3", "fp8e5m2", "fp6e2m3", "fp6e3m2", "fp4e2m1", "mxint8")
BUDGETS = (0.1, 0.03, 0.01)


class Model(torch.nn.Module):
    """Two linear layers whose widths are multiples of the block size 32."""

    def __init__(self) -> None:
        super().__init__()
        self.up = torch.nn.Linear(64, 128)
        self.down = torch.nn.Linear(128, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """`[4, 64]` to `[4, 64]`, with a residual."""
        return x + self.down(torch.nn.functional.gelu(self.up(x)))


def main() -> None:
    """Measure layers, convert to each payload, then let error budgets choose."""
    torch.manual_seed(0)
    samples = [(torch.randn(4, 64),) for _ in range(3)]
    model = Model().eval()
    program = stepwell.from_exported_program(torch.export.export(model, samples[0]))
    print("each layer alone:")
    print(stepwell.mx_accuracy(program, samples))

    print("\nthe whole model:")
    expected = program.run(*samples[0])[0]
    errors: dict[str, float] = {}
    for payload in PAYLOADS:
        given = stepwell.to_mxfp(program, payload).run(*samples[0])[0]
        errors[payload] = ((given - expected).norm() / expected.norm()).item()
        print(f"{payload:8} {errors[payload]:8.3%}")
    assert errors["fp8e4m3"] < errors["fp4e2m1"], "more bits, smaller error"

    print("\nthe smallest payloads within a budget:")
    for budget in BUDGETS:
        chosen = stepwell.to_mxfp(model, error_budget=budget, samples=samples)
        layers = [m for m in chosen.modules() if hasattr(m, "payload")]
        print(f"{budget:6.1%}  {dict(Counter(str(layer.payload) for layer in layers))}")
        with torch.no_grad():
            moved = (chosen(*samples[0]) - expected).norm() / expected.norm()
        assert moved <= budget, "the budget holds on the samples"


if __name__ == "__main__":
    main()
