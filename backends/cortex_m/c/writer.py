"""Write the calls of a container's methods as C: constants, parameter structures, calls."""

import functools
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import Any, cast
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

import torch

from stepwell.backends.cortex_m.schemas import declarations
from stepwell.backends.executorch.container import (
    Constant,
    Container,
    IntList,
    JumpFalse,
    KernelCall,
    Method,
    Move,
    Planned,
    ScalarType,
    State,
    TensorList,
    TensorValue,
)
from stepwell.backends.executorch.writing.builder import STATE
from stepwell.dialects.cmsis.ops.layout import NCHW_TO_NHWC
from stepwell.dialects.cmsis.ops.movement import is_taken_as_channels_last
from stepwell.dialects.quant.types import Quantization
from stepwell.ir.calls.arguments import validate_arguments
from stepwell.ir.diagnostics import StepwellError, UnsupportedError
from stepwell.ir.platform.files import as_path, write_atomically

C_TYPES = {
    ScalarType.CHAR: "int8_t",
    ScalarType.BYTE: "uint8_t",
    ScalarType.SHORT: "int16_t",
    ScalarType.INT: "int32_t",
    ScalarType.LONG: "int64_t",
    ScalarType.FLOAT: "float",
    ScalarType.DOUBLE: "double",
    ScalarType.BOOL: "uint8_t",
}
_ELEMENTS = {
    "int16_t": "sw_int16", "int32_t": "sw_int32", "int64_t": "sw_int64",
    "float": "sw_float", "double": "sw_double",
}  # fmt: skip
"""C type → the type as which other memory may be accessed."""
_BY_SIZE = {1: "uint8_t", 2: "sw_int16", 4: "sw_int32", 8: "sw_int64"}


def c_type(kind: ScalarType) -> str:
    """Return the C type of elements.

    Raises:
        UnsupportedError: C has no such type.
    """
    if kind not in C_TYPES:
        raise UnsupportedError(f"{kind.name.lower()} elements have no type in C")
    return C_TYPES[kind]


@dataclass(frozen=True)
class Sources:
    """C files by name, and the memory that the program needs."""

    files: Mapping[str, str]
    constants: int
    """Bytes of flash for weights, biases, multipliers and tables."""
    arena: int
    """Bytes of RAM for activations."""
    calls: int
    """Kernel calls of one run."""
    name: str = "model"
    """The name of the program's files, and the first part of its functions' names."""
    methods: Mapping[str, Method] = field(default_factory=dict[str, Method])
    """Its methods in the container, by name."""

    def __len__(self) -> int:
        """Return the number of characters of all files."""
        return sum(map(len, self.files.values()))

    def __bytes__(self) -> bytes:
        """Return the folder as a zip archive."""
        buffer = BytesIO()
        with ZipFile(buffer, "w", ZIP_DEFLATED) as archive:
            for name, text in self.files.items():
                archive.writestr(ZipInfo(f"{self.name}/{name}"), text, ZIP_DEFLATED)
        return buffer.getvalue()

    @validate_arguments
    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write every file into a folder, which is created.

        Raises:
            StepwellError: the folder cannot be created or written.
        """
        place = as_path(folder)
        for name, text in self.files.items():
            try:
                (place / name).parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise StepwellError(f"cannot create {place}: {error.strerror or error}") from None
            write_atomically(place / name, text.encode())

    def __str__(self) -> str:
        return (
            f"constants {self.constants:,} B, arena {self.arena:,} B, {self.calls} calls; "
            + ", ".join(self.files)
        )


@functools.cache
def sections() -> dict[str, tuple[tuple[str, ...], str]]:
    """Return, by name, each section of the kernels' source: required sections, and the text.

    If a section has a vector (MVE) version, the text selects it by `#ifdef`.
    """
    plain, vectors = _sections("portable_kernels.c"), _sections("mve_kernels.c")
    found = {name: vectors[name] for name in vectors if name not in plain}
    for name, (needs, text) in plain.items():
        if name in vectors:
            needs = (*needs, "mve", *vectors[name][0])
            text = f"#ifdef SW_MVE\n{vectors[name][1]}#else\n{text}#endif\n"
        found[name] = needs, text
    return found


def _sections(file: str) -> dict[str, tuple[tuple[str, ...], str]]:
    text = Path(__file__).with_name(file).read_text()
    parts = re.split(r"^/\* section (\w+):([\w ]*)\*/\n", text, flags=re.MULTILINE)[1:]
    return {
        name: (tuple(needs.split()), body.strip() + "\n")
        for name, needs, body in zip(parts[::3], parts[1::3], parts[2::3], strict=True)
    }


@dataclass(frozen=True)
class Library:
    """A library of kernels with which the program is linked, in place of stepwell's own kernels."""

    header: str
    status: str
    """The status that its functions return on success."""
    cmake: str
    """Lines that tell CMake its location; `{name}` is the program's."""


