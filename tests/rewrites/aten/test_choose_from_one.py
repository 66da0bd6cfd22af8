"""`choose-from-one`: routers limited to groups of experts of which there is one."""

import torch
from rewrite_cases import cases
from torch import Tensor, nn
from torch.export import export

import stepwell
from stepwell.translate.rewrites.constants.choose_from_one import RULES

(RULE,) = RULES.named("choose-from-one")


class OneGroup(nn.Module):
    """Scores of the groups that rank first, as DeepSeek's routers keep them; of one group all."""

    def forward(self, x: Tensor) -> Tensor:
        scores = x.sigmoid()
        groups = scores.view(len(x), 1, -1).topk(2).values.sum(-1)
        mask = torch.zeros_like(groups).scatter_(1, groups.topk(1, sorted=False).indices, 1)
        mask = mask.unsqueeze(-1).expand(len(x), 1, x.shape[1]).reshape(len(x), -1)
        return scores.masked_fill(~mask.bool(), -torch.inf).topk(2).values


def test_a_mask_of_one_group_is_decided_while_lowering():
    x = torch.randn(5, 6)
    lowered = stepwell.lower(export(OneGroup(), (x,)), "xnnpack", numerics="finite")
    assert (lowered.report.delegates, dict(lowered.report.outside)) == (1, {})
    torch.testing.assert_close(lowered.run(x)[0], OneGroup()(x))


test_choose_from_one = cases(
    RULE,
    """
one of two is a choice -> unchanged
    %y, %i = aten.topk.default(%x: f32[3, 2], 1)
    return %y
""",
)
