"""Writes one method of a container as C: constants, structures of parameters, calls, a function."""

from __future__ import annotations

import functools
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import torch

from stepwell.backends.cortex_m.schemas import declarations
from stepwell.backends.executorch.container import (
    Constant,
    Container,
    Data,
    IntList,
    KernelCall,
    Method,
    Planned,
    ScalarType,
    TensorValue,
)
from stepwell.dialects.cmsis.ops.layout import NCHW_TO_NHWC
from stepwell.ir.arguments import takes_what_it_says
from stepwell.ir.diagnostics import Problem, StepwellError, UnsupportedError
from stepwell.ir.files import as_path, write_atomically

C_TYPES = {
    ScalarType.CHAR: "int8_t",
    ScalarType.BYTE: "uint8_t",
    ScalarType.SHORT: "int16_t",
    ScalarType.INT: "int32_t",
    ScalarType.LONG: "int64_t",
    ScalarType.FLOAT: "float",
    ScalarType.BOOL: "uint8_t",
}
_TORCH = {
    ScalarType.CHAR: torch.int8,
    ScalarType.INT: torch.int32,
    ScalarType.SHORT: torch.int16,
    ScalarType.BYTE: torch.uint8,
}
_PER_LINE = 16


@dataclass(frozen=True)
class Sources:
    """C files by name, and what the program takes."""

    files: Mapping[str, str]
    constants: int
    """Bytes of flash for weights, biases, multipliers and tables."""
    arena: int
    """Bytes of RAM for activations."""
    calls: int
    """Kernel calls of one run."""

    @takes_what_it_says
    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write every file into a folder, which is made.

        Raises:
            StepwellError: it cannot be made or written.
        """
        place = as_path(folder)
        try:
            place.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StepwellError(f"cannot make {place}: {error.strerror or error}") from None
        for name, text in self.files.items():
            write_atomically(place / name, text.encode())

    def __str__(self) -> str:
        return (
            f"constants {self.constants:,} B, arena {self.arena:,} B, {self.calls} calls; "
            + ", ".join(self.files)
        )


@functools.cache
def _sections() -> dict[str, tuple[tuple[str, ...], str]]:
    """Section name → what it needs, and its text."""
    text = Path(__file__).with_name("portable_kernels.c").read_text()
    parts = re.split(r"^/\* section (\w+):([\w ]*)\*/\n", text, flags=re.MULTILINE)[1:]
    return {
        name: (tuple(needs.split()), body.strip() + "\n")
        for name, needs, body in zip(parts[::3], parts[1::3], parts[2::3], strict=True)
    }


@dataclass(frozen=True)
class Library:
    """A library of kernels that the program is linked with, in place of some of its own."""

    header: str
    status: str
    """What its functions return when they have done their work."""
    cmake: str
    """Lines that tell CMake where it lies; `{name}` is the program's."""


