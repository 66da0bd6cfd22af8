"""Find the input dimensions of a model that can be dynamic, and the lines that specialize others.

The model is exported with every requested dimension dynamic, compared with eager PyTorch at further
sizes, and exported again without the dimensions that fail. While torch traces, its log states which
line of the model specialized a symbol.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.nn import Module

from stepwell.ir.compat.torch import torch_private
from stepwell.ir.diagnostics import Problem, StepwellError, first_line
from stepwell.ir.options import nearest
from stepwell.loaders.dynamic_shapes.candidates import KINDS, Inputs, Place, inputs_of, widest
from stepwell.loaders.dynamic_shapes.exporting import SourceLine, exported, line_of
from stepwell.loaders.dynamic_shapes.trials import (
    Fault,
    Open,
    Trial,
    Tried,
    narrowed,
    opened,
    tried,
)

Holds = Mapping[str, tuple[Open, Tried]]
"""By symbol: a dynamic size and the result of its trials."""
Limits = Mapping[int, int | None]
"""By axis: the greatest size; None: twice the example's."""
Dynamic = str | Sequence[str] | Mapping[str, int | None] | Mapping[str, Limits]


WHOLE = ("batch", "image")
"""Kinds whose axes must all be dynamic if they are requested."""


@dataclass(frozen=True)
class OpenAxis:
    """An axis of an input that was requested to be dynamic.

    Attributes:
        input: the input's name in `forward` (`x`, `states[0]`).
        axis: the axis, counted from 0.
        given: the axis' size in the example.
        kind: `batch`, `sequence`, `image` or `all`, as requested.
        size: the axis' size in the program (`s77`, `2*s77`); None if it is static.
        least, most: bounds of the sizes that the program accepts.
        step: the distance between accepted sizes: 32 if the model halves the size five times.
        pinned: the reason if the axis is not dynamic.
        line: the line of the model's source that specializes the axis.
    """

    input: str
    axis: int
    given: int
    kind: str
    size: str | None
    least: int
    most: int
    step: int = 1
    pinned: str | None = None
    line: SourceLine | None = None

    def __str__(self) -> str:
        where = f"{self.input} axis {self.axis} ({self.given})"
        if self.size is None:
            line = f", {self.line}: {self.line.code}" if self.line else ""
            return f"{where}: {self.pinned}{line}"
        steps = f" in steps of {self.step}" if self.step != 1 else ""
        return f"{where}: {self.size}, {self.least} to {self.most}{steps}"


@dataclass(frozen=True)
class OpenSizes:
    """The dimensions of a model that can be dynamic.

    Attributes:
        axes: the requested axes.
        program: the export with these dynamic dimensions, ready for lowering; static if there are
            none.
        inputs, keywords: the inputs of the export; sizes of 1 in the example are enlarged.
        tried: symbol → sizes at which the program agreed with the model.
    """

    axes: tuple[OpenAxis, ...]
    program: ExportedProgram = field(repr=False)
    inputs: tuple[Any, ...] = field(repr=False)
    keywords: Mapping[str, Any] = field(repr=False)
    tried: Mapping[str, tuple[int, ...]] = field(default_factory=dict[str, "tuple[int, ...]"])

    @property
    def is_open(self) -> bool:
        """Whether any requested axis is dynamic in the exported program."""
        return any(axis.size is not None for axis in self.axes)

    def __str__(self) -> str:
        return "\n".join(map(str, self.axes)) or "no size was asked for"


def dynamic_shapes(
    model: Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic: str | Sequence[str] | Mapping[str, int | None] | Mapping[str, Limits] = "all",
) -> OpenSizes:
    """Find which input dimensions of a model can be dynamic.

    Args:
        model: as for `torch.export.export`.
        args: example inputs; a requested axis of size 1 is enlarged.
        kwargs: inputs by name.
        dynamic: `"batch"`, `"sequence"`, `"image"` or `"all"`, several of them, or each with its
            greatest size: `{"batch": 16, "image": 512}`. The default is twice the example's size,
            and at least 8 for a batch. Memory is planned for the greatest size. An axis has a name,
            too: `"x:1"` is axis 1 of the input `x`, and `{"x": {1: 1600}}` is `{"x:1": 1600}`.

    Raises:
        StepwellError: an unknown kind, a greatest size below the example's, or a model that torch
            cannot export at any size.
    """
    given = inputs_of(model, args, kwargs)
    asked = _asked(given, dynamic)
    most = {place: limit for place, (_, limit) in asked.items()}
    pins: dict[Place, Fault] = {}
    inputs = _widened(model, given, most, pins)
    kept = {place for place in most if place not in pins}
    program, found = _exported(model, inputs, kept, most, pins)
    holds: Holds = {}
    while found:
        trial = Trial(model, program, inputs)
        holds = {size.symbol: (size, tried(trial, size)) for size in found}
        wrong = [(size, seen) for size, seen in holds.values() if seen.fault is not None]
        if not wrong:
            holds = _within(trial, holds)
            break
        for size, seen in wrong:
            assert seen.fault is not None
            pins.update(dict.fromkeys(size.places, seen.fault))
        kept -= pins.keys()
        program, found = _exported(model, inputs, kept, most, pins)
    if any(seen.step > 1 for _, seen in holds.values()):
        inputs, program, holds = _in_steps(model, inputs, kept, most, holds, program)

    def is_one(size: Open, seen: Tried) -> bool:
        kinds = {asked[place][0] for place in size.places}
        return 1 in seen.sizes and size.least > 1 and "image" not in kinds

    ones = {size.symbol for size, seen in holds.values() if is_one(size, seen)}
    for size, seen in holds.values():
        _bound(program, size.symbol, 1 if is_one(size, seen) else size.least, size.most)
    axes = tuple(_axis(given, place, asked[place][0], holds, pins, ones) for place in sorted(asked))
    sizes = {symbol: seen.sizes for symbol, (_, seen) in holds.items() if seen.fault is None}
    return OpenSizes(axes, program, inputs.args, inputs.kwargs, sizes)


