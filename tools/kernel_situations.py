"""Numbers and shapes in which `generate_kernel_dtypes.py` tries kernels beyond the usual ones.

A kernel that computes what PyTorch computes on a few positive numbers of a matrix need not do so on
negative ones, nor take a tensor without axes or without elements.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from stepwell.backends.executorch.kernels.kernel_calls import (
    BELOW,
    BEYOND,
    BROADCAST,
    EMPTY,
    EXTREME,
    FRACTION,
    NEGATIVE,
    RANK,
    SCALAR,
    SPECIAL,
)

VALUES = (NEGATIVE, EXTREME, SPECIAL)
SHAPES = (SCALAR, EMPTY, BROADCAST, RANK)
ARGUMENTS = {FRACTION: 2.5, BELOW: -3, BEYOND: 70}
VARIANTS = {SCALAR: 2, EMPTY: 2, BROADCAST: 4, RANK: 2, EXTREME: 2}
"""How many calls a situation is tried with, where that is not one."""

Shape = tuple[int, ...]
Make = Callable[..., torch.Tensor]


def numbers(situation: str, dtype: torch.dtype, turn: int, variant: int = 0) -> list[Any]:
    """The numbers of the `turn`-th tensor of a call; none of a divisor is 0 where that is an error.

    An empty list says that a type has no such numbers.
    """
    if dtype == torch.bool:
        return []
    if not dtype.is_floating_point:
        return _integers(situation, dtype, turn, variant)
    limits = torch.finfo(dtype)
    if situation == NEGATIVE:
        every = [-7.5, 7.0, -2.5, 0.5, -1.5, -3.0], [3.0, -3.0, 2.5, -0.5, 1.5, -2.0]
    elif situation == EXTREME:
        tiny = limits.tiny
        every = (
            [limits.max, limits.min, tiny, tiny / 4, 1.0, -tiny / 4],
            [1.0, tiny, 2.0, 1.0, tiny, 2.0],
        )
    else:
        every = (
            [math.nan, math.inf, -math.inf, 0.0, -0.0, 1.5, math.inf, -0.0],
            [1.0, math.nan, 2.0, -0.0, 0.0, math.inf, math.inf, -1.0],
        )
    return every[turn % 2]


def _integers(situation: str, dtype: torch.dtype, turn: int, variant: int) -> list[int]:
    limits = torch.iinfo(dtype)
    if situation == EXTREME and variant:  # What single and double precision do not hold.
        wide = dtype == torch.int64
        return [2**24 + 1, 1, 1, 2**53 + 1, 3, 2**24 + 1] if wide else _SINGLE.get(dtype, [])
    if situation == EXTREME:
        return [
            [limits.min, limits.max, limits.min + 1, limits.max - 1, 1, 3],
            [1, limits.max, 2, limits.max, 3, 5],
        ][turn % 2]
    if situation == SPECIAL or not limits.min:
        return []
    return [[-7, 7, -5, 1, -4, -1], [3, -3, 2, -2, -3, 4]][turn % 2]


_SINGLE = {torch.int32: [2**24 + 1, 1, 1, -(2**24) - 1, 3, 2**24 + 1]}


def filled(shape: Sequence[int], every: Sequence[Any], dtype: torch.dtype) -> torch.Tensor:
    """A tensor of these numbers, again and again."""
    given = list(itertools.islice(itertools.cycle(every), math.prod(shape)))
    return torch.tensor(given, dtype=dtype).reshape(tuple(shape))


def shaped(situation: str, variant: int, shape: Shape, turn: int) -> Shape:
    """A tensor's shape in a situation, for what is otherwise of `shape`."""
    if situation == SCALAR:
        return ()
    if situation == EMPTY:
        return tuple(
            0 if axis == variant % max(len(shape), 1) else d for axis, d in enumerate(shape)
        )
    if situation == BROADCAST:
        return (
            [(2, 3), (3,)][(turn + variant) % 2]
            if variant < 2
            else [(2, 3), ()][(turn + variant) % 2]
        )
    if turn:
        return shape
    return (1, *shape) if variant else shape[1:]


UNRANKED = frozenset(
    (
        "_native_batch_norm_legit.no_stats _native_batch_norm_legit_no_training native_group_norm "
        "_pdist_forward"
    ).split()
)
"""Operators of which one operand's shape follows from another's rank."""

AXES: dict[str, Any] = {
    "dim": [0], "dims": [0], "dim0": 0, "dim1": 0, "normalized_shape": [], "shifts": [1],
}  # fmt: skip
"""What arguments that name axes are for a tensor without axes."""


