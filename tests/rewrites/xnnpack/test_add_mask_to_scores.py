"""A constant mask that fills scores with −∞ before a softmax is added to them."""

import pytest
import torch
from rewrite_cases import cases
from torch import nn
from torch.export import export

import stepwell
from stepwell.translate.lowerings.lowering import step
from stepwell.translate.rewrites.attention.add_mask_to_scores import add_mask_to_scores

test_add_mask_to_scores = cases(step(add_mask_to_scores))("""
what closes a score is added -> aten.bmm.default, aten.add.Tensor, aten._softmax.default
    - %s = aten.bmm.default(%q: f32[2, 3, 4], %k: f32[2, 4, 3])
      %f = aten.where.ScalarOther(%m: buffer "m#causal" i1[3, 3], %s, -inf)
      %y = aten._softmax.default(%f, 2, false)
    - %s = aten.bmm.default(%q: f32[2, 3, 4], %k: f32[2, 4, 3])
      %f = aten.where.ScalarOther(%m: buffer "m#causal" i1[3, 3], %s, -3.4028234663852886e+38)
      %y = aten._softmax.default(%f, 2, false)
a mask says what is filled or what is kept -> aten.bmm.default, aten.add.Tensor, aten._softmax.default
    # `masked_fill` fills where the mask is true: nowhere here.
    %s = aten.bmm.default(%q: f32[2, 3, 4], %k: f32[2, 4, 3])
    %f = aten.masked_fill.Scalar(%s, %c: buffer "c#zeros" i1[3, 3], -inf)
    %y = aten._softmax.default(%f, 2, false)
views of the heads may precede the softmax -> applied once
    %s = aten.bmm.default(%q: f32[2, 3, 4], %k: f32[2, 4, 3])
    %f = aten.where.ScalarOther(%m: buffer "m#causal" i1[3, 3], %s, -inf)
    %v = aten.view.default(%f, [1, 2, 3, 3]); %y = aten._softmax.default(%v, -1, false)
a constant that scores are the sum with takes the mask -> aten.bmm.default, aten.add.Tensor, aten._softmax.default
    %s = aten.bmm.default(%q: f32[2, 3, 4], %k: f32[2, 4, 3])
    %b = aten.add.Tensor(%s, %a: buffer "slopes" f32[2, 1, 3])
    %f = aten.where.ScalarOther(%m: buffer "m#causal" i1[3, 3], %b, -3.4028234663852886e+38)
    %y = aten._softmax.default(%f, 2, false)
a mask that attention adds is masked by a sum -> applied once
    %s = aten.bmm.default(%q: f32[2, 3, 4], %k: f32[2, 4, 3])
    %f = aten.where.ScalarOther(%m: buffer "m#causal" i1[3, 3], %s, -inf)
    %w = aten.scaled_dot_product_attention.default(%z: f32[2, 3, 3], %z, %z, %f)
    %y = aten.neg.default(%w)
another number -> unchanged
    %s = aten.bmm.default(%q: f32[2, 3, 4], %k: f32[2, 4, 3])
    %f = aten.where.ScalarOther(%m: buffer "m#causal" i1[3, 3], %s, -10000.0)
    %y = aten._softmax.default(%f, 2, false)
a softmax over the queries -> unchanged
    %s = aten.bmm.default(%q: f32[2, 3, 4], %k: f32[2, 4, 3])
    %f = aten.where.ScalarOther(%m: buffer "m#causal" i1[3, 3], %s, -inf)
    %y = aten._softmax.default(%f, 1, false)
no softmax -> unchanged
    %s = aten.bmm.default(%q: f32[2, 3, 4], %k: f32[2, 4, 3])
    %y = aten.where.ScalarOther(%m: buffer "m#causal" i1[3, 3], %s, -inf)
a view of the rows in front of the softmax -> unchanged
    %s = aten.bmm.default(%q: f32[2, 3, 4], %k: f32[2, 4, 3])
    %f = aten.where.ScalarOther(%m: buffer "m#causal" i1[3, 3], %s, -inf)
    %v = aten.view.default(%f, [2, 9]); %w = aten._softmax.default(%v, 1, false)
    %y = aten.view.default(%w, [2, 3, 3])
scores that are read elsewhere too -> unchanged
    %s = aten.bmm.default(%q: f32[2, 3, 4], %k: f32[2, 4, 3])
    %f = aten.where.ScalarOther(%m: buffer "m#causal" i1[3, 3], %s, -inf)
    %w = aten._softmax.default(%f, 2, false); %r = aten.relu.default(%f)
    %y = aten.add.Tensor(%w, %r)
no product -> unchanged
    %s = aten.bmm.default(%q: f32[2, 3, 4], %k: f32[2, 4, 3])
    %f = aten.where.ScalarOther(%m: buffer "m#causal" i1[3, 3], %z: f32[2, 3, 3], -inf)
    %y = aten._softmax.default(%f, 2, false)
another tensor instead of a number -> unchanged
    %s = aten.bmm.default(%q: f32[2, 3, 4], %k: f32[2, 4, 3])
    %f = aten.where.self(%m: buffer "m#causal" i1[3, 3], %s, %z: f32[2, 3, 3])
    %y = aten._softmax.default(%f, 2, false)
scores that the mask repeats -> unchanged
    %s = aten.bmm.default(%q: f32[2, 3, 4], %k: f32[2, 4, 3])
    %l = aten.bmm.default(%q, %j: buffer f32[2, 4, 1])
    %f = aten.where.ScalarOther(%m: buffer "m#causal" i1[3, 3], %l, -inf)
    %y = aten._softmax.default(%f, 2, false)
the least half does not absorb a score -> unchanged
    %s = aten.bmm.default(%q: f16[2, 3, 4], %k: f16[2, 4, 3])
    %f = aten.where.ScalarOther(%m: buffer "m#causal" i1[3, 3], %s, -65504.0)
    %y = aten._softmax.default(%f, 2, false)
a mask computed at run time chooses between two numbers -> aten.bmm.default, aten.where.self, aten.add.Tensor, aten._softmax.default; writes -> tensor<1x1x3xf32>
    # An element for each of its own: heads that share it are not filled one by one.
    %s = aten.bmm.default(%q: f32[2, 3, 4], %k: f32[2, 4, 3])
    %e = aten.expand.default(%l: i1[1, 1, 3], [2, 3, 3])
    %f = aten.masked_fill.Scalar(%s, %e, -3.4028234663852886e+38)
    %y = aten._softmax.default(%f, 2, false)
""")


