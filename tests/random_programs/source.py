"""A strange program as text: what it holds, its statements, its outputs, the inputs it is given."""

from __future__ import annotations

import copy
import linecache
import re
import types
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from . import values

FILE = "strange_program.py"
"""The name under which a program's text is compiled: where refusals say they are."""
LARGEST = 32
"""What a size that varies may be at most: memory is planned ahead."""
NAME = re.compile(r"\b(?:self\.[cm]\d+|[vx]\d+)\b")


@dataclass(frozen=True)
class Program:
    """The description from which the text is written; the shrinker takes away from it."""

    inputs: tuple[tuple[str, str], ...]
    """Name and expression of each; sizes that vary are called `a` and `b`."""
    held: tuple[tuple[str, str], ...] = ()
    """Parameters, buffers and layers: name and expression."""
    statements: tuple[str, ...] = ()
    """One each, of one or more lines."""
    outputs: tuple[str, ...] = ()
    nesting: str = "flat"
    """How inputs come: `flat`, `pair` (all but the first in a tuple) or `dict`."""
    returned: str = "tuple"
    """How outputs go: `tuple` or `dict`."""
    sizes: Mapping[str, int] = field(default_factory=dict[str, int])
    """The sizes that vary, and what they are in the sample."""
    others: tuple[Mapping[str, int], ...] = ()
    """Other sizes to try."""
    varying: tuple[tuple[str, int, str], ...] = ()
    """(input, axis, size) of each axis that varies."""
    training: bool = False
    payload: str = ""
    """Of MX, in which its products are to be."""

    @property
    def text(self) -> str:
        """The whole as Python, from imports to inputs."""
        held = [f"        {name} = {text}" for name, text in self.held]
        names = [name for name, _ in self.inputs]
        first, rest = names[:1], names[1:]
        taken = {
            "flat": (", ".join(names), []),
            "pair": (", ".join([*first, "rest"]), [f"{', '.join(rest)}, = rest"]),
            "dict": (", ".join([*first, "rest"]), [f"{n} = rest[{n!r}]" for n in rest]),
        }[self.nesting if rest else "flat"]
        body = [*taken[1], *(line for text in self.statements for line in text.split("\n"))]
        if self.returned == "dict":
            out = "{" + ", ".join(f'"o{i}": {n}' for i, n in enumerate(self.outputs)) + "}"
        else:
            out = ", ".join(self.outputs) + ("," if len(self.outputs) == 1 else "")
        drawn = [f"    {name} = {text}" for name, text in self.inputs]
        given = {
            "flat": ", ".join(names),
            "pair": ", ".join([*first, f"({', '.join(rest)},)"]),
            "dict": ", ".join([*first, "{" + ", ".join(f"{n!r}: {n}" for n in rest) + "}"]),
        }[self.nesting if rest else "flat"]
        parameters = ", ".join(f"{name}={size}" for name, size in self.sizes.items())
        lines = [
            "from tests.random_programs.values import *",
            "",
            "class Strange(nn.Module):",
            "    def __init__(self):",
            "        super().__init__()",
            *held,
            "",
            f"    def forward(self, {taken[0]}):",
            *(f"        {line}" for line in body),
            f"        return {out}",
            "",
            f"def inputs({parameters}):",
            *drawn,
            f"    return {given},",
            "",
        ]
        return "\n".join(lines)

    def line_of(self, line: int) -> int | None:
        """The statement that a line of the text belongs to."""
        at = self.text.split("\n")
        count = next(i for i, text in enumerate(at) if text.startswith("    def forward")) + 1
        nested = self.nesting if len(self.inputs) > 1 else "flat"
        count += {"flat": 0, "pair": 1, "dict": len(self.inputs) - 1}[nested]
        for index, statement in enumerate(self.statements):
            count += statement.count("\n") + 1
            if line <= count:
                return index
        return None

    def without(self, dropped: Sequence[int]) -> Program:
        """The program without some statements, and without what read them."""
        gone: set[str] = set()
        kept: list[str] = []
        for index, text in enumerate(self.statements):
            read = set(NAME.findall(text))
            if index in dropped or read & gone:
                gone |= defined(text)
                continue
            kept.append(text)
        outputs = tuple(name for name in self.outputs if name not in gone)
        return replace(self, statements=tuple(kept), outputs=outputs)

    def tidy(self) -> Program:
        """The program without what nothing reads any more."""
        statements = list(self.statements)
        while True:
            read = set(self.outputs)
            for text in statements:
                made = defined(text)
                read |= {name for name in NAME.findall(text) if name not in made}
            kept = [
                text
                for text in statements
                if not (made := defined(text)) or made & read or mutates(text)
            ]
            if kept == statements:
                break
            statements = kept
        read = set(self.outputs).union(*(NAME.findall(text) for text in statements))
        inputs = tuple(pair for pair in self.inputs if pair[0] in read) or self.inputs[:1]
        named = {name for name, _ in inputs}
        varying = tuple(v for v in self.varying if v[0] in named)
        sizes = {n: s for n, s in self.sizes.items() if any(n == v[2] for v in varying)}
        drawn = " ".join(text for _, text in inputs)
        sizes = {n: s for n, s in self.sizes.items() if n in sizes or re.search(rf"\b{n}\b", drawn)}
        return replace(
            self,
            statements=tuple(statements),
            inputs=inputs,
            held=tuple(pair for pair in self.held if pair[0] in read),
            varying=varying,
            sizes=sizes,
        )

    def namespace(self, *, wide: bool = False) -> dict[str, Any]:
        """What the text defines, compiled; in float64 where `wide`."""
        text = self.text
        linecache.cache[FILE] = (len(text), None, text.splitlines(True), FILE)
        space: dict[str, Any] = {"__name__": "strange_program"}
        code = compile(text.replace("from tests.random_programs.values import *", ""), FILE, "exec")
        space.update({name: getattr(values, name) for name in values.__all__})
        if wide:
            space.update(values.WIDE)
        exec(code, space)
        return space

    def module(self, *, wide: bool = False) -> nn.Module:
        """The module; the wide one holds the same numbers, and computes in float64."""
        made = self.namespace()["Strange"]()
        made.train(self.training)
        if wide:
            made = copy.deepcopy(made).double()
            made.forward = types.MethodType(self.namespace(wide=True)["Strange"].forward, made)
        return made

    def given(self, sizes: Mapping[str, int] | None = None) -> tuple[Any, ...]:
        """The sample inputs, nested as the module takes them."""
        return self.namespace()["inputs"](**dict(sizes or self.sizes))

    def dynamic_shapes(self) -> tuple[Any, ...] | None:
        """The axes that vary, as `torch.export.export` takes them."""
        if not self.varying:
            return None
        by_input: dict[str, dict[int, Any]] = {}
        for name, axis, _ in self.varying:
            by_input.setdefault(name, {})[axis] = torch.export.Dim.AUTO(max=LARGEST)
        each = [by_input.get(name) for name, _ in self.inputs]
        if self.nesting == "flat" or len(each) == 1:
            return tuple(each)
        rest = dict(zip([n for n, _ in self.inputs[1:]], each[1:], strict=True))
        return (each[0], rest if self.nesting == "dict" else tuple(each[1:]))

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of_json(cls, data: Mapping[str, Any]) -> Program:
        tuples = {
            key: tuple(tuple(v) if isinstance(v, list) else v for v in value)
            for key, value in data.items()
            if isinstance(value, list | tuple)
        }
        return cls(**{**data, **tuples})


def defined(text: str) -> set[str]:
    """The names that a statement gives values to."""
    found: set[str] = set()
    for line in text.split("\n"):
        matched = re.match(r"^((?:v\d+\s*,\s*)*v\d+)\s*,?\s*=[^=]", line)
        if matched:
            found |= set(re.findall(r"v\d+", matched[1]))
    return found


def mutates(text: str) -> bool:
    """Whether a statement writes into a value that was there."""
    made = defined(text)
    for line in text.split("\n"):
        target = re.match(r"^(self\.c\d+|[vx]\d+)(\[.*\])?\s*[-+*/]?=[^=]", line)
        called = re.match(r"^(self\.c\d+|[vx]\d+)\S*?\.\w+_\(", line)
        for matched in (target, called):
            if matched and matched[1] not in made:
                return True
    return False


def floats(value: Any, change: Any) -> Any:
    """Nested inputs, with their floating tensors changed."""
    from torch.utils import _pytree as pytree

    return pytree.tree_map(
        lambda x: change(x) if isinstance(x, Tensor) and x.is_floating_point() else x, value
    )
