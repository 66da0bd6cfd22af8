"""Weights in files of their own: one program and one base, and an adapter for each task."""

import copy
from typing import Any

import pytest
import torch

import stepwell
from stepwell.backends.executorch.running.runner import run_pte
from stepwell.quantization.quantizers import find_quantizer

X = torch.randn(3, 32, generator=torch.Generator().manual_seed(1))
FILES = {"adapter": "*lora_*", "base": "*"}


class Adapted(torch.nn.Module):
    """A layer behind a norm with a gain, and what an adapter adds to it."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.RMSNorm(32)
        self.base = torch.nn.Linear(32, 48, bias=False)
        self.lora_a = torch.nn.Linear(32, 4, bias=False)
        self.lora_b = torch.nn.Linear(4, 48, bias=False)
        self.shift = torch.nn.Parameter(torch.randn(48))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norm(x)
        return self.base(x) + 2.0 * self.lora_b(self.lora_a(x)) + self.shift


def adapted() -> tuple[torch.nn.Module, torch.nn.Module]:
    """The same base with two adapters."""
    torch.manual_seed(0)
    one: Any = Adapted().eval()
    torch.nn.init.normal_(one.norm.weight, 1.0, 0.1)
    other = copy.deepcopy(one)
    for name, parameter in other.named_parameters():
        if "lora_" in name:
            torch.nn.init.normal_(parameter)
    return one, other


def lowered(model: torch.nn.Module) -> stepwell.Lowered:
    return stepwell.lower(torch.export.export(model, (X,)), "xnnpack")


def test_adapters_are_exchanged_under_one_program_and_one_base() -> None:
    one, other = adapted()
    made = [lowered(model).to_pte_and_ptds(FILES) for model in (one, other)]
    (pte, files), (same_pte, other_files) = made
    assert pte == same_pte
    assert files["base"] == other_files["base"]
    assert files["adapter"] != other_files["adapter"]
    for model, held in ((one, files), (other, other_files)):
        external = stepwell.join_ptds([held["adapter"], files["base"]])
        expected = model(X).detach()
        found = run_pte(pte, [X], external=external)[0]
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
        read = stepwell.read_pte(pte, external=external).run(X)[0]
        torch.testing.assert_close(read, expected, rtol=1e-4, atol=1e-4)


def test_what_fits_no_pattern_stays_in_the_program() -> None:
    one, other = adapted()
    pte, _ = lowered(one).to_pte_and_ptds({"adapter": "*lora_*"})
    _, files = lowered(other).to_pte_and_ptds({"adapter": "*lora_*"})
    assert len(pte) > 4 * 32 * 48
    found = run_pte(pte, [X], external=files["adapter"])[0]
    torch.testing.assert_close(found, other(X).detach(), rtol=1e-4, atol=1e-4)


def test_a_pattern_that_no_weight_fits_is_named() -> None:
    made = lowered(adapted()[0])
    with pytest.raises(stepwell.StepwellError, match=r'weight matches "\*adapter\*" \(a\)'):
        made.to_pte_and_ptds({"a": "*adapter*"})


def test_scales_of_quantized_weights_go_with_them() -> None:
    def quantized(model: torch.nn.Module) -> stepwell.Lowered:
        return lowered(find_quantizer("8da4w")(copy.deepcopy(model), [X]))

    one, other = adapted()
    pte, files = quantized(one).to_pte_and_ptds(FILES)
    same, others = quantized(other).to_pte_and_ptds(FILES)
    assert pte == same and files["base"] == others["base"]
    external = stepwell.join_ptds([others["adapter"], files["base"]])
    expected = quantized(other).run(X)[0]
    assert torch.equal(run_pte(pte, [X], external=external)[0], expected)