def insist(sizes: OpenSizes, dynamic: Dynamic) -> None:
    """Check that the requested dimensions are dynamic.

    For the kind `sequence`, one dynamic axis is enough, because models specialize their channels.

    Raises:
        StepwellError: an axis is static; the message names each and the line that specializes it.
    """
    kinds = _kinds(dynamic)
    pinned = [axis for axis in sizes.axes if axis.size is None]
    lost = {
        kind
        for kind in kinds
        if kind in WHOLE
        or ":" in kind
        or not any(axis.kind == kind for axis in sizes.axes if axis.size)
    }
    wrong = [axis for axis in pinned if axis.kind in lost]
    if wrong or not sizes.axes:
        raise StepwellError(
            [
                Problem(
                    f"the size of {axis.input} along axis {axis.axis} is not dynamic: "
                    f"{axis.pinned}",
                    f"{axis.line}: {axis.line.code}" if axis.line else None,
                    "compute it from x.shape there, or lower the program with this size fixed",
                )
                for axis in wrong
            ]
            or [Problem(f"no input has a size of the kind {', '.join(kinds)}")]
        )


def _kinds(dynamic: Dynamic) -> dict[str, int | None]:
    kinds: dict[str, int | None]
    if isinstance(dynamic, str):
        kinds = {dynamic: None}
    else:
        given = dynamic if isinstance(dynamic, Mapping) else dict.fromkeys(dynamic)
        kinds = {}
        for name, limit in given.items():
            if isinstance(limit, Mapping):
                kinds |= {f"{name}:{axis}": most for axis, most in limit.items()}
            else:
                kinds[name] = limit
    for kind, most in kinds.items():
        if kind not in KINDS and ":" not in str(kind):
            near = nearest(str(kind), list(KINDS))
            raise StepwellError(
                f"{kind!r} is no kind of dynamic size",
                help=f"{near}kinds are {', '.join(KINDS)}, and an axis of an input, as in x:1",
            )
        if most is not None and most < 1:
            raise StepwellError(f"the largest size of {kind!r} is {most}, must be at least 1")
    return kinds


def _named(inputs: Inputs, axis: str) -> Place:
    """Return the axis that has a name such as `x:1`, or `x:-1` for the last one.

    Raises:
        StepwellError: no input has the name, or it has no such axis.
    """
    name, _, number = axis.rpartition(":")
    labels = inputs.labels
    if name not in labels:
        near, known = nearest(name, labels), ", ".join(labels)
        raise StepwellError(f"no input is named {name!r}", help=f"{near}inputs are {known}")
    index = labels.index(name)
    rank = inputs.tensors[index].dim()
    if not number.lstrip("-").isdecimal() or not -rank <= int(number) < rank:
        raise StepwellError(f"input {name!r} of rank {rank} has no axis {number!r}")
    return index, int(number) % rank


def _asked(inputs: Inputs, dynamic: Dynamic) -> dict[Place, tuple[str, int]]:
    """Return the requested axes, with the kind and the greatest size of each."""
    most: dict[Place, tuple[str, int]] = {}
    for kind, limit in _kinds(dynamic).items():
        batch = set(KINDS["batch"](inputs))
        for place in KINDS[kind](inputs) if kind in KINDS else [_named(inputs, kind)]:
            size = inputs.size(place)
            if limit is not None and limit < size:
                if kind == "sequence":
                    continue  # Only axes that can be dynamic: no channels.
                name = f"{inputs.labels[place[0]]} axis {place[1]}"
                raise StepwellError(
                    f"{name} has size {size} in the example, above the {kind} limit {limit}"
                )
            named = "batch" if place in batch else kind
            most.setdefault(place, (kind, limit or widest(named, size)))
    return most


