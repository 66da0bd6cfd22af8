"""Draw the memory plan of a `.pte`: which bytes of the arena are in use, and when."""

from collections.abc import Iterator
from dataclasses import dataclass
from string import ascii_letters, digits

from stepwell.backends.executorch.container import (
    Container,
    DelegateCall,
    Instruction,
    KernelCall,
    Method,
    Move,
    OptionalTensorList,
    Planned,
    ScalarType,
    State,
    TensorList,
    TensorValue,
)
from stepwell.ir.diagnostics import counted


@dataclass(frozen=True)
class Held:
    """The bytes of one tensor in an arena.

    Attributes:
        label: the tensor's producer and type.
        offset, bytes: the location in the arena.
        first, last: the first and last step (instruction) of the live range, inclusive.
    """

    label: str
    offset: int
    bytes: int
    first: int
    last: int


@dataclass(frozen=True)
class MemoryPlan:
    """The content of a method's largest arena at each step.

    Attributes:
        method: the method's name.
        size: bytes of the arena.
        steps: the number of instructions.
        held: each tensor, by location.
        workspace: whether the plan is XNNPACK's for a delegate, node by node, instead of the arena.
    """

    method: str
    size: int
    steps: int
    held: tuple[Held, ...]
    workspace: bool = False

    @property
    def busiest(self) -> tuple[int, int]:
        """Return (step, bytes) of the peak; a tensor and its view count once."""
        sums = [0] * max(self.steps, 1)
        ends = [0] * max(self.steps, 1)
        for part in sorted(self.held, key=lambda held: held.offset):
            end = part.offset + part.bytes
            for step in range(part.first, part.last + 1):
                sums[step] += max(0, end - max(ends[step], part.offset))
                ends[step] = max(ends[step], end)
        most = max(range(len(sums)), key=sums.__getitem__)
        return most, sums[most]


def memory_plans(container: Container) -> tuple[MemoryPlan, ...]:
    """Return the plan of each method with an arena; memory inside delegates is not included."""
    return tuple(plan for method in container.methods if (plan := _plan(method)).held)


def _plan(method: Method) -> MemoryPlan:
    steps = len(method.instructions)
    touched: dict[int, list[int]] = {index: [0] for index in method.inputs}
    maker: dict[int, str] = dict.fromkeys(method.inputs, "input")
    writes = [(0, _place(method, index)) for index in method.inputs]
    parts: dict[tuple[int, int, int], int] = {}
    for at, step in enumerate(method.instructions):
        made = _made(step)
        for index in _values(step, method):
            is_new = index not in touched and made and index not in made
            is_view = is_new and not _is_scratch(step, method, index)
            pieces = list(_written(writes, _place(method, index))) if is_view else []
            for when, piece in pieces:
                # The bytes of a view are live since they were written, by one call or by several.
                parts[piece.start, piece.stop, when] = at
            if pieces:
                continue
            touched.setdefault(index, []).append(at)
            maker.setdefault(index, _name(step))
            if index in made or not made:
                writes.append((at, _place(method, index)))
    for index in method.outputs:
        last = max(steps - 1, 0)
        if index in touched:
            touched[index].append(last)
        else:  # It was written in parts.
            for when, piece in _written(writes, _place(method, index)):
                parts[piece.start, piece.stop, when] = last
    places: dict[tuple[int, int, int], list[int]] = {}
    largest = max(range(len(method.arena_sizes)), key=method.arena_sizes.__getitem__, default=0)
    for index, when in touched.items():
        value = method.values[index]
        if not isinstance(value, TensorValue) or not isinstance(value.storage, Planned | State):
            continue
        if value.storage.memory_id == largest and value.nbytes:
            places.setdefault((value.storage.offset, min(when), max(when)), []).append(index)
    held = [_held(method, at, maker, indices) for at, indices in places.items()]
    held += [
        Held("read as a part", start, stop - start, first, last)
        for (start, stop, first), last in parts.items()
    ]
    held.sort(key=lambda one: (one.offset, one.first))
    return MemoryPlan(method.name, method.arena_sizes[largest], steps, tuple(held))


def _is_scratch(step: Instruction, method: Method, index: int) -> bool:
    """Whether a call takes a tensor to write into for itself: `cortex_m` has no other bytes without
    a sign.
    """
    value = method.values[index]
    is_theirs = isinstance(step, KernelCall) and step.kernel.startswith("cortex_m::")
    return is_theirs and isinstance(value, TensorValue) and value.scalar_type is ScalarType.BYTE


