"""`choose-from-one`: routers limited to groups of experts of which there is one."""

from typing import Any

import torch
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


def test_one_of_two_is_a_choice(refused: Any, method: Any):
    line = "%y, %i = aten.topk.default(%x, 1) : (tensor<3x2xf32>) -> (tensor<3x1xf32>, tensor<3x1xi64>)"
    refused(method("%x: tensor<3x2xf32>", line, gives="tensor<3x1xf32>"), RULE)