def _widened(
    model: Module,
    inputs: Inputs,
    most: Mapping[Place, int],
    pins: dict[Place, Fault],
) -> Inputs:
    """Enlarge requested axes of size 1 to 2: torch treats a size of 1 as static."""
    single = [place for place in most if inputs.size(place) == 1 and most[place] > 1]
    fixed = [p for p in most if inputs.size(p) < 2 and p not in single]
    pins.update(dict.fromkeys(fixed, Fault("torch treats a size of 0 or 1 as static")))
    wide = inputs.resized(dict.fromkeys(single, 2))
    if single:
        try:
            with torch.no_grad():
                model(*wide.resized({}).args, **wide.resized({}).kwargs)
        except Exception as error:
            fault = Fault(f"the model does not accept 2: {first_line(error)}", line_of(error))
            pins.update(dict.fromkeys(single, fault))
            return inputs.resized({})
    return wide


def _exported(
    model: Module,
    inputs: Inputs,
    kept: set[Place],
    most: Mapping[Place, int],
    pins: dict[Place, Fault],
) -> tuple[ExportedProgram, tuple[Open, ...]]:
    """Export with as many requested dynamic axes as possible; drop one axis at a time."""
    asked = sorted(kept)
    try:
        program, pinned = exported(model, inputs, kept, most)
    except Exception as error:
        if not kept:
            fact = f"torch.export.export fails: {type(error).__name__}: {first_line(error)}"
            raise StepwellError(fact, str(line_of(error) or "") or None) from error
        for place in asked:
            fault = _alone(model, inputs, place, most)
            if fault is not None:
                pins[place] = fault
                kept.discard(place)
        if len(kept) == len(asked):  # Each axis can be dynamic alone, but not all.
            for place in asked[1:]:
                pins[place] = Fault(f"with other dynamic axes: {first_line(error)}", line_of(error))
                kept.discard(place)
        return _exported(model, inputs, kept, most, pins)
    found = opened(program, inputs)
    free = {place for size in found for place in size.places}
    for place in asked:
        if place not in free:
            number, line = pinned.get(place, (str(inputs.size(place)), None))
            pins[place] = Fault(f"it has to be {number}", line)
            kept.discard(place)
    return program, found


def _alone(model: Module, inputs: Inputs, place: Place, most: Mapping[Place, int]) -> Fault | None:
    """Return why a model cannot be exported with only one axis dynamic."""
    try:
        exported(model, inputs, {place}, most)
    except Exception as error:
        return Fault(f"torch cannot export it as dynamic: {first_line(error)}", line_of(error))
    return None


def _in_steps(
    model: Module,
    inputs: Inputs,
    kept: set[Place],
    most: Mapping[Place, int],
    holds: Holds,
    program: ExportedProgram,
) -> tuple[Inputs, ExportedProgram, Holds]:
    """Export with sizes that are multiples of their steps, if torch can.

    Halved sizes are then known to be even, and the program accepts no others.
    """
    multiples: dict[Place, tuple[str, int, int]] = {}
    wider: dict[Place, int] = {}
    for at, (size, seen) in enumerate(holds.values()):
        high = min(size.most, *(most[place] for place in size.places)) // seen.step
        fits = size.given % seen.step == 0 and high > 1
        if seen.step == 1 or not fits or any(of(7) != 7 for of in size.places.values()):
            continue
        multiples.update(dict.fromkeys(size.places, (f"n{at}", seen.step, high)))
        if size.given == seen.step:  # Size 1 is treated as static.
            wider.update(dict.fromkeys(size.places, 2 * seen.step))
    again = inputs.resized({place: inputs.size(place) for place in inputs.places} | wider)
    try:
        stepped, _ = exported(model, again, kept, most, multiples)
    except Exception:  # An error about multiples, not requested.
        return inputs, program, holds
    trial = Trial(model, stepped, again)
    found = {size.symbol: (size, tried(trial, size)) for size in opened(stepped, again)}
    if {p for size, _ in found.values() for p in size.places} != kept or any(
        seen.fault is not None for _, seen in found.values()
    ):
        return inputs, program, holds
    return again, stepped, _within(trial, found)


def _within(trial: Trial, holds: Holds) -> Holds:
    return {name: (narrowed(trial, *held), held[1]) for name, held in holds.items()}


def _bound(program: ExportedProgram, symbol: str, least: int, most: int) -> None:
    """Set a symbol's range to the tried sizes: from 1 if torch starts at 2, up to the valid end."""
    ranges = program.range_constraints
    for name in list(ranges):
        if str(name) == symbol:
            ranges[name] = torch_private.ValueRanges(least, most)  # pyright: ignore


def _axis(
    inputs: Inputs,
    place: Place,
    kind: str,
    holds: Holds,
    pins: Mapping[Place, Fault],
    ones: Collection[str],
) -> OpenAxis:
    size, label = inputs.size(place), inputs.labels[place[0]]
    fault = pins.get(place, Fault("it is not one dynamic size"))
    for symbol, (found, seen) in holds.items() if place not in pins else ():
        if place in found.places:
            of = found.places[place]
            least = 1 if symbol in ones else found.least
            unit = of(2) - of(1)
            text = symbol if unit == 1 else f"{unit}*{symbol}"
            ends = of(least), of(found.most), unit * seen.step
            return OpenAxis(label, place[1], size, kind, text, *ends)
    return OpenAxis(label, place[1], size, kind, None, size, size, 1, fault.fact, fault.line)