def adapted(situation: str, variant: int, schema: Any, given: list[Any]) -> list[Any]:
    """The arguments that fit a situation: axes of a tensor without, indices as their tensor."""
    if situation != SCALAR:
        return given
    held = list(given)
    for index, argument in enumerate(schema.arguments[: len(held)]):
        value = held[index]
        if isinstance(value, torch.Tensor) and argument.name in ("index", "mask", "indices"):
            held[index] = value.flatten()[0] * 0
        elif argument.name in AXES and isinstance(value, list):
            held[index] = [] if variant else AXES[argument.name]
        elif argument.name in AXES and value is not None:
            held[index] = 0
    return held


_WHOLE = torch.tensor([], dtype=torch.int64)

EDGES: dict[str, list[tuple[str, Callable[[Make], tuple[Any, ...]]]]] = {
    "constant_pad_nd": [
        (EMPTY, lambda t: (t(2, 3), [-1, -2])),
        (EMPTY, lambda t: (t(2, 3), [-3, 0])),
        (EMPTY, lambda t: (t(2, 0), [1, 1])),
        (FRACTION, lambda t: (t(2, 3), [1, 1], 2.5)),
        (SCALAR, lambda t: (t(), [])),
    ],
    "slice_copy.Tensor": [
        (EMPTY, lambda t: (t(2, 3), 1, 2, 2)),
        (EMPTY, lambda t: (t(0, 3), 1, 0, 2)),
    ],
    "narrow_copy": [(EMPTY, lambda t: (t(2, 3), 1, 1, 0))],
    "cat": [
        (EMPTY, lambda t: ([t(0), t(2, 3)], 0)),
        (EMPTY, lambda t: ([t(2, 0), t(2, 3)], 1)),
        (EMPTY, lambda t: ([t(2, 0), t(2, 0)], 1)),
    ],
    "stack": [(EMPTY, lambda t: ([t(2, 0), t(2, 0)], 1)), (SCALAR, lambda t: ([t(), t()], 0))],
    "index_select": [
        (EMPTY, lambda t: (t(2, 3), 1, _WHOLE)),
        (SCALAR, lambda t: (t(), 0, torch.tensor([0]))),
        (SCALAR, lambda t: (t(2, 3), 1, torch.tensor(0))),
    ],
    "embedding": [
        (EMPTY, lambda t: (t(4, 3), _WHOLE)),
        (SCALAR, lambda t: (t(4, 3), torch.tensor(1))),
    ],
    "gather": [(EMPTY, lambda t: (t(2, 3), 0, _WHOLE.reshape(0, 3)))],
    "bmm": [
        (EMPTY, lambda t: (t(2, 3, 0), t(2, 0, 3))),
        (EMPTY, lambda t: (t(0, 3, 4), t(0, 4, 3))),
    ],
    "mm": [(EMPTY, lambda t: (t(2, 0), t(0, 4))), (EMPTY, lambda t: (t(0, 3), t(3, 4)))],
    "addmm": [
        (EMPTY, lambda t: (t(2, 4), t(2, 0), t(0, 4))),
        (BROADCAST, lambda t: (t(4), t(2, 3), t(3, 4))),
        (SCALAR, lambda t: (t(), t(2, 3), t(3, 4))),
    ],
    "linear": [
        (EMPTY, lambda t: (t(0, 3), t(4, 3), t(4))),
        (EMPTY, lambda t: (t(2, 0), t(4, 0), t(4))),
        (RANK, lambda t: (t(3), t(4, 3), t(4))),
        (RANK, lambda t: (t(2, 2, 3), t(4, 3), t(4))),
    ],
    "convolution": [
        (
            EMPTY,
            lambda t: (
                t(0, 2, 4, 4),
                t(3, 2, 2, 2),
                t(3),
                [1, 1],
                [0, 0],
                [1, 1],
                False,
                [0, 0],
                1,
            ),
        ),
        (RANK, lambda t: (t(1, 2, 4), t(3, 2, 2), t(3), [1], [0], [1], False, [0], 1)),
        (
            RANK,
            lambda t: (
                t(1, 2, 4, 4, 4),
                t(3, 2, 2, 2, 2),
                t(3),
                [1] * 3,
                [0] * 3,
                [1] * 3,
                False,
                [0] * 3,
                1,
            ),
        ),
    ],
    "repeat": [
        (EMPTY, lambda t: (t(2, 3), [0, 1])),
        (SCALAR, lambda t: (t(), [2])),
        (SCALAR, lambda t: (t(), [])),
    ],
    "expand_copy": [
        (EMPTY, lambda t: (t(1, 3), [0, 3])),
        (SCALAR, lambda t: (t(), [2, 3])),
        (SCALAR, lambda t: (t(), [])),
    ],
    "topk": [(EMPTY, lambda t: (t(2, 3), 0)), (SCALAR, lambda t: (t(), 1, 0))],
    "split_with_sizes_copy": [(EMPTY, lambda t: (t(2, 4), [0, 4], 1))],
    "split_copy.Tensor": [(EMPTY, lambda t: (t(2, 0), 1, 1))],
    "mean.dim": [
        (SCALAR, lambda t: (t(), None)),
        (SCALAR, lambda t: (t(), [])),
        (EMPTY, lambda t: (t(2, 0), [1])),
        (EMPTY, lambda t: (t(2, 0), [0])),
    ],
    "sum.dim_IntList": [
        (SCALAR, lambda t: (t(), None)),
        (SCALAR, lambda t: (t(), [0])),
        (EMPTY, lambda t: (t(2, 0), [1])),
        (EMPTY, lambda t: (t(2, 0), [0])),
    ],
    "var.correction": [(SCALAR, lambda t: (t(), None)), (EMPTY, lambda t: (t(2, 0), [0]))],
    "amax": [(SCALAR, lambda t: (t(), [])), (EMPTY, lambda t: (t(2, 0), [0]))],
    "amin": [(SCALAR, lambda t: (t(), [])), (EMPTY, lambda t: (t(2, 0), [0]))],
    "any.dim": [(EMPTY, lambda t: (t(2, 0), 1)), (EMPTY, lambda t: (t(2, 0), 0))],
    "unfold_copy": [(SCALAR, lambda t: (t(), 0, 1, 1))],
    "where.self": [
        (BROADCAST, lambda t: (torch.tensor([True, False, True]), t(2, 3), t(2, 1))),
        (BROADCAST, lambda t: (torch.tensor([[True], [False]]), t(3), t())),
        (SCALAR, lambda t: (torch.tensor(True), t(), t())),
        (EMPTY, lambda t: (torch.ones(0, 3, dtype=torch.bool), t(0, 3), t())),
    ],
    "masked_fill.Scalar": [(BROADCAST, lambda t: (t(2, 3), torch.tensor([True, False, True]), 1))],
    "masked_select": [(EMPTY, lambda t: (t(2, 3), torch.zeros(2, 3, dtype=torch.bool)))],
    "index.Tensor": [
        (EMPTY, lambda t: (t(2, 3), [_WHOLE])),
        (SCALAR, lambda t: (t(2, 3), [torch.tensor(1)])),
        (BROADCAST, lambda t: (t(2, 3), [torch.tensor([[0], [1]]), torch.tensor([0, 2])])),
        (NEGATIVE, lambda t: (t(2, 3), [None, torch.tensor([-1, 0])])),
        (NEGATIVE, lambda t: (t(2, 3), [torch.tensor([True, False])])),
    ],
    "index_put": [
        (NEGATIVE, lambda t: (t(2, 3), [torch.tensor([-1])], t(1, 3))),
        (BROADCAST, lambda t: (t(2, 3), [torch.tensor([1])], t())),
        (EMPTY, lambda t: (t(2, 3), [_WHOLE], t(0, 3))),
        (SCALAR, lambda t: (t(2, 3), [torch.tensor(1)], t(3))),
    ],
    "native_layer_norm": [(EMPTY, lambda t: (t(0, 3), [3], t(3), t(3), 1e-5))],
    "select_copy.int": [(NEGATIVE, lambda t: (t(2, 3), -1, -1))],
    "flip": [(SCALAR, lambda t: (t(), [])), (EMPTY, lambda t: (t(2, 0), [0]))],
    "_native_batch_norm_legit_no_training": [
        (RANK, lambda t: (t(2, 3), t(3), t(3), t(3), t(3), 0.1, 1e-5)),
        (RANK, lambda t: (t(2, 3, 2, 2), t(3), t(3), t(3), t(3), 0.1, 1e-5)),
        (RANK, lambda t: (t(2, 3, 2, 2, 2), t(3), t(3), t(3), t(3), 0.1, 1e-5)),
    ],
    "native_group_norm": [
        (RANK, lambda t: (t(2, 4), t(4), t(4), 2, 4, 1, 2, 1e-5)),
        (RANK, lambda t: (t(2, 4, 3, 2), t(4), t(4), 2, 4, 6, 2, 1e-5)),
    ],
    "bitwise_left_shift.Tensor_Scalar": [(BELOW, lambda t: (t(2, 3), -64))],
    "bitwise_right_shift.Tensor_Scalar": [
        (BEYOND, lambda t: (t(2, 3) * 40, 70)),
        (BELOW, lambda t: (t(2, 3), -64)),
    ],
    "div.Scalar_mode": [(EXTREME, lambda t: (t(2, 3), 3, {"rounding_mode": "trunc"}))],
    "div.Tensor_mode": [
        (NEGATIVE, lambda t: (t(2, 3), t(2, 3), {"rounding_mode": "trunc"})),
        (EXTREME, lambda t: (t(2, 3), t(2, 3), {"rounding_mode": "trunc"})),
    ],
    "cumsum": [(NEGATIVE, lambda t: (t(2, 3), -1))],
}
"""Calls at the edges that no general rule makes: the situation, and the arguments."""
