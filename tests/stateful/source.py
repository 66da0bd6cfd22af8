"""A program with a history as text: what it holds, its methods of parts, and how it is called."""

from __future__ import annotations

import copy
import linecache
import re
import sys
import types
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from ..random_programs import values

NAME = "history_program"
FILE = f"{NAME}.py"
"""The name under which a program's text is compiled: where refusals say they are."""


@dataclass(frozen=True)
class Part:
    """Lines that turn `h` into another `h` of the same shape, so that any part can be taken out."""

    lines: tuple[str, ...]
    held: tuple[tuple[str, str], ...] = ()
    """What the part wants the module to hold: name and expression."""
    taken: tuple[tuple[str, str, tuple[str, ...]], ...] = ()
    """Inputs beside the stream: name, expression of a call's number and sizes, the axes' sizes."""
    given: tuple[str, ...] = ()
    """Outputs beside the stream."""

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Part:
        return cls(
            tuple(data["lines"]),
            tuple((a, b) for a, b in data["held"]),
            tuple((a, b, tuple(c)) for a, b, c in data["taken"]),
            tuple(data["given"]),
        )


@dataclass(frozen=True)
class Call:
    """One call: of which method, with which sizes, the stream fed back from the call before or not."""

    method: int
    sizes: Mapping[str, int]
    fed: bool = False


