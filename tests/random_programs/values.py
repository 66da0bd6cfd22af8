"""What the text of a random program calls: drawn tensors, dtypes, control flow.

A program's text imports all of this, so that it can be pasted into a session and run.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F  # noqa: F401 (what a text uses)
from torch import Tensor, nn

from .layouts import beside, laid_out  # noqa: F401 (what a text uses)

__all__ = [
    *("F", "nn", "torch"),
    *("f16", "bf16", "f32", "f64", "i8", "i16", "i32", "i64", "u8", "boolean"),
    *("normal", "integers", "flags", "special", "permuted", "parameter", "seeded"),
    *("cond", "while_loop", "scan", "map_rows", "laid_out", "beside"),
]

f16, bf16, f32, f64 = torch.float16, torch.bfloat16, torch.float32, torch.float64
i8, i16, i32, i64, u8, boolean = (
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.uint8,
    torch.bool,
)
WIDE = dict.fromkeys(("f16", "bf16", "f32"), torch.float64)
"""The names that mean float64 when a program is run as its own reference."""

SPECIAL = (0.0, -0.0, 1.0, -1.0, float("inf"), -float("inf"), float("nan"), 1e38, -1e38, 1e-38)


def _from(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def normal(
    seed: int, shape: Sequence[int], dtype: torch.dtype = f32, scale: float = 1.0, mean: float = 0.0
) -> Tensor:
    """Normal numbers of a seed, whatever else was drawn."""
    return (torch.randn(tuple(shape), generator=_from(seed)) * scale + mean).to(dtype)


def integers(
    seed: int, shape: Sequence[int], low: int, high: int, dtype: torch.dtype = i64
) -> Tensor:
    """Integers from low to below high."""
    return torch.randint(low, high, tuple(shape), generator=_from(seed)).to(dtype)


def flags(seed: int, shape: Sequence[int]) -> Tensor:
    """Booleans, true and false alike often."""
    return integers(seed, shape, 0, 2, boolean)


def special(seed: int, shape: Sequence[int], dtype: torch.dtype = f32) -> Tensor:
    """NaN, infinities, both zeros and the ends of the range, among ordinary numbers."""
    chosen = torch.tensor(SPECIAL)[integers(seed, shape, 0, len(SPECIAL))]
    return torch.where(flags(seed + 1, shape), chosen, normal(seed + 2, shape)).to(dtype)


def permuted(seed: int, count: int) -> Tensor:
    """The numbers below count in some order."""
    return torch.randperm(count, generator=_from(seed))


def parameter(value: Tensor) -> nn.Parameter:
    return nn.Parameter(value, requires_grad=False)


def seeded(module: nn.Module, seed: int, dtype: torch.dtype = f32) -> nn.Module:
    """A layer with parameters of its seed."""
    for index, value in enumerate(module.parameters()):
        value.requires_grad_(False)
        value.copy_(normal(seed + index, value.shape, scale=0.4))
    return module.to(dtype).eval()


def cond(predicate: Tensor, yes: Callable[..., Any], no: Callable[..., Any], operands: Any) -> Any:
    """`torch.cond`; eager asks Python, for want of a compiler in the way."""
    if torch.compiler.is_exporting():
        return torch.cond(predicate, yes, no, operands)
    return yes(*operands) if bool(predicate) else no(*operands)


def while_loop(test: Callable[..., Any], body: Callable[..., Any], carried: Any) -> Any:
    """`torch.while_loop`, or Python's."""
    if torch.compiler.is_exporting():
        from torch._higher_order_ops.while_loop import while_loop as loop

        return loop(test, body, carried)
    while bool(test(*carried)):
        carried = body(*carried)
    return carried


def scan(step: Callable[..., Any], start: Tensor, rows: Tensor) -> Any:
    """`torch.scan` along the first axis, or Python's."""
    if torch.compiler.is_exporting():
        from torch._higher_order_ops.scan import scan as loop

        return loop(step, start, rows, dim=0)
    outputs: list[Tensor] = []
    for row in rows.unbind(0):
        start, output = step(start, row)
        outputs.append(output)
    return start, torch.stack(outputs)


def map_rows(body: Callable[..., Any], rows: Tensor, *others: Tensor) -> Any:
    """`map` over the first axis, or Python's."""
    if torch.compiler.is_exporting():
        from torch._higher_order_ops.map import map as loop

        return loop(body, rows, *others)
    return torch.stack([body(row, *others) for row in rows.unbind(0)])