@dataclass
class Shared:
    """The parts that the methods of a program share: constants, parameters, kernels."""

    container: Container
    name: str
    library: Library | None = None
    quantizations: Mapping[tuple[str, str], Sequence[Quantization | None]] = field(
        default_factory=dict[Any, Any]
    )
    """By method and side, what the integers of each input or output mean."""
    constants: dict[tuple[int, ScalarType], str] = field(default_factory=dict[Any, str])
    parameters: dict[str, str] = field(default_factory=dict[str, str])
    """Declarations, with `{name}` as a placeholder, and their names."""
    used: dict[str, None] = field(default_factory=dict[str, None])
    """Sections of our own kernels."""
    functions: dict[str, str] = field(default_factory=dict[str, str])
    """Loops of an operator, with `{name}` likewise."""

    def use(self, section: str) -> None:
        """Include a section of the kernels, and the sections that it needs."""
        needs, _ = sections()[section]
        for name in needs:
            self.use(name)
        self.used[section] = None


@dataclass
class MethodWriter:
    """Writes the calls of one method of a container as C statements."""

    shared: Shared
    method: Method
    statements: list[str] = field(default_factory=list[str])
    variables: frozenset[int] = frozenset()
    """Values that are numbers written by instructions."""

    # -- arguments of a call ---------------------------------------------------------------------

    def arguments(self, call: KernelCall) -> dict[str, Any]:
        """Return arguments by schema name: a value index, or the Python value if it is not a
        tensor.

        This applies to the library's kernels; other writers use the `call` itself.
        """
        values = self.method.values
        operator = call.kernel.removeprefix("cortex_m::").removesuffix(".out")
        if not call.kernel.startswith("cortex_m::"):
            return {"call": call}
        found: dict[str, Any] = {"is_nhwc": operator.endswith("_nhwc")}
        for argument, index in zip(declarations()[operator].arguments, call.args, strict=False):
            value = values[index]
            if isinstance(value, TensorValue):
                found[argument.name] = index
            elif isinstance(value, IntList):
                found[argument.name] = [cast(int, values[item]) for item in value.items]
            else:
                found[argument.name] = value
        return found

    def tensor(self, index: int) -> TensorValue:
        """Return value `index` of the method, which must be a tensor."""
        value = self.method.values[index]
        assert isinstance(value, TensorValue)
        return value

    def c_element(self, index: int) -> str:
        """Return the C type for access to a tensor's elements, which may alias other types.

        Raises:
            UnsupportedError: C has no such type.
        """
        kind = c_type(self.tensor(index).scalar_type)
        return _ELEMENTS.get(kind, kind)

    def pointer(self, index: int | None, kind: str = "int8_t") -> str:
        """Return the C expression of a tensor's address."""
        if index is None:
            return "NULL"
        value = self.tensor(index)
        storage = value.storage
        if isinstance(storage, Constant):
            constants = self.shared.constants
            name = constants.setdefault((storage.index, value.scalar_type), f"c{len(constants)}")
            return name if c_type(value.scalar_type) == kind else f"(const {kind} *){name}"
        if storage is None:
            return f"({kind} *){self.port(index)}"
        assert isinstance(storage, Planned | State)
        place = f"{'state' if storage.memory_id == STATE else 'arena'}[{storage.offset}]"
        return f"&{place}" if kind == "int8_t" else f"({kind} *)(void *)&{place}"

    def ports(self) -> tuple[list[tuple[str, int]], list[tuple[str, int]]]:
        """Return the names of inputs and of outputs, with their tensors."""

        def named(stem: str, indices: Sequence[int]) -> list[tuple[str, int]]:
            tensors = [i for i in indices if isinstance(self.method.values[i], TensorValue)]
            alone = len(tensors) == 1
            return [(stem if alone else f"{stem}_{k}", i) for k, i in enumerate(tensors)]

        return named("input", self.method.inputs), named("output", self.method.outputs)

    def port(self, index: int) -> str:
        """Return the name of an input that stays in the caller's memory."""
        return next(name for name, at in self.ports()[0] if at == index)

    @cached_property
    def _reads(self) -> frozenset[int]:
        """Return the indices of values that a call, jump or move reads, or that are outputs."""
        read = set(self.method.outputs)
        for step in self.method.instructions:
            if isinstance(step, JumpFalse | Move):
                read.add(step.condition if isinstance(step, JumpFalse) else step.source)
        calls = [c for c in self.method.instructions if isinstance(c, KernelCall)]
        for call in calls:
            for index in set(call.args[:-1]) - set(self.results(call)):
                value = self.method.values[index]
                read.update(value.items if isinstance(value, TensorList) else (index,))
        return frozenset(read)

    @cached_property
    def _writes(self) -> frozenset[int]:
        calls = [c for c in self.method.instructions if isinstance(c, KernelCall)]
        return frozenset(index for call in calls for index in self.results(call))

    def results(self, call: KernelCall) -> tuple[int, ...]:
        """Return the indices of a call's results: its last argument, or the items of that list."""
        last = self.method.values[call.args[-1]]
        return last.items if isinstance(last, TensorList) else (call.args[-1],)

    def is_read(self, index: int) -> bool:
        """Whether a result, or a view of it, has a user."""
        if index in self._reads:
            return True
        own = self.tensor(index)
        return any(
            other in self._reads
            and other not in self._writes
            and isinstance(value, TensorValue)
            and (value.storage, value.nbytes) == (own.storage, own.nbytes)
            for other, value in enumerate(self.method.values)
        )

    def number(self, index: int) -> str:
        """Return the C expression of a value that is a number: a variable or a literal."""
        if index in self.variables:
            return f"v{index}"
        value = self.method.values[index]
        if not isinstance(value, bool | int | float):
            raise UnsupportedError("an argument is not a number")
        return literal(float(value)) if isinstance(value, float) else str(int(value))

    def declared(self) -> list[str]:
        """Return the declarations of the variables that the statements use."""
        kinds = {bool: "int", int: "int64_t", float: "double"}
        values = {i: self.method.values[i] for i in sorted(self.variables)}
        return [
            f"{kinds[type(value)]} v{index} = {int(value)};"
            for index, value in values.items()
            if isinstance(value, bool | int | float)
        ]

    def physical(self, index: int) -> list[int]:
        """Return a tensor's sizes in memory order, outermost axis first."""
        value = self.tensor(index)
        return [value.sizes[axis] for axis in value.dim_order]

    def image(self, arguments: Mapping[str, Any], name: str) -> list[int]:
        """Return an argument's sizes as batch, height, width, channels."""
        sizes = self.tensor(arguments[name]).sizes
        return list(sizes) if arguments["is_nhwc"] else [sizes[a] for a in NCHW_TO_NHWC]

    def as_padded(self, index: int) -> list[int]:
        """Return a tensor's four sizes in the order in which the `.pte` states those of a pad.

        The lists of an image with one channel or one cell are channels-last (`emit.py`).
        """
        sizes = self.tensor(index).sizes
        if is_taken_as_channels_last(sizes):
            return [sizes[axis] for axis in NCHW_TO_NHWC]
        return [1] * (4 - len(sizes)) + self.physical(index)

    def count(self, index: int) -> int:
        """Return the number of elements of a tensor."""
        return math.prod(self.tensor(index).sizes)

    # -- statements ------------------------------------------------------------------------------

    def call(self, section: str, arguments: Sequence[str | int]) -> None:
        """Add a statement that calls a kernel."""
        self.shared.use(section)
        self.statements.append(f"sw_{section}({', '.join(map(str, arguments))});")

    def checked_call(self, function: str, arguments: Sequence[str | int]) -> None:
        """Add a statement that calls a library's function, and returns if the function refuses."""
        assert self.shared.library is not None
        called = f"{function}({', '.join(map(str, arguments))})"
        status = self.shared.library.status
        self.statements += [f"if ({called} != {status}) {{", "    return 2;", "}"]

    def function(
        self,
        lines: Sequence[str],
        reads: Sequence[tuple[str, int]],
        writes: Sequence[tuple[str, int]],
        needs: Iterable[str] = (),
        *,
        bits: bool = False,
        checked: bool = False,
    ) -> None:
        """Add a statement that calls a function of these lines; equal functions are shared.

        Args:
            lines: the lines of the body.
            reads: the names of pointers that the function reads, and the tensors to which they
                point.
            writes: likewise for pointers that the function writes.
            needs: the sections of the kernels that the function calls.
            bits: whether the function only moves elements of the same number of bytes.
            checked: whether the function returns 0, or 3 if an index is out of bounds.
        """
        converts = {"whole_numbers"} if any("sw_whole(" in line for line in lines) else set[str]()
        for section in ("elements", *sorted({*needs} | converts)):
            self.shared.use(section)

        def kind(index: int) -> str:
            own = self.c_element(index)
            return _BY_SIZE[self.tensor(index).scalar_type.itemsize] if bits else own

        given = [(name, f"const {kind(i)}", i) for name, i in reads]
        made = [(name, kind(i), i) for name, i in writes]
        parameters = ", ".join(f"{kind} *{name}" for name, kind, _ in (*given, *made))
        body = "\n".join(f"    {line}" for line in (*lines, *(["return 0;"] if checked else [])))
        text = f"static {'int' if checked else 'void'} {{name}}({parameters})\n{{\n{body}\n}}"
        name = self.shared.functions.setdefault(text, f"loops_{len(self.shared.functions)}")
        pointers = ", ".join(self.pointer(index, kind) for _, kind, index in (*given, *made))
        pointers = pointers.replace("const const ", "const ")
        called = f"{name}({pointers})"
        self.statements += (
            [f"if ({called} != 0) {{", "    return 3;", "}"] if checked else [f"{called};"]
        )

    def params(self, type_: str, values: Mapping[str, Any]) -> str:
        """Declare a constant structure of parameters of our own kernels; return its address."""
        return self.structure(f"sw_{type_}_params", values)

    def structure(self, type_: str, values: Mapping[str, Any]) -> str:
        """Declare a constant structure, shared by equal values; return its address."""
        text = f"static const {type_} {{name}} = {literal(values)};"
        return f"&{self._declared(text)}"

    def numbers(self, type_: str, values: Sequence[int]) -> str:
        """Declare a constant array of a few numbers; return its name."""
        return self._declared(
            f"static const {type_} {{name}}[{len(values)}] = {literal(list(values))};"
        )

    def table(self, type_: str, text: str, count: int) -> str:
        """Declare a constant array of numbers as C literals; return its name."""
        return self._declared(f"static const {type_} {{name}}[{count}] = {{{text}}};")

    def _declared(self, text: str) -> str:
        return self.shared.parameters.setdefault(text, f"data_{len(self.shared.parameters)}")


def meaning_macros(port: str, held: Quantization) -> list[str]:
    """Return macros of what a port's integers mean: (integer - zero point) * scale."""
    return [
        f"#define {port}_SCALE {literal(held.scale)}",
        f"#define {port}_ZERO_POINT ({held.zero_point})",
    ]


def literal(value: Any) -> str:
    """Return the C literal of a number, or of numbers in braces; floats are exact, text is
    unchanged.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        fields = cast("Mapping[str, Any]", value).items()
        return "{" + ", ".join(f".{key} = {literal(one)}" for key, one in fields) + "}"
    if isinstance(value, list | tuple):
        return "{" + ", ".join(map(literal, cast("Sequence[Any]", value))) + "}"
    if isinstance(value, float):
        return f"{float(torch.tensor(value, dtype=torch.float32)).hex()}f"
    if value == -(1 << 31):
        return "INT32_MIN"
    return str(int(value))


Handler = Callable[[MethodWriter, dict[str, Any]], None]
"""Writes a call, given the values of its arguments by their names in the schema."""