@dataclass(frozen=True)
class Program:
    """The description from which the text is written; the shrinker takes away from it."""

    shape: tuple[str, ...]
    """Of the stream: numbers, and names of sizes that vary."""
    methods: tuple[tuple[Part, ...], ...]
    calls: tuple[Call, ...]
    limits: Mapping[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    """Least and greatest of each size that varies; the sample is what the first call has."""
    streams: tuple[bool, ...] = ()
    """Whether each method gives the stream back."""
    quantized: str = ""
    """How: `static`, `dynamic`, `8da4w`, or not at all."""

    @property
    def names(self) -> tuple[str, ...]:
        """What the methods are called."""
        return ("forward", "second", "third")[: len(self.methods)]

    @property
    def text(self) -> str:
        """The whole as Python."""
        held = {
            name: text for method in self.methods for part in method for name, text in part.held
        }
        lines = [
            "from tests.random_programs.values import *",
            "",
            "class History(nn.Module):",
            "    def __init__(self):",
            "        super().__init__()",
            *(f"        {name} = {text}" for name, text in held.items()),
        ]
        for name, method, streams in zip(self.names, self.methods, self.streams, strict=True):
            taken = ", ".join(["h", *(t[0] for part in method for t in part.taken)])
            lines += ["", f"    def {name}(self, {taken}):"]
            for number, part in enumerate(method):
                lines += [f"        {line}  # {number}" for line in part.lines]
            given = [*(["h"] if streams else []), *(g for part in method for g in part.given)]
            lines.append(f"        return ({', '.join(given)},)")
        return "\n".join([*lines, ""])

    def part_of(self, line: int) -> tuple[int, int] | None:
        """The method and part that a line of the text belongs to."""
        lines = self.text.split("\n")
        if line > len(lines) or (marked := re.search(r"  # (\d+)$", lines[line - 1])) is None:
            return None
        above = [text for text in lines[:line] if text.startswith("    def ")]
        return len(above) - 2, int(marked[1])

    def without(self, dropped: set[tuple[int, int]]) -> Program | None:
        """The program without some parts; None where a method would give nothing."""
        methods = tuple(
            tuple(part for at, part in enumerate(method) if (number, at) not in dropped)
            for number, method in enumerate(self.methods)
        )
        if not all(methods):
            return None
        streams = tuple(
            kept or not any(part.given for part in method)
            for kept, method in zip(self.streams, methods, strict=True)
        )
        return replace(self, methods=methods, streams=streams)

    def core(self) -> nn.Module:
        """A fresh module."""
        text = self.text
        linecache.cache[FILE] = (len(text), None, text.splitlines(True), FILE)
        space = sys.modules.setdefault(NAME, types.ModuleType(NAME)).__dict__  # Dynamo asks there.
        space.update({name: getattr(values, name) for name in values.__all__})
        code = compile(text.replace("from tests.random_programs.values import *", ""), FILE, "exec")
        exec(code, space)
        return space["History"]().eval()

    def given(self, number: int) -> tuple[Tensor, ...]:
        """The inputs of a call."""
        call = self.calls[number]
        space: dict[str, Any] = {name: getattr(values, name) for name in values.__all__}
        space |= {**call.sizes, "k": number}
        shape = tuple(eval(size, space) for size in self.shape)
        found = [values.normal(1000 + number, shape)]
        for part in self.methods[call.method]:
            found += [eval(text, space) for _, text, _ in part.taken]
        return tuple(found)

    def dynamic_shapes(self, method: int, *, stated: bool) -> tuple[Any, ...] | None:
        """The axes that vary, as `torch.export.export` takes them.

        Args:
            method: its number.
            stated: whether each stays open as it is (torch refuses what closes or narrows one), or
                as far as torch lets it.
        """
        if not self.limits:
            return None
        dims = {
            size: torch.export.Dim(size, min=low, max=high)
            if stated
            else torch.export.Dim.AUTO(min=low, max=high)
            for size, (low, high) in self.limits.items()
        }
        axes = [self.shape, *(t[2] for part in self.methods[method] for t in part.taken)]
        return tuple(
            {at: dims[size] for at, size in enumerate(each) if size in dims} for each in axes
        )

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of_json(cls, data: Mapping[str, Any]) -> Program:
        return cls(
            tuple(data["shape"]),
            tuple(tuple(Part.of(part) for part in method) for method in data["methods"]),
            tuple(Call(**call) for call in data["calls"]),
            {name: (low, high) for name, (low, high) in data["limits"].items()},
            tuple(data["streams"]),
            data["quantized"],
        )


class Method(nn.Module):
    """One method of a core as a module that export takes."""

    def __init__(self, core: nn.Module, name: str) -> None:
        super().__init__()
        self.core, self.name = core, name

    def forward(self, *inputs: Tensor) -> Any:
        return getattr(self.core, self.name)(*inputs)


def exported(module: nn.Module, program: Program, number: int) -> ExportedProgram:
    """A method, which takes a flat list of tensors, as torch exports it; open where it can be.

    Args:
        module: the method.
        program: what it is of.
        number: its own.
    """
    first = next(i for i, call in enumerate(program.calls) if call.method == number)
    given = program.given(first)
    for stated in (True, False) if program.limits else (False,):
        shapes = program.dynamic_shapes(number, stated=stated)
        nested = (shapes,) if shapes is not None and isinstance(module, Method) else shapes
        try:
            return torch.export.export(module, given, dynamic_shapes=nested, strict=False)
        except Exception:
            if not stated:
                raise
    raise AssertionError


class Calls(nn.Module):
    """All calls of a program, one after the other, as one module: flat outputs of each.

    Args:
        methods: what each method is, sharing what they share.
        calls: in order.
    """

    def __init__(self, methods: Sequence[nn.Module], calls: Sequence[Call]) -> None:
        super().__init__()
        self.methods, self.calls = nn.ModuleList(methods), calls

    def forward(self, *given: Sequence[Tensor]) -> list[Tensor]:
        return called(lambda number, inputs: self.methods[number](*inputs), self.calls, given)


def called(run: Any, calls: Sequence[Call], given: Sequence[Sequence[Tensor]]) -> list[Tensor]:
    """The outputs of all calls; a stream is fed back where a call asks for that, and fits.

    Args:
        run: from the number of a method and its inputs to nested outputs.
        calls: in order.
        given: the inputs of each.
    """
    outputs: list[Tensor] = []
    last: Tensor | None = None
    for call, inputs in zip(calls, given, strict=True):
        flat = [x.clone() for x in inputs]
        if call.fed and last is not None and last.shape == flat[0].shape:
            flat[0] = last.to(flat[0].dtype).clone()
        made = [x.clone() for x in pytree.tree_leaves(run(call.method, flat))]
        outputs += made
        last = made[0] if made and made[0].is_floating_point() else last
    return outputs


def eager(program: Program, *, wide: bool = False) -> Calls:
    """A fresh module of all calls; in float64 where `wide`."""
    core = program.core()
    if wide:
        core = copy.deepcopy(core).double()
    methods = [Method(core, name) for name in program.names]
    return Calls(methods, program.calls)
