"""The files of a program in C: header, source, a `main`, around the written calls."""

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from stepwell.backends.cortex_m.c.projects import PROJECTS, Port, Written
from stepwell.backends.cortex_m.c.terms import constant
from stepwell.backends.cortex_m.c.writer import (
    MethodWriter,
    Shared,
    Sources,
    c_type,
    meaning_macros,
    sections,
)
from stepwell.backends.executorch.container import Planned, ScalarType, State, TensorValue
from stepwell.backends.executorch.kernels.scalar_types import torch_dtype
from stepwell.backends.executorch.writing.builder import STATE
from stepwell.dialects.cmsis.target import Core
from stepwell.dialects.quant.ports import INPUT, OUTPUT

_PER_LINE = 16


@dataclass
class Files:
    """The text around the calls of every method.

    Attributes:
        shared: the parts that the methods share.
        methods: the writer of each method, which has written its calls.
    """

    shared: Shared
    methods: Sequence[MethodWriter]

    def sources(self, project: str, core: Core | None) -> Sources:
        """Return the texts of a project's files by name; `core` is that of the lowering."""
        name, library = self.shared.name, self.shared.library
        bodies = [self._function(writer) for writer in self.methods]
        flash = sum(self._size(index, kind) for index, kind in self.shared.constants)
        written = Written(
            name,
            self._header(flash),
            self._source(bodies),
            self._main(),
            {self._called(writer): self._ports(writer) for writer in self.methods},
            self._state > 0,
            core,
            "" if library is None else library.cmake,
        )
        calls = sum(len(writer.method.instructions) for writer in self.methods)
        files = PROJECTS[project](written)
        methods = {writer.method.name: writer.method for writer in self.methods}
        return Sources(files, flash + self._initial_bytes, self._arena, calls, name, methods)

    # -- memory ----------------------------------------------------------------------------------

    @property
    def _arena(self) -> int:
        return max(_arena(writer, 1) for writer in self.methods)

    @property
    def _state(self) -> int:
        return max(_arena(writer, STATE) for writer in self.methods)

    @property
    def _initial_bytes(self) -> int:
        return sum(len(self.shared.container.mutable_data[s.initial]) for s in self._states())

    def _states(self) -> list[State]:
        """Return the storage of state that has an initial value."""
        states = {
            value.storage: None
            for writer in self.methods
            for value in writer.method.values
            if isinstance(value, TensorValue) and isinstance(value.storage, State)
        }
        return sorted(states, key=lambda state: state.offset)

    def _size(self, index: int, kind: ScalarType) -> int:
        return len(self.shared.container.constants[index]) // kind.itemsize * kind.itemsize

    # -- text ------------------------------------------------------------------------------------

    def _called(self, writer: MethodWriter) -> str:
        """Return the name of a method's function."""
        return f"{self.shared.name}_{'run' if len(self.methods) == 1 else writer.method.name}"

    def _ports(self, writer: MethodWriter) -> tuple[list[Port], list[Port]]:
        taken, given = writer.ports()
        told = [
            [(name, _kind(writer, index), writer.count(index)) for name, index in side]
            for side in (taken, given)
        ]
        return told[0], told[1]

    def _port_prefix(self, writer: MethodWriter) -> str:
        own = "" if len(self.methods) == 1 else f"{writer.method.name.upper()}_"
        return f"{self.shared.name.upper()}_{own}"

    def _prototype(self, writer: MethodWriter) -> str:
        taken, given = writer.ports()
        kept = {i for _, i in taken if writer.tensor(i).storage is None}
        arguments = [f"{'' if i in kept else 'const '}{_kind(writer, i)} *{n}" for n, i in taken]
        arguments += [f"{_kind(writer, i)} *{n}" for n, i in given]
        return f"int {self._called(writer)}({', '.join(arguments) or 'void'})"

    def _header(self, flash: int) -> str:
        upper = self.shared.name.upper()
        lines = [
            f"#define {upper}_ARENA_BYTES {self._arena}", f"#define {upper}_FLASH_BYTES {flash}"
        ]  # fmt: skip
        for writer in self.methods:
            prefix = self._port_prefix(writer)
            own = writer.method
            sides = ((INPUT, own.inputs), (OUTPUT, own.outputs))
            means = {
                index: held
                for side, indices in sides
                for index, held in zip(
                    indices, self.shared.quantizations.get((own.name, side), ()), strict=False
                )
            }
            for port, index in (ports := writer.ports())[0] + ports[1]:
                value = writer.tensor(index)
                shape = " x ".join(map(str, value.sizes)) or "scalar"
                is_plain = value.dim_order == tuple(range(len(value.sizes)))
                order = "" if is_plain else f", dimensions in memory {list(value.dim_order)}"
                lines.append(f"/* {port}: {_kind(writer, index)}, {shape}{order} */")
                count = math.prod(value.sizes)
                lines.append(f"#define {prefix}{port.upper()}_COUNT {count}")
                if (held := means.get(index)) is not None:
                    lines += meaning_macros(f"{prefix}{port.upper()}", held)
        refused = "" if self.shared.library is None else ", 2 if a kernel refuses its arguments"
        told = f"/* 0, 1 if a pointer is NULL{refused}, or 3 if an index lies outside of a table."
        lines += ["", f"{told} Not reentrant:\n   there is one arena. */"]
        lines += [f"{self._prototype(writer)};" for writer in self.methods]
        if self._state:
            lines += ["/* State as it was before the first call. */"]
            lines += [f"void {self.shared.name}_reset(void);"]
        body = "\n".join(lines)
        return (
            f"#ifndef {upper}_H\n#define {upper}_H\n\n#include <stdint.h>\n\n"
            f'#ifdef __cplusplus\nextern "C" {{\n#endif\n\n{body}\n\n'
            "#ifdef __cplusplus\n}\n#endif\n\n#endif\n"
        )

    def _function(self, writer: MethodWriter) -> str:
        taken, given = writer.ports()
        checks = " || ".join(f"({name} == NULL)" for name, _ in (*taken, *given)) or "0"
        body = [f"if ({checks}) {{", "    return 1;", "}"]
        if self._state:
            body += ["if (!is_started) {", f"    {self.shared.name}_reset();", "}"]
        for name, index in taken:
            value = writer.tensor(index)
            if isinstance(value.storage, Planned):  # A constant input is unused.
                body.append(f"memcpy({writer.pointer(index)}, {name}, {value.nbytes});")
        body += writer.statements
        for name, index in given:
            value = writer.tensor(index)
            where = writer.pointer(index) if value.storage is not None else writer.port(index)
            body.append(f"memcpy({name}, {where}, {value.nbytes});")
        body.append("return 0;")
        text = "\n".join(body)
        places = [
            f"int8_t *const {name} = {memory}.bytes;"
            for name, memory in (("arena", "memory"), ("state", "kept"))
            if f"{name}[" in text
        ]
        lines = [*places, *writer.declared(), *body]
        run = "\n".join(line if line.endswith(":;") else f"    {line}" for line in lines)
        return f"{self._prototype(writer)}\n{{\n{run}\n}}\n"

    def _reset(self) -> str:
        lines: list[str] = []
        for state in self._states():
            data = self.shared.container.mutable_data[state.initial]
            where = f"&kept.bytes[{state.offset}]"
            if any(bytes(data)):
                lines.append(f"memcpy({where}, s{state.initial}, {len(data)});")
            else:
                lines.append(f"memset({where}, 0, {len(data)});")
        body = "\n".join(f"    {line}" for line in [*lines, "is_started = 1;"])
        return f"void {self.shared.name}_reset(void)\n{{\n{body}\n}}\n"

    def _source(self, bodies: Sequence[str]) -> str:
        shared, upper = self.shared, self.shared.name.upper()
        macros = [f"{upper}_ARENA_SECTION", f"{upper}_FLASH_SECTION"]
        defined = "".join(f"#ifndef {name}\n#define {name}\n#endif\n" for name in macros)
        defined = (
            "/* Where memory lies: define them as your compiler names a section, for instance\n"
            f"   -D{macros[0]}='__attribute__((section(\".sram\")))' */\n{defined}"
        )
        kernels = "\n".join(sections()[name][1] for name in shared.used)
        functions = "\n\n".join(
            text.replace("{name}", name, 1) for text, name in shared.functions.items()
        )
        kernels = without_unused(kernels, "\n".join([functions, *bodies]))
        constants = [
            _array(name, macros[1], bytes(shared.container.constants[index]), kind)
            for (index, kind), name in shared.constants.items()
        ]
        initial = {s.initial: bytes(shared.container.mutable_data[s.initial])
                   for s in self._states()}  # fmt: skip
        constants += [
            _array(f"s{index}", macros[1], data, ScalarType.BYTE)
            for index, data in initial.items()
            if any(data)
        ]
        parameters = "\n".join(
            text.replace("{name}", name, 1) for text, name in shared.parameters.items()
        )
        includes = ["math.h", "stddef.h", "string.h"]
        included = "\n".join(f"#include <{each}>" for each in includes)
        if shared.library is not None:
            included += f'\n#include "{shared.library.header}"'
        memory = [_memory("memory", macros[0], self._arena)]
        if self._state:
            memory += [_memory("kept", macros[0], self._state), "static int is_started;"]
            bodies = [self._reset(), *bodies]
        parts = [
            f'/* Generated by stepwell. */\n#include "{shared.name}.h"\n\n{included}\n',
            defined, kernels, "\n".join(memory), "\n".join(constants), parameters, functions,
            "\n".join(bodies),
        ]  # fmt: skip
        return "\n".join(f"{part.rstrip()}\n" for part in parts if part)

    def _main(self) -> str:
        """Return a `main` that runs a method on standard input repeatedly until the input ends."""
        functions, choices = [], []
        for writer in self.methods:
            taken, given = writer.ports()
            prefix = self._port_prefix(writer)
            buffers = [
                f"    static {_kind(writer, i)} {n}[{prefix}{n.upper()}_COUNT];"
                for n, i in (*taken, *given)
            ]
            reads = [line for n, _ in taken for line in _moved("fread", n, "stdin", 0)]
            names = ", ".join(n for n, _ in (*taken, *given))
            runs = [f"        if ({self._called(writer)}({names}) != 0) {{",
                    "            return 1;", "        }"]  # fmt: skip
            writes = [line for n, _ in given for line in _moved("fwrite", n, "stdout", 3)]
            ends = [] if taken else ["        return 0;"]
            lines = [*buffers, "    for (;;) {", *reads, *runs, *writes, *ends, "    }"]
            name = f"run_{writer.method.name}"
            functions.append(f"static int {name}(void)\n{{\n" + "\n".join(lines) + "\n}\n")
            choices.append(
                f'    if ((count > 1) && (strcmp(arguments[1], "{writer.method.name}") == 0)) {{\n'
                f"        return {name}();\n    }}"
            )
        alone = len(self.methods) == 1
        head = "int main(void)" if alone else "int main(int count, char **arguments)"
        chosen = "" if alone else "\n".join(choices) + "\n"
        string = "" if alone else "#include <string.h>\n"
        return (
            "/* Inputs from standard input, outputs to standard output, as raw bytes, until it\n"
            "   ends. Of several methods the first argument names one. */\n"
            f'#include <stdio.h>\n{string}\n#include "{self.shared.name}.h"\n\n'
            + "\n".join(functions)
            + f"\n{head}\n{{\n{chosen}    return run_{self.methods[0].method.name}();\n}}\n"
        )


