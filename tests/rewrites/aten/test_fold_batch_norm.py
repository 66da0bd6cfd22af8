"""The rules of fold_batch_norm: beyond its documented example, and what it leaves alone."""

import pytest
import torch
from rewrite_cases import cases
from torch import nn

import stepwell
from stepwell.translate.rewrites.layers import fold_batch_norm

test_fold_batch_norm = cases(
    fold_batch_norm,
    """
statistics that are inputs -> refused: computed
    %v = aten.mul.Tensor(%m: f32[4], %m)
    %y = aten.batch_norm.default(%x: f32[1, 4, 5], none, none, %m, %v, false, 0.1, 1e-05, false)
training mode -> refused: training mode
    %y = aten.batch_norm.default(%x: f32[2, 4, 5], none, none, none, none, true, 0.1, 1e-05, false)
a convolution with another reader is left alone -> aten.convolution.default, aten.mul.Tensor, aten.add.Tensor, aten.add.Tensor
    %c = aten.convolution.default(%x: f32[1, 3, 5], %w: buffer "w#positive" f32[4, 3, 1], none, [1], [0], [1], false, [0], 1)
    %n = aten.batch_norm.default(%c, none, none, %m: buffer "m#positive" f32[4], %v: buffer "v#positive" f32[4], false, 0.1, 1e-05, false)
    %y = aten.add.Tensor(%c, %n)
a grouped transposed convolution takes it in -> aten.convolution.default
    %c = aten.convolution.default(%x: f32[1, 4, 3], %w: buffer "w#positive" f32[4, 3, 2], %b: buffer "b#positive" f32[6], [2], [0], [1], true, [0], 2)
    %y = aten.batch_norm.default(%c, %g: buffer "g#positive" f32[6], none, %m: buffer "m#positive" f32[6], %v: buffer "v#positive" f32[6], false, 0.1, 1e-05, false)
a linear layer takes it in -> aten.linear.default
    %c = aten.linear.default(%x: f32[2, 3], %w: buffer "w#positive" f32[4, 3])
    %y = aten.batch_norm.default(%c, none, %b: buffer "b#positive" f32[4], %m: buffer "m#positive" f32[4], %v: buffer "v#positive" f32[4], false, 0.1, 1e-05, false)
no layer -> aten.neg.default, aten.mul.Tensor, aten.add.Tensor
    %c = aten.neg.default(%x: f32[2, 4])
    %y = aten.batch_norm.default(%c, none, none, %m: buffer "m#positive" f32[4], %v: buffer "v#positive" f32[4], false, 0.1, 1e-05, false)
a layer along another axis -> aten.linear.default, aten.mul.Tensor, aten.add.Tensor
    %c = aten.linear.default(%x: f32[2, 4, 3], %w: weight f32[4, 3])
    %y = aten.batch_norm.default(%c, none, none, %m: buffer "m#positive" f32[4], %v: buffer "v#positive" f32[4], false, 0.1, 1e-05, false)
a weight known at run time -> aten.linear.default, aten.mul.Tensor, aten.add.Tensor
    %c = aten.linear.default(%x: f32[2, 3], %u: f32[4, 3])
    %y = aten.batch_norm.default(%c, none, none, %m: buffer "m#positive" f32[4], %v: buffer "v#positive" f32[4], false, 0.1, 1e-05, false)
""",
)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_the_models_own_kernel_stays_as_it_is(dtype: torch.dtype) -> None:
    """A kernel of doubles needs no cast to be scaled in doubles: it must not be scaled in place."""
    net = nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4)).to(dtype).eval()
    for value in net.parameters():
        value.data.uniform_(1.0, 2.0)
    before = {name: value.clone() for name, value in net.state_dict().items()}
    x = torch.randn(1, 2, 6, 6, dtype=dtype)
    program = torch.export.export(net, (x,))
    wanted = net(x)
    made = stepwell.lower(program, "xnnpack")
    torch.testing.assert_close(made.run(x)[0], wanted)
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
