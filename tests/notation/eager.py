"""Lower a model, or a function of tensors, and compare what runs with eager PyTorch.

lowered = lower(lambda x: x.softmax(-1), x)
assert_whole(lowered)
assert_as_eager(lowered, lambda x: x.softmax(-1), x, rtol=1e-5, atol=1e-6)
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

import stepwell

EXACT = {"rtol": 0.0, "atol": 0.0}
Model = nn.Module | Callable[..., Any]
Dynamic = Mapping[int, Any] | Sequence[Mapping[int, Any] | None] | None
"""For the only input, or for each, the `Dim` of each axis whose size is open."""


class Function(nn.Module):
    """A function of tensors, and of layers that come after them."""

    def __init__(self, function: Callable[..., Any], *layers: nn.Module) -> None:
        super().__init__()
        self.function, self.layers = function, nn.ModuleList(layers)

    def forward(self, *inputs: Tensor) -> Any:
        return self.function(*inputs, *self.layers)


class Stateful(nn.Module):
    """A function of a module that holds buffers, and of tensors."""

    def __init__(self, function: Callable[..., Any], **buffers: Tensor) -> None:
        super().__init__()
        self.function = function
        for name, tensor in buffers.items():
            self.register_buffer(name, tensor.clone())

    def forward(self, *inputs: Tensor) -> Any:
        return self.function(self, *inputs)


def exported(model: Model, *inputs: Tensor, dynamic: Dynamic = None) -> ExportedProgram:
    """The program of a model in evaluation mode, or of a function."""
    module = model if isinstance(model, nn.Module) else Function(model)
    shapes: Any = None
    if dynamic is not None:
        shapes = (dynamic,) if isinstance(dynamic, Mapping) else tuple(dynamic)
        shapes = (shapes,) if isinstance(module, Function) else shapes
    return torch.export.export(module.eval(), inputs, dynamic_shapes=shapes)


def lower(
    model: Model, *inputs: Tensor, target: str = "xnnpack", dynamic: Dynamic = None, **options: Any
) -> stepwell.Lowered:
    """A model lowered to a target."""
    return stepwell.lower(exported(model, *inputs, dynamic=dynamic), target, **options)


def assert_as_eager(program: Any, model: Model, *inputs: Tensor, **tolerances: float) -> None:
    """What runs gives the tensors that eager PyTorch gives, and NaN where it does."""
    with torch.no_grad():
        wanted = pytree.tree_leaves(model(*inputs))
    for one, other in zip(program.run(*inputs), wanted, strict=True):
        torch.testing.assert_close(one, other, equal_nan=True, **tolerances)


def assert_whole(lowered: stepwell.Lowered) -> None:
    """Everything is in one delegate."""
    assert (lowered.report.delegates, dict(lowered.report.outside)) == (1, {})


def size_within(dim: Any, share: float) -> int:
    """The smallest size of a `Dim` for 0, the largest for 1."""
    root = getattr(dim, "root", dim)
    size = root.min + round(share * (root.max - root.min))
    return size if root is dim else dim.fn(size)


def shapes_within(shape: Sequence[int], dynamic: Mapping[int, Any]) -> Iterator[list[int]]:
    """Shapes of the smallest sizes, the largest, sizes between, and both ends beside each other."""
    for shares in ((0.0,), (1.0,), (0.4, 0.3), (0.0, 1.0)):
        found = list(shape)
        for at, (axis, dim) in enumerate(dynamic.items()):
            found[axis] = size_within(dim, shares[at % len(shares)])
        yield found


def assert_as_eager_within(
    program: Any,
    model: Model,
    shape: Sequence[int],
    dynamic: Mapping[int, Any],
    **tolerances: float,
) -> None:
    """As eager PyTorch for random inputs of several sizes within their ranges."""
    for found in shapes_within(shape, dynamic):
        assert_as_eager(program, model, torch.randn(found), **tolerances)