@dataclass
class Writer:
    """One method of a container, call by call."""

    container: Container
    method: Method
    name: str
    library: Library | None = None
    constants: dict[tuple[int, ScalarType], str] = field(default_factory=dict[Any, str])
    statements: list[str] = field(default_factory=list[str])
    parameters: dict[str, str] = field(default_factory=dict[str, str])
    """Declarations, with `{name}` where their name goes, and their names."""
    used: dict[str, None] = field(default_factory=dict[str, None])

    def sources(self, handlers: Mapping[str, Handler]) -> Sources:
        """The files.

        Args:
            handlers: by kernel name, what writes a call of it.

        Raises:
            UnsupportedError: naming every call that has none.
        """
        problems: list[Problem] = []
        for step, call in enumerate(self.method.instructions):
            if not isinstance(call, KernelCall) or call.kernel not in handlers:
                what = call.kernel if isinstance(call, KernelCall) else type(call).__name__
                where = f"method {self.method.name}, instruction {step}"
                problems.append(Problem(f"{what} has no kernel in C", where, _REMEDY))
                continue
            handlers[call.kernel](self, self._arguments(call))
        for index in (*self.method.inputs, *self.method.outputs):
            if not isinstance(self.method.values[index], TensorValue):
                problems.append(Problem("an input or output is no tensor", self.method.name))
        if len(self.container.mutable_data) > 1:
            problems.append(Problem("state kept between calls has no form in C", self.method.name))
        if problems:
            raise UnsupportedError(problems)
        flash = sum(self._size(index, kind) for index, kind in self.constants)
        arena = self.method.arena_sizes[1]
        files = {
            f"{self.name}.h": self._header(flash, arena),
            f"{self.name}.c": self._source(arena),
            "main.c": self._main(),
            "CMakeLists.txt": (
                _CMAKE + ("" if self.library is None else self.library.cmake)
            ).format(name=self.name),
        }
        return Sources(files, flash, arena, len(self.method.instructions))

    # -- what a call names -----------------------------------------------------------------------

    def _arguments(self, call: KernelCall) -> dict[str, Any]:
        """Schema name → value index, or the Python value of what is no tensor."""
        values = self.method.values
        operator = call.kernel.removeprefix("cortex_m::").removesuffix(".out")
        if not call.kernel.startswith("cortex_m::"):
            return {"call": call}
        found: dict[str, Any] = {}
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
        """A value that is a tensor."""
        value = self.method.values[index]
        assert isinstance(value, TensorValue)
        return value

    def pointer(self, index: int | None, kind: str = "int8_t") -> str:
        """A C expression for where a tensor lies."""
        if index is None:
            return "NULL"
        value = self.tensor(index)
        if isinstance(value.storage, Constant):
            name = self.constants.setdefault(
                (value.storage.index, value.scalar_type), f"c{len(self.constants)}"
            )
            return name if C_TYPES[value.scalar_type] == kind else f"(const {kind} *){name}"
        assert isinstance(value.storage, Planned)
        base = "arena" if kind == "int8_t" else f"({kind} *)arena"
        return (
            f"&({base})[{value.storage.offset}]"
            if kind != "int8_t"
            else (f"&arena[{value.storage.offset}]")
        )

    def physical(self, index: int) -> list[int]:
        """Sizes in the order of memory."""
        value = self.tensor(index)
        return [value.sizes[axis] for axis in value.dim_order]

    def nhwc(self, index: int, operator: str) -> list[int]:
        """Sizes as batch, height, width, channels."""
        sizes = self.tensor(index).sizes
        return list(sizes) if operator.endswith("nhwc") else [sizes[a] for a in NCHW_TO_NHWC]

    def count(self, index: int) -> int:
        """Elements of a tensor."""
        return math.prod(self.tensor(index).sizes)

    def call(self, section: str, arguments: Sequence[str | int]) -> None:
        """A statement that calls a kernel."""
        self._use(section)
        self.statements.append(f"sw_{section}({', '.join(map(str, arguments))});")

    def checked_call(self, function: str, arguments: Sequence[str | int]) -> None:
        """A statement that calls a library's function, and gives up where it refuses."""
        assert self.library is not None
        called = f"{function}({', '.join(map(str, arguments))})"
        self.statements += [f"if ({called} != {self.library.status}) {{", "    return 2;", "}"]

    def params(self, type_: str, values: Mapping[str, Any]) -> str:
        """A constant structure of parameters of our own kernels; gives its address."""
        return self.structure(f"sw_{type_}_params", values)

    def structure(self, type_: str, values: Mapping[str, Any]) -> str:
        """A constant structure, one for equal values; gives its address."""
        text = f"static const {type_} {{name}} = {literal(values)};"
        return f"&{self._declared(text)}"

    def numbers(self, type_: str, values: Sequence[int]) -> str:
        """A constant array of a few numbers; gives its name."""
        return self._declared(
            f"static const {type_} {{name}}[{len(values)}] = {literal(list(values))};"
        )

    def _declared(self, text: str) -> str:
        return self.parameters.setdefault(text, f"p{len(self.parameters)}")

    def _use(self, section: str) -> None:
        needs, _ = _sections()[section]
        for name in needs:
            self._use(name)
        self.used[section] = None

    # -- text ------------------------------------------------------------------------------------

    def _data(self, index: int) -> Data:
        return self.container.constants[index]

    def _size(self, index: int, kind: ScalarType) -> int:
        return len(self._data(index)) // kind.itemsize * kind.itemsize

    def _ports(self) -> tuple[list[tuple[str, int]], list[tuple[str, int]]]:
        def named(stem: str, indices: Sequence[int]) -> list[tuple[str, int]]:
            alone = len(indices) == 1
            return [(stem if alone else f"{stem}_{k}", i) for k, i in enumerate(indices)]

        return named("input", self.method.inputs), named("output", self.method.outputs)

    def _prototype(self) -> str:
        taken, given = self._ports()
        arguments = [f"const {C_TYPES[self.tensor(i).scalar_type]} *{n}" for n, i in taken]
        arguments += [f"{C_TYPES[self.tensor(i).scalar_type]} *{n}" for n, i in given]
        return f"int {self.name}_run({', '.join(arguments) or 'void'})"

    def _header(self, flash: int, arena: int) -> str:
        guard, upper = f"{self.name.upper()}_H", self.name.upper()
        taken, given = self._ports()
        lines = [f"#define {upper}_ARENA_BYTES {arena}", f"#define {upper}_FLASH_BYTES {flash}"]
        for port, index in (*taken, *given):
            value = self.tensor(index)
            shape = " x ".join(map(str, value.sizes)) or "scalar"
            order = (
                ""
                if value.dim_order == tuple(range(len(value.sizes)))
                else (f", dimensions in memory {list(value.dim_order)}")
            )
            kind = C_TYPES[value.scalar_type]
            lines.append(f"/* {port}: {kind}, {shape}{order} */")
            lines.append(f"#define {upper}_{port.upper()}_COUNT {math.prod(value.sizes)}")
        body = "\n".join(lines)
        refused = "" if self.library is None else ", or 2 if a kernel refuses its arguments"
        return (
            f"#ifndef {guard}\n#define {guard}\n\n#include <stdint.h>\n\n"
            f'#ifdef __cplusplus\nextern "C" {{\n#endif\n\n{body}\n\n'
            f"/* 0, or 1 if a pointer is NULL{refused}. Not reentrant: there is one arena. */\n"
            f"{self._prototype()};\n\n#ifdef __cplusplus\n}}\n#endif\n\n#endif\n"
        )

    def _source(self, arena: int) -> str:
        taken, given = self._ports()
        checks = " || ".join(f"({name} == NULL)" for name, _ in (*taken, *given)) or "0"
        body = [f"if ({checks}) {{", "    return 1;", "}"]
        for name, index in taken:
            value = self.tensor(index)
            if not isinstance(value.storage, Planned):
                continue  # It is handed on as a constant, which nothing reads.
            body.append(f"memcpy({self.pointer(index)}, {name}, {value.nbytes});")
        body += self.statements
        for name, index in given:
            value = self.tensor(index)
            body.append(f"memcpy({name}, {self.pointer(index)}, {value.nbytes});")
        body.append("return 0;")
        kernels = "\n".join(_sections()[name][1] for name in self.used)
        needs_math = {"quantize", "div"} & set(self.used)
        includes = "#include <stddef.h>\n#include <string.h>\n" + (
            "#include <math.h>\n" if needs_math else ""
        )
        if self.library is not None:
            includes += f'#include "{self.library.header}"\n'
        constants = "\n".join(
            _array(name, self._data(index), kind) for (index, kind), name in self.constants.items()
        )
        parameters = "\n".join(
            text.replace("{name}", name, 1) for text, name in self.parameters.items()
        )
        run = "\n".join(f"    {line}" for line in body)
        return (
            f'/* Generated by stepwell. */\n#include "{self.name}.h"\n\n{includes}\n{kernels}\n'
            f"static union {{\n    int8_t bytes[{arena}];\n    int64_t aligned;\n}} memory;\n\n"
            f"{constants}\n{parameters}\n\n"
            f"{self._prototype()}\n{{\n    int8_t *const arena = memory.bytes;\n{run}\n}}\n"
        )

    def _main(self) -> str:
        taken, given = self._ports()
        upper = self.name.upper()
        kinds = {n: C_TYPES[self.tensor(i).scalar_type] for n, i in (*taken, *given)}
        buffers = "\n".join(
            f"static {kinds[n]} {n}[{upper}_{n.upper()}_COUNT];" for n, _ in (*taken, *given)
        )
        reads = "\n".join(
            f"    if (fread({n}, sizeof({n}), 1, stdin) != 1) {{\n        return 2;\n    }}"
            for n, _ in taken
        )
        writes = "\n".join(
            f"    if (fwrite({n}, sizeof({n}), 1, stdout) != 1) {{\n        return 3;\n    }}"
            for n, _ in given
        )
        names = ", ".join(n for n, _ in (*taken, *given))
        return (
            "/* Inputs from standard input, outputs to standard output, as raw bytes. */\n"
            f'#include <stdio.h>\n\n#include "{self.name}.h"\n\n{buffers}\n\n'
            f"int main(void)\n{{\n{reads}\n    if ({self.name}_run({names}) != 0) {{\n"
            f"        return 1;\n    }}\n{writes}\n    return 0;\n}}\n"
        )


