"""A random program as text: what it holds, its methods, and the inputs of its calls."""

from __future__ import annotations

import copy
import linecache
import logging
import re
import sys
import types
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram
from torch.utils import _pytree as pytree

from . import values

NAME = "random_program"
FILE = f"{NAME}.py"
"""The name under which a program's text is compiled: where refusals say they are."""
IMPORT = "from tests.random_programs.values import *"
LARGEST = 4e3
"""Sums of larger numbers are not compared over several calls."""
VALUE = re.compile(r"\b(?:self\.[cm]\d+|[vx]\d+)\b")


@dataclass(frozen=True)
class Method:
    """Statements of one or more lines each, and the values that are returned."""

    statements: tuple[str, ...]
    outputs: tuple[str, ...]

    def without(self, dropped: Iterable[int]) -> Method:
        """The method without some statements, and without what reads their values."""
        gone: set[str] = set()
        kept: list[str] = []
        for index, text in enumerate(self.statements):
            if index in dropped or set(VALUE.findall(text)) & gone:
                gone |= defined(text)
            else:
                kept.append(text)
        outputs = tuple(name for name in self.outputs if name not in gone)
        made = [name for text in kept for name in sorted(defined(text))]
        return Method(tuple(kept), outputs or tuple(made[-1:]))

    def tidy(self) -> Method:
        """The method without unused statements."""
        statements = list(self.statements)
        while True:
            read = set(self.outputs)
            for text in statements:
                read |= set(VALUE.findall(text)) - defined(text)
            kept = [s for s in statements if not (d := defined(s)) or d & read or mutates(s)]
            if kept == statements:
                return replace(self, statements=tuple(kept))
            statements = kept

    @property
    def used(self) -> set[str]:
        """The names that occur."""
        return set(self.outputs).union(*(VALUE.findall(text) for text in self.statements))


@dataclass(frozen=True)
class Call:
    """One call: of which method, with which sizes, with the last call's output as input or not."""

    method: int = 0
    sizes: Mapping[str, int] = field(default_factory=dict[str, int])
    fed: bool = False