def _made(step: Instruction) -> frozenset[int]:
    """Return the values that a kernel writes: its last arguments, which are also its results."""
    if isinstance(step, KernelCall):
        for count in range(1, len(step.args) // 2 + 1):
            if step.args[-count:] == step.args[-2 * count : -count]:
                return frozenset(step.args[-count:])
    return frozenset()


def _place(method: Method, index: int) -> range:
    """Return the bytes of a planned tensor; empty for other values."""
    value = method.values[index]
    if not isinstance(value, TensorValue) or not isinstance(value.storage, Planned | State):
        return range(0)
    return range(value.storage.offset, value.storage.offset + value.nbytes)


def _written(writes: list[tuple[int, range]], place: range) -> Iterator[tuple[int, range]]:
    """Yield the last call that wrote to each part of these bytes."""
    left = [place] if place else []
    for when, held in reversed(writes):
        still: list[range] = []
        for part in left:
            start, stop = max(part.start, held.start), min(part.stop, held.stop)
            if start >= stop:
                still.append(part)
                continue
            yield when, range(start, stop)
            still += [r for r in (range(part.start, start), range(stop, part.stop)) if r]
        left = still
        if not left:
            return


def _held(
    method: Method, at: tuple[int, int, int], maker: dict[int, str], indices: list[int]
) -> Held:
    """Merge all views of the same bytes at the same time into one rectangle."""
    tensors = [v for i in indices if isinstance(v := method.values[i], TensorValue)]
    widest = max(tensors, key=lambda tensor: tensor.nbytes)
    sizes = "×".join(map(str, widest.sizes))
    label = f"{maker[indices[0]]}: {widest.scalar_type.name.lower()} {sizes}"
    return Held(label, at[0], widest.nbytes, at[1], at[2])


def _values(step: Instruction, method: Method) -> list[int]:
    """Return the tensors of an instruction, including those in its lists."""
    if isinstance(step, KernelCall | DelegateCall):
        given = step.args
    elif isinstance(step, Move):
        given = (step.source, step.target)
    else:
        return []
    found: list[int] = []
    for index in given:
        value = method.values[index] if index >= 0 else None
        if isinstance(value, TensorList | OptionalTensorList):
            found += [item for item in value.items if item >= 0]
        elif isinstance(value, TensorValue):
            found.append(index)
    return found


def _name(step: Instruction) -> str:
    if isinstance(step, KernelCall):
        return step.kernel.removesuffix(".out").removesuffix("_out")
    return f"delegate {step.delegate}" if isinstance(step, DelegateCall) else "move"


COLUMNS, ROWS = 72, 24
"""The size of the picture; more steps or bytes share a character."""
_NAMES = ascii_letters + digits
_FREE, _MANY, _LISTED = "·", "#", 20


def to_text(plan: MemoryPlan, columns: int = COLUMNS, rows: int = ROWS) -> str:
    """Draw steps from left to right and bytes of the arena upwards, with a letter for each tensor.

    A character that several tensors share shows the one that covers most of it. The largest tensors
    get letters; the others are `#`. Below the picture are listed the tensors of the step that
    bounds the arena, then the largest of the others.

    Args:
        plan: the plan of a method.
        columns, rows: the maximum size of the picture.
    """
    columns, rows = min(columns, max(plan.steps, 1)), min(rows, max(len(plan.held) * 2, 4))
    largest = sorted(plan.held, key=lambda held: (-held.bytes, held.first, held.offset))
    names = dict(zip(largest, _NAMES, strict=False))
    lines = [f"{plan.method}: {plan.size:,} bytes of arena, {counted(plan.steps, 'step')}", ""]
    wide = len(f"{plan.size:,}")
    for row in reversed(range(rows)):
        low, high = plan.size * row // rows, plan.size * (row + 1) // rows
        shown = "".join(
            _cell(plan, names, range(low, max(high, low + 1)), _steps(plan, column, columns))
            for column in range(columns)
        )
        lines.append(f"{low:>{wide},} {shown}")
    at, most = plan.busiest
    lines += [f"{'':{wide}} {_ruler(plan, at, columns)}", "", _bound(plan, at, most)]
    together = [held for held in largest if held.first <= at <= held.last]
    lines += [_row(names.get(held, _MANY), held) for held in together]
    others = [held for held in largest if held not in together]
    lines += (
        ["elsewhere", *(_row(names.get(held, _MANY), held) for held in others)] if others else []
    )
    return "\n".join(lines)


def _steps(plan: MemoryPlan, column: int, columns: int) -> range:
    start = plan.steps * column // columns
    return range(start, max(plan.steps * (column + 1) // columns, start + 1))


def _cell(plan: MemoryPlan, names: dict[Held, str], place: range, steps: range) -> str:
    shares = [
        (
            _common(place, held.offset, held.offset + held.bytes)
            * _common(steps, held.first, held.last + 1),
            held,
        )
        for held in plan.held
    ]
    share, held = max(shares, key=lambda pair: pair[0], default=(0, None))
    return names.get(held, _MANY) if share and held is not None else _FREE


def _common(part: range, start: int, stop: int) -> int:
    return max(0, min(part.stop, stop) - max(part.start, start))


def _ruler(plan: MemoryPlan, at: int, columns: int) -> str:
    """Return a ruler that marks the step of the peak."""
    column = next(c for c in range(columns) if at in _steps(plan, c, columns))
    text = f"^ step {at}"
    return (
        " " * column + text if column + len(text) <= COLUMNS else f"{f'step {at} ^':>{column + 1}}"
    )


def _bound(plan: MemoryPlan, at: int, most: int) -> str:
    """Describe why the arena is not smaller: the tensors of one step, or fragmentation."""
    text = f"step {at} holds {most:,} bytes at once"
    if most >= plan.size:
        return f"{text}, all of the arena: no placement is smaller, other calls would be"
    return f"{text}; the other {plan.size - most:,} are gaps between tensors and alignment"


def _row(name: str, held: Held) -> str:
    place = f"{held.bytes:>10,} bytes at {held.offset:>9,}, steps {held.first} to {held.last}"
    return f"  {name} {place}  {held.label}"
