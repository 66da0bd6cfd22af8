"""A Cortex-M program as C without a runtime: constants, one static arena, a function that runs it.

The calls, their order and the places of tensors are those of the `.pte`: what is written here is
the container that `emit` made, call by call. `portable` kernels are this project's own, plain C99
(`portable_kernels.c`), bit for bit what the interpreter and CMSIS-NN compute; they need no scratch.
Nothing is allocated; a program needs its constants in flash and its arena in RAM.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import torch

from stepwell.backends.cortex_m.c_array import check_identifier
from stepwell.backends.cortex_m.emit import TARGET_METHOD, emit
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
    TensorList,
    TensorValue,
    strides,
)
from stepwell.dialects.cmsis.ops import CmsisOp
from stepwell.dialects.cmsis.ops.base import to_attribute
from stepwell.dialects.cmsis.ops.layout import NCHW_TO_NHWC
from stepwell.ir.diagnostics import Problem, StepwellError, UnsupportedError
from stepwell.ir.program import Program

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

    def save(self, folder: Path) -> None:
        """Write every file into a folder, which is made."""
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in self.files.items():
            (folder / name).write_text(text)

    def __str__(self) -> str:
        return (
            f"constants {self.constants:,} B, arena {self.arena:,} B, {self.calls} calls; "
            + ", ".join(self.files)
        )


def to_sources(program: Program, name: str = "model", method: str = "forward") -> Sources:
    """The C files of one method: `<name>.h`, `<name>.c`, and a skeleton of a firmware around them.

    Raises:
        StepwellError: the name cannot be one, or there is no such method.
        UnsupportedError: naming every call that has no kernel in C.
    """
    check_identifier(name)
    plain = program.clone()
    for op in plain.module.walk():
        if isinstance(op, CmsisOp):
            for field_ in ("scratch", "output_scratch"):
                if field_ in op.properties:
                    op.properties[field_] = to_attribute(0)
    container = emit(plain)
    found = container.method(method)
    if found is None or method == TARGET_METHOD:
        raise StepwellError(
            f"there is no method {method!r}", help="methods are " + ", ".join(program.methods)
        )
    return Writer(container, found, name).sources()


@functools.cache
def _sections() -> dict[str, tuple[tuple[str, ...], str]]:
    """Section name → what it needs, and its text."""
    text = Path(__file__).with_name("portable_kernels.c").read_text()
    parts = re.split(r"^/\* section (\w+):([\w ]*)\*/\n", text, flags=re.MULTILINE)[1:]
    return {
        name: (tuple(needs.split()), body.strip() + "\n")
        for name, needs, body in zip(parts[::3], parts[1::3], parts[2::3], strict=True)
    }


@dataclass
class Writer:
    """One method of a container, call by call."""

    container: Container
    method: Method
    name: str
    constants: dict[tuple[int, ScalarType], str] = field(default_factory=dict[Any, str])
    statements: list[str] = field(default_factory=list[str])
    parameters: list[str] = field(default_factory=list[str])
    used: dict[str, None] = field(default_factory=dict[str, None])

    def sources(self) -> Sources:
        """The files."""
        problems: list[Problem] = []
        for step, call in enumerate(self.method.instructions):
            if not isinstance(call, KernelCall) or call.kernel not in _CALLS:
                what = call.kernel if isinstance(call, KernelCall) else type(call).__name__
                where = f"method {self.method.name}, instruction {step}"
                problems.append(Problem(f"{what} has no kernel in C", where, _REMEDY))
                continue
            _CALLS[call.kernel](self, self._arguments(call))
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
            "CMakeLists.txt": _CMAKE.format(name=self.name),
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

    def params(self, type_: str, values: Mapping[str, Any]) -> str:
        """A constant structure of parameters; gives its address."""
        name = f"p{len(self.parameters)}"
        listed = ", ".join(f".{key} = {_literal(value)}" for key, value in values.items())
        self.parameters.append(f"static const sw_{type_}_params {name} = {{{listed}}};")
        return f"&{name}"

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
        return (
            f"#ifndef {guard}\n#define {guard}\n\n#include <stdint.h>\n\n"
            f'#ifdef __cplusplus\nextern "C" {{\n#endif\n\n{body}\n\n'
            "/* 0, or 1 if a pointer is NULL. Not reentrant: there is one arena. */\n"
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
        constants = "\n".join(
            _array(name, self._data(index), kind) for (index, kind), name in self.constants.items()
        )
        parameters = "\n".join(self.parameters)
        run = "\n".join(f"    {line}" for line in body)
        return (
            f'/* Generated by stepwell. */\n#include "{self.name}.h"\n\n{includes}\n{kernels}\n'
            f"{constants}\n{parameters}\n\n"
            f"static union {{\n    int8_t bytes[{arena}];\n    int64_t aligned;\n}} memory;\n\n"
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


def _literal(value: Any) -> str:
    if isinstance(value, list | tuple):
        return "{" + ", ".join(map(_literal, cast("Sequence[Any]", value))) + "}"
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


# -- calls -----------------------------------------------------------------------------------------

_Handler = Callable[[Writer, dict[str, Any]], None]


def _convolution(operator: str) -> _Handler:
    section = operator.removeprefix("quantized_").removesuffix("_nhwc")

    def write(w: Writer, a: dict[str, Any]) -> None:
        given, made = w.nhwc(a["input"], operator), w.nhwc(a["out"], operator)
        filter_ = w.tensor(a["weight"]).sizes
        values = {
            "batch": given[0], "in_h": given[1], "in_w": given[2], "in_c": given[3],
            "kernel_h": filter_[1], "kernel_w": filter_[2], "kernel_c": filter_[3],
            "out_h": made[1], "out_w": made[2], "out_c": made[3],
            "stride_h": a["stride"][0], "stride_w": a["stride"][1],
            "pad_h": a["padding"][0], "pad_w": a["padding"][1],
            "dilation_h": a["dilation"][0], "dilation_w": a["dilation"][1],
            "in_offset": a["input_offset"], "out_offset": a["output_offset"],
            "low": a["activation_min"], "high": a["activation_max"],
        }  # fmt: skip
        w.call(
            section,
            [
                w.params("conv", values),
                w.pointer(a["input"]),
                w.pointer(a["weight"]),
                w.pointer(a["bias"], "int32_t"),
                w.pointer(a["requantize_multipliers"], "int32_t"),
                w.pointer(a["requantize_shifts"], "int32_t"),
                w.pointer(a["out"]),
            ],
        )

    return write


def _linear(w: Writer, a: dict[str, Any]) -> None:
    columns, inner = w.tensor(a["weights"]).sizes
    sums = a["kernel_sum"] is not None
    values = {
        "batch": 1, "rows": w.count(a["input"]) // inner, "inner": inner, "columns": columns,
        # Kernel sums hold the bias and the input's offset times the weights.
        "in_offset": 0 if sums else a["input_offset"],
        "filter_offset": a["filter_offset"], "out_offset": a["output_offset"],
        "multiplier": a["requantize_multipliers"][0], "shift": a["requantize_shifts"][0],
        "low": a["activation_min"], "high": a["activation_max"],
    }  # fmt: skip
    bias = a["kernel_sum"] if sums else a["bias"]
    w.call(
        "linear",
        [
            w.params("matmul", values),
            w.pointer(a["input"]),
            w.pointer(a["weights"]),
            w.pointer(bias, "int32_t"),
            w.pointer(a["out"]),
        ],
    )


def _batch_matmul(w: Writer, a: dict[str, Any]) -> None:
    batch, rows, inner = w.tensor(a["lhs"]).sizes
    values = {
        "batch": batch, "rows": rows, "inner": inner,
        "columns": w.tensor(a["rhs_transposed"]).sizes[1],
        "in_offset": a["lhs_zero_point"], "filter_offset": a["rhs_zero_point"],
        "out_offset": a["output_zero_point"],
        "multiplier": a["output_multiplier"], "shift": a["output_shift"],
        "low": -128, "high": 127,
    }  # fmt: skip
    operands = [w.pointer(a[name]) for name in ("lhs", "rhs_transposed", "out")]
    w.call("batch_matmul", [w.params("matmul", values), *operands])


def _add(w: Writer, a: dict[str, Any]) -> None:
    values = {
        "count": w.count(a["out"]), "period": w.count(a["other"]),
        "a_offset": -a["self_zero_point"], "a_multiplier": a["self_multiplier"],
        "a_shift": a["self_shift"], "b_offset": -a["other_zero_point"],
        "b_multiplier": a["other_multiplier"], "b_shift": a["other_shift"],
        "out_offset": a["output_zero_point"], "out_multiplier": a["output_multiplier"],
        "out_shift": a["output_shift"], "low": a["activation_min"], "high": a["activation_max"],
    }  # fmt: skip
    operands = [w.pointer(a[name]) for name in ("self", "other", "out")]
    w.call("add", [w.params("add", values), *operands])


def _mul(w: Writer, a: dict[str, Any]) -> None:
    values = {
        "count": w.count(a["out"]), "period": w.count(a["other"]),
        "a_offset": -a["self_zero_point"], "b_offset": -a["other_zero_point"],
        "out_offset": a["output_zero_point"], "out_multiplier": a["output_multiplier"],
        "out_shift": a["output_shift"],
    }  # fmt: skip
    operands = [w.pointer(a[name]) for name in ("self", "other", "out")]
    w.call("mul", [w.params("mul", values), *operands])


def _div(w: Writer, a: dict[str, Any]) -> None:
    if w.tensor(a["self"]).scalar_type is not ScalarType.CHAR:
        raise UnsupportedError("an int16 division has no kernel in C", w.method.name)
    values = {
        "count": w.count(a["out"]), "a_zero": a["self_zero_point"],
        "b_zero": a["other_zero_point"], "out_zero": a["output_zero_point"],
        "scale": float(a["output_scale"]),
    }  # fmt: skip
    operands = [w.pointer(a[name]) for name in ("self", "other", "out")]
    w.call("div", [w.params("div", values), *operands])


def _select(greater: bool) -> _Handler:
    def write(w: Writer, a: dict[str, Any]) -> None:
        size = w.physical(a["out"])
        padded = [1] * (4 - len(size)) + size

        def steps(index: int) -> list[int]:
            own = [1] * (4 - len(w.physical(index))) + w.physical(index)
            found = strides(own, range(4))
            return [0 if n == 1 else step for n, step in zip(own, found, strict=True)]

        values = {
            "size": padded, "a_stride": steps(a["self"]), "b_stride": steps(a["other"]),
            "greater": int(greater),
        }  # fmt: skip
        operands = [w.pointer(a[name]) for name in ("self", "other", "out")]
        w.call("select", [w.params("select", values), *operands])

    return write


def _activation(w: Writer, a: dict[str, Any]) -> None:
    w.call("activation", [w.count(a["out"]), *(w.pointer(a[n]) for n in ("input", "lut", "out"))])


def _pool(operator: str) -> _Handler:
    section = operator.removeprefix("quantized_").removesuffix("_nhwc")

    def write(w: Writer, a: dict[str, Any]) -> None:
        given, made = w.nhwc(a["input"], operator), w.nhwc(a["out"], operator)
        values = {
            "batch": given[0], "in_h": given[1], "in_w": given[2], "channels": given[3],
            "out_h": made[1], "out_w": made[2],
            "kernel_h": a["kernel_size"][0], "kernel_w": a["kernel_size"][1],
            "stride_h": a["stride"][0], "stride_w": a["stride"][1],
            "pad_h": a["padding"][0], "pad_w": a["padding"][1],
            "low": a.get("activation_min", -128), "high": a.get("activation_max", 127),
        }  # fmt: skip
        w.call(section, [w.params("pool", values), w.pointer(a["input"]), w.pointer(a["out"])])

    return write


def _softmax(w: Writer, a: dict[str, Any]) -> None:
    size = w.tensor(a["input"]).sizes[-1]
    numbers = [w.count(a["input"]) // size, size, a["input_multiplier"], a["input_shift"]]
    w.call("softmax", [*numbers, a["diff_min"], w.pointer(a["input"]), w.pointer(a["out"])])


def _permuted(w: Writer, source: int, order: Sequence[int], result: int) -> None:
    """Elements of `source` in row-major order of its dimensions permuted."""
    value = w.tensor(source)
    if len(order) > 6:
        raise UnsupportedError("a transposition of more than 6 dimensions", w.method.name)
    steps = strides(value.sizes, value.dim_order)
    rest = 6 - len(order)
    values = {
        "bytes": value.scalar_type.itemsize,
        "size": [1] * rest + [value.sizes[axis] for axis in order],
        "stride": [0] * rest + [steps[axis] for axis in order],
    }
    given, made = (w.pointer(i, "uint8_t") for i in (source, result))
    w.call("permute", [w.params("permute", values), given, made])


def _transpose(w: Writer, a: dict[str, Any]) -> None:
    _permuted(w, a["input"], a["perm"], a["out"])


def _pad(w: Writer, a: dict[str, Any]) -> None:
    sizes = w.physical(a["input"])
    values = {
        "size": [1] * (4 - len(sizes)) + sizes, "before": a["pre_pad"], "after": a["post_pad"],
        "value": a["pad_value"],
    }  # fmt: skip
    w.call("pad", [w.params("pad", values), w.pointer(a["input"]), w.pointer(a["out"])])


def _quantize(w: Writer, a: dict[str, Any]) -> None:
    _only_int8(w, a["out"])
    numbers = [w.count(a["out"]), _literal(float(a["scale"]))]
    numbers += [a[name] for name in ("zero_point", "quant_min", "quant_max")]
    w.call("quantize", [*numbers, w.pointer(a["input"], "uint8_t"), w.pointer(a["out"])])


def _dequantize(w: Writer, a: dict[str, Any]) -> None:
    _only_int8(w, a["input"])
    numbers = [w.count(a["out"]), _literal(float(a["scale"])), a["zero_point"]]
    w.call("dequantize", [*numbers, w.pointer(a["input"]), w.pointer(a["out"], "uint8_t")])


def _only_int8(w: Writer, index: int) -> None:
    if w.tensor(index).scalar_type is not ScalarType.CHAR:
        raise UnsupportedError("int16 casts have no kernel in C", w.method.name)


def _copy(w: Writer, a: dict[str, Any]) -> None:
    args = cast(KernelCall, a["call"]).args
    value = w.tensor(args[0])
    made = args[-1]
    if value.dim_order == w.tensor(made).dim_order:
        w.statements.append(f"memcpy({w.pointer(made)}, {w.pointer(args[0])}, {value.nbytes});")
    else:
        _permuted(w, args[0], w.tensor(made).dim_order, made)


def _permute_copy(w: Writer, a: dict[str, Any]) -> None:
    args = cast(KernelCall, a["call"]).args
    order = w.method.values[args[1]]
    assert isinstance(order, IntList)
    rank = len(order.items)
    axes = [cast(int, w.method.values[item]) % rank for item in order.items]
    _permuted(w, args[0], axes, args[-1])


def _transpose_copy(w: Writer, a: dict[str, Any]) -> None:
    args = cast(KernelCall, a["call"]).args
    axes = list(range(len(w.tensor(args[0]).sizes)))
    first, second = (cast(int, w.method.values[i]) % len(axes) for i in args[1:3])
    axes[first], axes[second] = axes[second], axes[first]
    _permuted(w, args[0], axes, args[-1])


def _cat(w: Writer, a: dict[str, Any]) -> None:
    args = cast(KernelCall, a["call"]).args
    listed, made = w.method.values[args[0]], args[-1]
    assert isinstance(listed, TensorList)
    value = w.tensor(made)
    axis = cast(int, w.method.values[args[1]]) % len(value.sizes)
    inner = math.prod(value.sizes[axis + 1 :]) * value.scalar_type.itemsize
    whole, outer, at = value.sizes[axis] * inner, math.prod(value.sizes[:axis]), 0
    for index in listed.items:
        run = w.tensor(index).sizes[axis] * inner
        given, into = w.pointer(index, "uint8_t"), w.pointer(made, "uint8_t")
        w.call("blocks", [outer, run, run, whole, given, f"{into} + {at}"])
        at += run


def _slice(w: Writer, a: dict[str, Any]) -> None:
    args = cast(KernelCall, a["call"]).args
    numbers = [cast("int | None", w.method.values[i]) for i in args[1:5]]
    axis, start, _, step = numbers
    value, made = w.tensor(args[0]), args[-1]
    assert axis is not None
    axis %= len(value.sizes)
    first = min(
        max((start or 0) + (value.sizes[axis] if (start or 0) < 0 else 0), 0), value.sizes[axis]
    )
    if step not in (None, 1):
        raise UnsupportedError("a slice with steps has no kernel in C", w.method.name)
    inner = math.prod(value.sizes[axis + 1 :]) * value.scalar_type.itemsize
    run, whole = w.tensor(made).sizes[axis] * inner, value.sizes[axis] * inner
    given, into = w.pointer(args[0], "uint8_t"), w.pointer(made, "uint8_t")
    outer = math.prod(value.sizes[:axis])
    w.call("blocks", [outer, run, whole, run, f"{given} + {first * inner}", into])


_BY_OPERATOR: dict[str, _Handler] = {
    "quantize_per_tensor": _quantize,
    "dequantize_per_tensor": _dequantize,
    "quantized_add": _add,
    "quantized_mul": _mul,
    "quantized_div": _div,
    "quantized_activation": _activation,
    "minimum": _select(False),
    "maximum": _select(True),
    "quantized_linear": _linear,
    "softmax": _softmax,
    "transpose": _transpose,
    "pad": _pad,
    "quantized_batch_matmul": _batch_matmul,
    **{
        f"quantized_{stem}{layout}": _convolution(f"quantized_{stem}{layout}")
        for stem in ("conv2d", "depthwise_conv2d", "transpose_conv2d")
        for layout in ("", "_nhwc")
    },
    **{
        f"quantized_{stem}{layout}": _pool(f"quantized_{stem}{layout}")
        for stem in ("avg_pool2d", "max_pool2d")
        for layout in ("", "_nhwc")
    },
}
_CALLS: dict[str, _Handler] = {
    **{f"cortex_m::{name}.out": handler for name, handler in _BY_OPERATOR.items()},
    "aten::clone.out": _copy,
    "aten::view_copy.out": _copy,
    "dim_order_ops::_to_dim_order_copy.out": _copy,
    "dim_order_ops::_clone_dim_order.out": _copy,
    "aten::permute_copy.out": _permute_copy,
    "aten::transpose_copy.int_out": _transpose_copy,
    "aten::cat.out": _cat,
    "aten::slice_copy.Tensor_out": _slice,
}