class Masked(nn.Module):
    """Attention over what ids do not pad, its scores behind a norm or not."""

    def __init__(self, norm: nn.Module, fill: float) -> None:
        super().__init__()
        self.norm, self.fill = norm, fill
        self.query, self.key = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, ids: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        x = self.norm(x)
        scores = self.query(x) @ self.key(x).transpose(1, 2)
        pads = (ids == 0).unsqueeze(1).expand_as(scores)
        return torch.softmax(scores.masked_fill(pads, self.fill), -1) @ x


@pytest.mark.parametrize("fill", [-torch.inf, torch.finfo(torch.float32).min])
def test_padding_is_masked_within_one_delegate_of_numbers(fill: float) -> None:
    """Also where all is padding: NaN, or all alike, is what eager has."""
    model = Masked(nn.LayerNorm(8), fill).eval()
    ids, x = torch.tensor([[1, 2, 0, 0], [0, 0, 0, 0]]), torch.randn(2, 4, 8)
    lowered = stepwell.lower(export(model, (ids, x)), "xnnpack", numerics="finite")
    assert lowered.report.delegates == 1
    assert "a score of NaN or ∞ that the mask hides is seen" in str(lowered.report.deviations)
    default = stepwell.lower(export(model, (ids, x)), "xnnpack").report
    assert "mask hides" not in str(default.deviations)
    (found,) = lowered.run(ids, x)
    torch.testing.assert_close(found, model(ids, x), rtol=1e-5, atol=1e-5, equal_nan=True)


def test_scores_that_may_be_infinite_are_filled_outside() -> None:
    model = Masked(nn.Identity(), -torch.inf).eval()
    given = torch.tensor([[1, 2, 0, 0]]), torch.randn(1, 4, 8)
    lowered = stepwell.lower(export(model, given), "xnnpack")
    assert dict(lowered.report.outside)["aten.masked_fill.Scalar"] == 1
    freely = stepwell.lower(export(model, given), "xnnpack", numerics="finite")
    assert freely.report.delegates == 1