@dataclass(frozen=True)
class Program:
    """The description from which the text is written; the shrinker takes away from it."""

    inputs: tuple[tuple[str, str], ...]
    """Name and expression of each, of `k`, the call's number, and of the sizes `a` and `b`."""
    methods: tuple[Method, ...]
    held: tuple[tuple[str, str], ...] = ()
    """Parameters, buffers and layers: name and expression."""
    calls: tuple[Call, ...] = (Call(),)
    nesting: str = "flat"
    """How inputs are passed: `flat`, `pair` (all but the first in a tuple) or `dict`."""
    returned: str = "tuple"
    """How outputs are returned: `tuple` or `dict`."""
    limits: Mapping[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    """Least and greatest of each dynamic size; the example is the first call's."""
    varying: tuple[tuple[str, int, str], ...] = ()
    """(input, axis, size) of each dynamic axis."""
    training: bool = False
    payload: str = ""
    """The MX format of its products."""
    quantized: str = ""
    """How: `static`, `dynamic`, `8da4w`, or not at all."""

    @classmethod
    def of(
        cls,
        inputs: Sequence[tuple[str, str]],
        *statements: str,
        outputs: Sequence[str],
        **more: Any,
    ) -> Program:
        """A program of one method."""
        return cls(tuple(inputs), (Method(statements, tuple(outputs)),), **more)

    @property
    def names(self) -> tuple[str, ...]:
        """What the methods are called."""
        return ("forward", "second", "third")[: len(self.methods)]

    @property
    def has_state(self) -> bool:
        """Whether a statement writes to what the module holds."""
        texts = [text for method in self.methods for text in method.statements]
        return any(mutates(text, "self") for text in texts)

    def _nested(self, first: str, rest: Sequence[str]) -> str:
        """Inputs after the first as `nesting` has them."""
        if not rest or self.nesting == "flat":
            return ", ".join([first, *rest])
        if self.nesting == "pair":
            return f"{first}, ({', '.join(rest)},)"
        return f"{first}, {{{', '.join(f'{name!r}: {name}' for name in rest)}}}"

    def _lines(self) -> list[tuple[str, tuple[int, int] | None]]:
        """The text's lines, and of which method's which statement each is."""
        first, *rest = (name for name, _ in self.inputs)
        nested = self.nesting if rest else "flat"
        taken = ", ".join([first, *(["rest"] if nested != "flat" else rest)])
        opened = {
            "flat": [],
            "pair": [f"{', '.join(rest)}, = rest"],
            "dict": [f"{name} = rest[{name!r}]" for name in rest],
        }[nested]
        lines: list[tuple[str, tuple[int, int] | None]] = [
            (line, None)
            for line in (
                *(IMPORT, "", "class RandomProgram(nn.Module):", "    def __init__(self):"),
                "        super().__init__()",
                *(f"        {name} = {text}" for name, text in self.held),
            )
        ]
        for number, (name, method) in enumerate(zip(self.names, self.methods, strict=True)):
            lines += [("", None), (f"    def {name}(self, {taken}):", None)]
            lines += [(f"        {line}", None) for line in opened]
            for index, text in enumerate(method.statements):
                lines += [(f"        {line}", (number, index)) for line in text.split("\n")]
            if self.returned == "dict":
                out = ", ".join(f'"o{i}": {n}' for i, n in enumerate(method.outputs))
                out = f"{{{out}}}"
            else:
                out = ", ".join(method.outputs) + ("," if len(method.outputs) == 1 else "")
            lines.append((f"        return {out}", None))
        return lines

    @property
    def text(self) -> str:
        """The whole as Python, from imports to inputs."""
        first, *rest = (name for name, _ in self.inputs)
        sizes = "".join(f", {name}={size}" for name, size in self.calls[0].sizes.items())
        calls = [(self.names[c.method], dict(c.sizes), "fed" * c.fed) for c in self.calls]
        return "\n".join(
            [
                *(line for line, _ in self._lines()),
                *("", f"def inputs(k=0{sizes}):"),
                *(f"    {name} = {text}" for name, text in self.inputs),
                *(f"    return {self._nested(first, rest)},", ""),
                *([f"calls = {calls}", ""] if len(calls) > 1 else []),
            ]
        )

    def statement_of(self, line: int) -> tuple[int, int] | None:
        """The method and statement that a line of the text belongs to."""
        lines = self._lines()
        return lines[line - 1][1] if 0 < line <= len(lines) else None

    def without(self, dropped: Iterable[tuple[int, int]]) -> Program | None:
        """The program without some statements; None where a method would return nothing."""
        gone = set(dropped)
        methods = tuple(
            method.without({at for n, at in gone if n == number})
            for number, method in enumerate(self.methods)
        )
        if not all(method.outputs and method.statements for method in methods):
            return None
        return replace(self, methods=methods).tidy()

    def tidy(self) -> Program:
        """The program without what is unused."""
        methods = tuple(method.tidy() for method in self.methods)
        used = set[str]().union(*(method.used for method in methods))
        if any(call.fed for call in self.calls):
            used.add(self.inputs[0][0])
        inputs = tuple(pair for pair in self.inputs if pair[0] in used) or self.inputs[:1]
        names = {name for name, _ in inputs}
        varying = tuple(v for v in self.varying if v[0] in names)
        drawn = " ".join(text for _, text in inputs)
        sizes = {n for n in self.limits if re.search(rf"\b{n}\b", drawn)}
        calls = tuple(
            replace(call, sizes={n: s for n, s in call.sizes.items() if n in sizes})
            for call in self.calls
        )
        return replace(
            self,
            inputs=inputs,
            methods=methods,
            held=tuple(pair for pair in self.held if pair[0] in used),
            calls=calls,
            varying=varying,
            limits={n: limit for n, limit in self.limits.items() if n in sizes},
        )

    def namespace(self, *, wide: bool = False) -> dict[str, Any]:
        """What the text defines, compiled; in float64 where `wide`."""
        text = self.text
        linecache.cache[FILE] = (len(text), None, text.splitlines(True), FILE)
        sys.modules[NAME] = module = types.ModuleType(NAME)  # Dynamo looks there.
        space = module.__dict__
        space.update({name: getattr(values, name) for name in values.__all__})
        space.update(values.WIDE if wide else {})
        exec(compile(text.replace(IMPORT, ""), FILE, "exec"), space)
        return space

    def module(self, *, wide: bool = False) -> nn.Module:
        """A fresh module; the wide one holds the same numbers, and computes in float64."""
        made = self.namespace()["RandomProgram"]().train(self.training)
        if wide:
            made = copy.deepcopy(made).double()
            made.__class__ = self.namespace(wide=True)["RandomProgram"]
        return made

    def given(self, number: int = 0) -> tuple[Any, ...]:
        """The inputs of a call, nested as the methods take them."""
        return self.namespace()["inputs"](number, **self.calls[number].sizes)

    def every_given(self) -> tuple[Any, ...]:
        """The inputs of all calls."""
        return tuple(self.given(number) for number in range(len(self.calls)))

    def dynamic_shapes(self, *, stated: bool) -> tuple[Any, ...] | None:
        """The dynamic axes, as `torch.export.export` takes them.

        Args:
            stated: whether each has its range (torch refuses a program that narrows one), or as
                much of it as torch infers.
        """
        if not self.varying:
            return None
        dims: dict[str, Any] = {
            name: Dim(name, min=low, max=high) if stated else Dim.AUTO(min=low, max=high)
            for name, (low, high) in self.limits.items()
        }
        by_input: dict[str, dict[int, Any]] = {}
        for name, axis, size in self.varying:
            by_input.setdefault(name, {})[axis] = dims[size]
        each = [by_input.get(name) for name, _ in self.inputs]
        if self.nesting == "flat" or len(each) == 1:
            return tuple(each)
        rest = dict(zip([n for n, _ in self.inputs[1:]], each[1:], strict=True))
        return (each[0], rest if self.nesting == "dict" else tuple(each[1:]))

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of_json(cls, data: Mapping[str, Any]) -> Program:
        def tuples(value: Any) -> Any:
            return tuple(map(tuples, value)) if isinstance(value, list | tuple) else value

        more = {key: tuples(value) for key, value in data.items()}
        methods = [{key: tuples(value) for key, value in m.items()} for m in more["methods"]]
        more["methods"] = tuple(Method(**method) for method in methods)
        more["calls"] = tuple(Call(**call) for call in more["calls"])
        more["limits"] = {name: tuple(limit) for name, limit in more["limits"].items()}
        return cls(**more)


def defined(text: str) -> set[str]:
    """The names that a statement gives values to."""
    found: set[str] = set()
    for line in text.split("\n"):
        matched = re.match(r"^((?:v\d+\s*,\s*)*v\d+)\s*,?\s*=[^=]", line)
        if matched:
            found |= set(re.findall(r"v\d+", matched[1]))
    return found


def mutates(text: str, of: str = "") -> bool:
    """Whether a statement writes to a value that exists: of the module alone if `of` is self."""
    made = defined(text)
    target = r"(self\.c\d+|[vx]\d+)"
    for line in text.split("\n"):
        written = re.findall(rf"^{target}(?:[.\[].*?[\])])?(?:, [^=]*)?\s*[-+*/]?=[^=]", line)
        written += re.findall(rf"^{target}.*?\.\w+_\(", line)
        written += re.findall(rf"\bout={target}", line)
        if any(name not in made and name.startswith(of) for name in written):
            return True
    return False


def floats(value: Any, change: Any) -> Any:
    """Nested inputs, with their floating tensors changed."""
    return pytree.tree_map(
        lambda x: change(x) if isinstance(x, Tensor) and x.is_floating_point() else x, value
    )


def copied(given: Any) -> Any:
    return pytree.tree_map(lambda x: x.clone() if isinstance(x, Tensor) else x, given)


class Bound(nn.Module):
    """One method of a module as a module that export takes."""

    def __init__(self, core: nn.Module, name: str) -> None:
        super().__init__()
        self.core, self.name = core, name

    def forward(self, *inputs: Any) -> Any:
        return getattr(self.core, self.name)(*inputs)


class Calls(nn.Module):
    """All calls of a program, one after the other, as one module: the flat outputs of each."""

    def __init__(self, methods: Sequence[nn.Module], calls: Sequence[Call]) -> None:
        super().__init__()
        self.methods, self.calls = nn.ModuleList(methods), calls

    def forward(self, *given: Sequence[Any]) -> list[Any]:
        return called(lambda number, inputs: self.methods[number](*inputs), self.calls, given)


def called(run: Any, calls: Sequence[Call], given: Sequence[Sequence[Any]]) -> list[Any]:
    """The outputs of all calls, with the first output of one fed to the next that asks for it.

    Args:
        run: from the number of a method and its nested inputs to nested outputs.
        calls: in order.
        given: the inputs of each.
    """
    outputs: list[Any] = []
    last: Any = None
    for call, inputs in zip(calls, given, strict=True):
        first, *rest = copied(tuple(inputs))
        if call.fed and isinstance(last, Tensor) and last.shape == first.shape:
            first = last.to(first.dtype).clone()
        made = copied(pytree.tree_leaves(run(call.method, [first, *rest])))
        outputs += made
        if made and isinstance(made[0], Tensor) and made[0].is_floating_point():
            last = made[0]
    return outputs


def all_calls(program: Program, *, wide: bool = False) -> Calls:
    """A fresh module of all calls."""
    core = program.module(wide=wide)
    return Calls([Bound(core, name) for name in program.names], program.calls)


def is_fit(program: Program, *, ordinary: bool) -> bool:
    """Whether eager runs all calls, in numbers of ordinary size where that is asked."""
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            outputs = all_calls(program)(*program.every_given())
    except Exception:
        return False
    sizes = [float(v.abs().amax()) for v in outputs if v.is_floating_point() and v.numel()]
    return not ordinary or all(size < LARGEST for size in sizes)


def export_one(module: nn.Module, program: Program, number: int) -> ExportedProgram:
    """A method as torch exports it; with the stated ranges of sizes where it can."""
    first = next(at for at, call in enumerate(program.calls) if call.method == number)
    given = program.given(first)
    for stated in (True, False) if program.varying else (False,):
        shapes = program.dynamic_shapes(stated=stated)
        nested = (shapes,) if shapes is not None and isinstance(module, Bound) else shapes
        try:
            return torch.export.export(module, given, dynamic_shapes=nested, strict=False)
        except Exception:
            if not stated:
                raise
    raise AssertionError


def exported(program: Program, core: nn.Module | None = None) -> dict[str, ExportedProgram]:
    """Each method as torch exports it, of one module."""
    logging.disable(logging.WARNING)
    core = core or program.module()
    if len(program.methods) == 1:
        return {"forward": export_one(core, program, 0)}
    return {
        name: export_one(Bound(core, name), program, number)
        for number, name in enumerate(program.names)
    }
