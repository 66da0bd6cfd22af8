"""Norms of halves whose parameters are wider are right, or refused, on every target."""

import pytest
import torch
from torch import nn
from torch.export import export

import stepwell
from stepwell.ir.diagnostics import UnsupportedError
from stepwell.ir.rewriting.rewrite import run_rewrites
from stepwell.translate.decompositions import promotions
from stepwell.translate.lowerings.lowering import step

NORMS = {
    "batch norm of images": (nn.BatchNorm2d(8), (2, 8, 4, 4)),
    "batch norm of rows": (nn.BatchNorm1d(8), (4, 8)),
    "group norm": (nn.GroupNorm(2, 8), (2, 8, 4, 4)),
    "instance norm": (nn.InstanceNorm2d(8, affine=True), (2, 8, 4, 4)),
    "layer norm": (nn.LayerNorm(8), (2, 4, 8)),
}


@pytest.mark.parametrize("target", ["xnnpack", "tosa-1.0+fp+bf16"])
@pytest.mark.parametrize("is_behind_a_layer", [False, True], ids=["alone", "behind a layer"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("norm", NORMS)
def test_a_norm_in_single_precision_takes_halves(
    norm: str, dtype: torch.dtype, is_behind_a_layer: bool, target: str
) -> None:
    torch.manual_seed(0)
    layer, shape = NORMS[norm]
    before: nn.Module = nn.Identity()
    if is_behind_a_layer:
        before = nn.Conv2d(8, 8, 1) if len(shape) == 4 else nn.Linear(8, 8)
    module = nn.Sequential(before.to(dtype), layer).eval()
    x = torch.randn(shape, dtype=dtype)
    exported = export(module, (x,))
    try:
        found = stepwell.lower(exported, target).run(x)[0]
    except UnsupportedError:
        assert target != "xnnpack"
        return
    wanted = module(x)
    assert found.dtype == wanted.dtype
    loose = 8 * torch.finfo(dtype).eps * float(wanted.detach().abs().max())
    torch.testing.assert_close(found, wanted, rtol=0, atol=loose)


def test_a_norm_of_one_type_stays() -> None:
    exported = export(nn.LayerNorm(8).half(), (torch.randn(2, 8).half(),))
    program = stepwell.from_exported_program(exported)
    assert run_rewrites(program, [step(promotions.widen_mixed_norm)]) == 0