def literal(value: Any) -> str:
    """A number, or numbers in braces, as C spells them; a float exactly, text as it stands."""
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


def _array(name: str, data: Data, kind: ScalarType) -> str:
    values = torch.frombuffer(bytearray(data), dtype=_TORCH[kind]).tolist()
    text = ["INT32_MIN" if value == -(1 << 31) else str(value) for value in values]
    rows = [", ".join(text[at : at + _PER_LINE]) for at in range(0, len(text), _PER_LINE)]
    joined = ",\n    ".join(rows)
    return f"static const {C_TYPES[kind]} {name}[{len(values)}] = {{\n    {joined}\n}};"


_REMEDY = 'quantise what it computes; io="int8" takes float inputs and outputs away'

_CMAKE = """\
# Host: cmake -B build && cmake --build build && build/{name} < input.bin > output.bin
# Device: give CMake your board's toolchain file, and call {name}_run from your own main.
cmake_minimum_required(VERSION 3.16)
project({name} C)
set(CMAKE_C_STANDARD 99)
add_library({name}_model STATIC {name}.c)
target_compile_options({name}_model PRIVATE -Wall -Wextra -Wconversion)
target_include_directories({name}_model PUBLIC ${{CMAKE_CURRENT_SOURCE_DIR}})
target_link_libraries({name}_model PUBLIC m)
add_executable({name} main.c)
target_link_libraries({name} PRIVATE {name}_model)
"""


Handler = Callable[[Writer, dict[str, Any]], None]
"""Writes a call, given the values of its arguments by their names in the schema."""
