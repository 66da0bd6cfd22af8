"""`adaptive-pool-by-parts`: windows of several lengths, on a target that pools those of one."""

import pytest
import torch
from torch import nn
from torch.export import export

import stepwell


@pytest.mark.parametrize(("given", "size"), [(5, 3), (2, 6), (3, 3), (7, 4)])
def test_an_uneven_average_is_means_of_slices(given: int, size: int):
    """Where windows have several lengths, or one element."""
    pool, x = nn.AdaptiveAvgPool2d(size), torch.randn(1, 3, given, given)
    x[0, 0, 0, 0], x[0, 1, -1, -1] = torch.nan, torch.inf
    lowered = stepwell.lower(export(nn.Sequential(nn.ReLU(), pool), (x,)), "xnnpack")
    assert (lowered.report.delegates, dict(lowered.report.outside)) == (1, {})
    wanted = pool(x.relu())
    torch.testing.assert_close(lowered.run(x)[0], wanted, equal_nan=True)
