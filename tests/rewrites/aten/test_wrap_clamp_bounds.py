"""wrap-clamp-bounds: beyond its documented example, and what it leaves alone."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from rewrite_cases import cases
from torch import Tensor, nn

import stepwell
from stepwell.translate.canonicalize.clamps import RULES

BY_NAME = {rule.name: rule for rule in RULES}
WRAP = BY_NAME["wrap-clamp-bounds"]


def clamp(bounds: str, held: str, method: Any, gives: str | None = None) -> str:
    gives = gives or held
    types = f"(tensor<4x{held}>) -> tensor<4x{gives}>"
    call = f"%y = aten.clamp.default(%x, {bounds}) : {types}"
    return method(f"%x: tensor<4x{held}>", call, gives=f"tensor<4x{gives}>")


@pytest.mark.parametrize("bounds", ["-1, none", "none, -3", "-255, -1"])
def test_every_negative_bound_is_wrapped(bounds: str, apply: Any, method: Any):
    assert (
        "-"
        not in apply(clamp(bounds, "ui8", method), WRAP()).text.split("clamp")[1].partition(":")[0]
    )


test_wrap_clamp_bounds = cases(
    WRAP,
    RULES,
    """
wrap-clamp-bounds: 0, 255-ui8-ui8 -> unchanged
    %y = aten.clamp.default(%x: ui8[4], 0, 255)
wrap-clamp-bounds: -1, 3-i8-i8 -> unchanged
    %y = aten.clamp.default(%x: i8[4], -1, 3)
wrap-clamp-bounds: -1.5, 3-ui8-f32 -> unchanged
    %y = aten.clamp.default(%x: ui8[4], -1.5, 3)
merge-clamps: clamps of bounds that wrap are not merged -> refused: wrap
    %a = aten.clamp.default(%x: ui8[4], 0, 5)
    %y = aten.clamp.default(%a, -1, 3)
""",
)


CLAMPS: dict[str, Callable[[Tensor], Tensor]] = {
    "both": lambda x: x.clamp(-1, 1),
    "below": lambda x: x.clamp_min(-1),
    "above": lambda x: x.clamp_max(-200),
    "twice": lambda x: x.clamp(0, 5).clamp(-1, 3),
}


@pytest.mark.parametrize("form", CLAMPS)
def test_unsigned_bytes_are_clamped_as_by_torch(form: str):
    class Net(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return CLAMPS[form](x)

    x = torch.arange(0, 256, 15, dtype=torch.uint8)
    lowered = stepwell.lower(torch.export.export(Net(), (x,)), "xnnpack")
    assert torch.equal(lowered.run(x)[0], Net()(x))