_INLINE = re.compile(
    r"(?:^/\*(?:(?!\*/).)*\*/\n)?^static inline [^;{}]*?\b(\w+)\([^{}]*\)\n\{\n.*?^\}\n+",
    re.MULTILINE | re.DOTALL,
)


def without_unused(kernels: str, callers: str) -> str:
    """Return kernels without the inline functions that neither they nor `callers` call.

    Clang warns of such functions in a source file; GCC does not.
    """
    code = re.sub(r"/\*.*?\*/", "", f"{kernels}\n{callers}", flags=re.DOTALL)
    called = Counter(re.findall(r"\w+", code))
    kept = _INLINE.sub(lambda m: m[0] if called[m[1]] > 1 else "", kernels)
    return kept if kept == kernels else without_unused(kept, callers)


def _moved(function: str, port: str, stream: str, status: int) -> list[str]:
    """Return the lines of `main` that read or write an input or output, or exit on failure."""
    return [f"        if ({function}({port}, sizeof({port}), 1, {stream}) != 1) {{",
            f"            return {status};", "        }"]  # fmt: skip


def _kind(writer: MethodWriter, index: int) -> str:
    return c_type(writer.tensor(index).scalar_type)


def _arena(writer: MethodWriter, memory: int) -> int:
    sizes = writer.method.arena_sizes
    return sizes[memory] if memory < len(sizes) else 0


def _memory(name: str, section: str, size: int) -> str:
    return (
        f"static {section} union {{\n    int8_t bytes[{max(size, 1)}];\n    int64_t aligned;\n}} "
        f"{name};"
    )


def _array(name: str, section: str, data: bytes, kind: ScalarType) -> str:
    values = torch.frombuffer(bytearray(data), dtype=torch_dtype(kind)).tolist()
    c_kind = c_type(kind)
    if c_kind in ("float", "double"):
        text = [constant(value, "double" if c_kind == "double" else "float") for value in values]
    else:
        text = [
            "INT32_MIN" if value == -(1 << 31) else constant(value, "whole") for value in values
        ]
    rows = [", ".join(text[at : at + _PER_LINE]) for at in range(0, len(text), _PER_LINE)]
    joined = ",\n    ".join(rows)
    return f"static {section} const {c_kind} {name}[{len(values)}] = {{\n    {joined}\n}};"
