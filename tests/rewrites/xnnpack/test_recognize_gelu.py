"""RecognizeGelu: the ways in which models write a GELU, and products that are none."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from rewrite_cases import cases
from torch import Tensor, nn
from torch.export import export

import stepwell
from stepwell.translate.rewrites.xnnpack.expressions.recognize_gelu import RecognizeGelu

WRITTEN: dict[str, Callable[[Tensor], Tensor]] = {
    "BERT": lambda x: x * 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0))),
    "the half in front": lambda x: 0.5 * x * (1 + torch.erf(x / 1.41421)),
    "the half behind": lambda x: x * (torch.erf(x * 2**-0.5) + 1) * 0.5,
    "a distribution": lambda x: (0.5 * (1 + torch.erf(x / 1.4142))) * x,
    "of a scaled value": lambda x: (h := 3 * x) * 0.5 * (1 + torch.erf(h / math.sqrt(2))),
    "another factor": lambda x: x * (1 + torch.erf(x / math.sqrt(2))),
}


class Written(nn.Module):
    def __init__(self, form: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.form = form

    def forward(self, x: Tensor) -> Tensor:
        return self.form(x)


@pytest.mark.parametrize("name", WRITTEN)
def test_it_runs_as_one_node_in_one_delegate(name: str) -> None:
    x = torch.cat([torch.linspace(-9, 9, 181), torch.tensor([-0.0, 1e-30, 60.0, -60.0])])
    lowered = stepwell.lower(export(Written(WRITTEN[name]), (x,)), "xnnpack")
    assert lowered.report.delegates == 1
    assert not lowered.report.outside
    inside = [op.name for op in lowered.program.module.walk() if op.name.startswith("xnnpack.")]
    assert inside.count("xnnpack.gelu") == 1
    exact = WRITTEN[name](x.double())
    torch.testing.assert_close(lowered.run(x)[0].double(), exact, rtol=1e-6, atol=4e-6)


def product(
    scale: str = "0.7071067811865476",
    one: str = "1",
    of: str = "%x",
    dtype: str = "f32",
    form: str = "mul",
) -> tuple[str, ...]:
    whole = f"tensor<3x{dtype}>"
    return (
        f"%b = aten.{form}.Scalar({of}, {scale}) : ({whole}) -> {whole}",
        f"%c = aten.erf.default(%b) : ({whole}) -> {whole}",
        f"%d = aten.add.Scalar(%c, {one}) : ({whole}) -> {whole}",
        f"%y = aten.mul.Tensor(%x, %d) : ({whole}, {whole}) -> {whole}",
    )


@pytest.mark.parametrize(
    ("lines", "reason", "dtype"),
    [
        (product(scale="0.707"), "it is no product", "f32"),
        (product(scale="1.0"), "it is no product", "f32"),
        (product(scale="0"), "it is no product", "f32"),
        (product(scale="0", form="div"), "it is no product", "f32"),
        (product(of="%z"), "it is no product", "f32"),
        (product(one="2"), "", "f32"),
        (product(one="1, alpha=2"), "", "f32"),
        (product(dtype="f16"), "float32 only", "f16"),
    ],
)
def test_another_product_stays(
    lines: tuple[str, ...], reason: str, dtype: str, refused: Any, method: Any
) -> None:
    whole = f"tensor<3x{dtype}>"
    refused(method(f"%x: {whole}, %z: {whole}", *lines, gives=whole), RecognizeGelu(), reason)


test_recognize_gelu = cases(
    RecognizeGelu,
    """
a product with one plus another function is not looked at -> unchanged
    %b = aten.mul.Scalar(%x: f32[3], 0.7071067811865476)
    %c = aten.tanh.default(%b)
    %d = aten.add.Scalar(%c, 1)
    %y = aten.mul.Tensor(%x, %d)
""",
)


def test_a_factor_known_only_at_run_time_is_no_number(apply: Any, method: Any) -> None:
    whole = "tensor<3xf32>"
    lines = (
        f'%b = aten.mul.Scalar(%x, %n) : ({whole}, !stepwell.int<"u0">) -> {whole}',
        *product()[1:],
    )
    text = method(f'%x: {whole}, %n: !stepwell.int<"u0">', *lines, gives=whole)
    assert apply(text, RecognizeGelu(), inputs=[torch.rand(3), 4]).count == 0
