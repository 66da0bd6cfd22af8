"""A lowering on every family of CPUs: which NaN, infinities and zeros it loses there alone.

The rewrites are applied to a program; it is lowered with what they made of it and without, and
interpreted as each engine treats special values. An element counts where its class is not
PyTorch's, unless the lowering without the rewrites has that class too.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from xdsl.dialects.builtin import TensorType

from stepwell.ir.declared.engine_behavior import engines
from stepwell.ir.dtypes import is_float, torch_dtype
from stepwell.ir.rewriting.rewrite import Rewrite, run_rewrites
from stepwell.ir.types import dims, element
from stepwell.lowering import lower
from stepwell.program import Program

NAN, INF = float("nan"), float("inf")
SPECIALS = (NAN, INF, -INF, 0.0, -0.0, 1.5, -1.5, 88.6, -88.6, 1e-30, 1e30, -1e30, 3e38, -3e38)
"""What inputs are filled with; denormal numbers, which every engine flushes, are left out."""
CLASSES = ("NaN", "+inf", "-inf", "0", "finite")


@dataclass(frozen=True)
class EngineLoss:
    """Elements of outputs that a rewrite makes another class of on one engine."""

    engine: str
    expected: str
    result: str
    count: int

    def __str__(self) -> str:
        return f"{self.engine}: {self.expected} → {self.result} ×{self.count}"


def losses_by_engine(program: Program, rewrites: Sequence[Rewrite[Any]]) -> list[EngineLoss]:
    """What a program loses on each engine by rewrites, compared with itself and with its lowering.

    Args:
        program: with static shapes, at level `aten`.
        rewrites: applied to it, to a fixed point.
    """
    changed = program.clone()
    run_rewrites(changed, tuple(rewrites))
    with_them, without = (lower(given, "xnnpack").program for given in (changed, program))
    found: Counter[tuple[str, str, str]] = Counter()
    for inputs in samples(program):
        wanted = classes_of(program.run(*inputs))
        for engine in engines():
            ours, own = (
                classes_of(lowered.run(*inputs, engine=engine if has_nodes(lowered) else None))
                for lowered in (with_them, without)
            )
            lost = (ours != wanted) & (ours != own) & ~((ours >= 3) & (wanted == 4))
            pairs = zip(wanted[lost].tolist(), ours[lost].tolist(), strict=True)
            found.update((engine, CLASSES[one], CLASSES[other]) for one, other in pairs)
    return [EngineLoss(*key, count) for key, count in found.items()]


def has_nodes(program: Program) -> bool:
    """Whether an engine runs some of a program."""
    return any(op.name.startswith("xnnpack.") for op in program.method().walk())


def samples(program: Program) -> list[tuple[torch.Tensor, ...]]:
    """Inputs in which every special number meets every other, and stands among ordinary ones."""
    types = [t for t in program.method().function_type.inputs.data if isinstance(t, TensorType)]
    specials, made = torch.tensor(SPECIALS), list[tuple[torch.Tensor, ...]]()
    for shift in range(len(SPECIALS)):
        for only in (0, 1):
            inputs: list[torch.Tensor] = []
            for place, type_ in enumerate(types):
                shape = [size for size in dims(type_) if isinstance(size, int)]
                count = torch.Size(shape).numel()
                numbers = specials.roll(shift * place).repeat(count // len(specials) + 1)[:count]
                if only:  # One special number, at the end of ordinary ones.
                    numbers = torch.linspace(-2, 2, count)
                    numbers[-1] = specials[(shift + place) % len(specials)]
                held = element(type_)
                dtype = torch_dtype(held) if is_float(held) else torch.int64
                inputs.append(numbers.to(dtype).reshape(shape))
            made.append(tuple(inputs))
    return made


def classes_of(outputs: Sequence[Any]) -> torch.Tensor:
    """The class of every element of all outputs: an index of `CLASSES`."""
    flat = torch.cat([value.double().flatten() for value in outputs])
    found = torch.full(flat.shape, 4)
    for index, held in enumerate((flat.isnan(), flat == INF, flat == -INF, flat == 0)):
        found[held] = index
    return found
