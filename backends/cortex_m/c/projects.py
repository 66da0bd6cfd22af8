"""The files around a generated program, by build system: CMake, Zephyr, ESP-IDF, Arduino, wasm.

A project takes a program's header, source and `main`, and returns the files of a folder. In each,
`-ffp-contract=off` keeps a product and a sum two roundings, as in PyTorch: cores that fuse them
(M4, M55, RV32F, Xtensa) would give other bits.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from stepwell.dialects.cmsis.target import Core

CMAKE = "cmake"
_WASM_TARGET = "--target=wasm32-wasi"
Port = tuple[str, str, int]
"""The name of an input or output, its C type and its number of elements."""


@dataclass(frozen=True)
class Written:
    """A program as text, before it becomes a project.

    Attributes:
        name: the name of its files and functions.
        header, source, main: the texts.
        functions: function → its inputs and outputs, the public functions.
        has_state: whether `<name>_reset` exists.
        core: the core for which it was lowered, if stated.
        library: lines of CMake for a library of kernels.
    """

    name: str
    header: str
    source: str
    main: str
    functions: Mapping[str, tuple[Sequence[Port], Sequence[Port]]]
    has_state: bool = False
    core: Core | None = None
    library: str = ""


def _cmake(w: Written) -> dict[str, str]:
    flags = " ".join(w.core.flags) if w.core else ""
    note = f"\n# The core that it was lowered for: {flags}" if flags else ""
    text = (_CMAKE + w.library).format(name=w.name, note=note)
    return {**_plain(w), "main.c": w.main, "CMakeLists.txt": text}


def _plain(w: Written, folder: str = "") -> dict[str, str]:
    return {f"{folder}{w.name}.h": w.header, f"{folder}{w.name}.c": w.source}


def _zephyr(w: Written) -> dict[str, str]:
    texts = {name: text.format(name=w.name, NAME=w.name.upper()) for name, text in _ZEPHYR.items()}
    return {**_plain(w), **texts}


def _esp_idf(w: Written) -> dict[str, str]:
    return {**_plain(w), **{name: text.format(name=w.name) for name, text in _ESP_IDF.items()}}


def _arduino(w: Written) -> dict[str, str]:
    function, (inputs, outputs) = next(iter(w.functions.items()))
    ports = (*inputs, *outputs)
    buffers = "\n".join(f"static {kind} {port}[{count}];" for port, kind, count in ports)
    told = {"name": w.name, "buffers": buffers, "function": function,
            "ports": ", ".join(port for port, _, _ in ports)}  # fmt: skip
    files = {**_plain(w, "src/"), f"src/{w.name}.c": _NO_FUSED + w.source}
    return {
        **files,
        **{path.format(**told): text.format(**told) for path, text in _ARDUINO.items()},
    }


def _wasm(w: Written) -> dict[str, str]:
    exports = [*w.functions, *([f"{w.name}_reset"] if w.has_state else ())]
    stated = w.core.flags if w.core and _WASM_TARGET in w.core.flags else ()
    flags = " ".join(flag for flag in stated if flag != _WASM_TARGET)
    ports = {
        function: [[[kind, count] for _, kind, count in side] for side in sides]
        for function, sides in w.functions.items()
    }
    told = {
        "name": w.name,
        "flags": f" {flags}" if flags else "",
        "exports": " ".join(f"-Wl,--export={each}" for each in (*exports, "__heap_base")),
        "ports": json.dumps(ports),
    }
    texts = {path.format(**told): _filled(text, told) for path, text in _WASM.items()}
    return {**_plain(w), **texts}


def _filled(text: str, told: Mapping[str, str]) -> str:
    for key, value in told.items():
        text = text.replace(f"@{key}@", value)
    return text


PROJECTS: dict[str, Callable[[Written], dict[str, str]]] = {
    CMAKE: _cmake,
    "zephyr": _zephyr,
    "esp-idf": _esp_idf,
    "arduino": _arduino,
    "wasm": _wasm,
}
"""Name → what returns the files of the folder."""

_CMAKE = """\
# Host: cmake -B build && cmake --build build && build/{name} < input.bin > output.bin
# Device: give CMake your board's toolchain file, and call the functions of {name}.h in it.{note}
cmake_minimum_required(VERSION 3.16)
project({name} C)
set(CMAKE_C_STANDARD 99)
add_library({name}_model STATIC {name}.c)
target_compile_options({name}_model PRIVATE -Wall -Wextra -Wconversion -ffp-contract=off)
target_include_directories({name}_model PUBLIC ${{CMAKE_CURRENT_SOURCE_DIR}})
target_link_libraries({name}_model PUBLIC m)
add_executable({name} main.c)
target_link_libraries({name} PRIVATE {name}_model)
"""
_ZEPHYR = {
    "zephyr/module.yml": "name: {name}\nbuild:\n  cmake: .\n  kconfig: Kconfig\n",
    "Kconfig": 'config {NAME}_MODEL\n\tbool "The network {name}"\n\tdefault y\n',
    "CMakeLists.txt": """\
# A Zephyr module: west build … -- -DEXTRA_ZEPHYR_MODULES=<this folder>
if(CONFIG_{NAME}_MODEL)
  zephyr_include_directories(.)
  zephyr_library_named({name})
  zephyr_library_sources({name}.c)
  zephyr_library_compile_options(-O2 -ffp-contract=off)
endif()
""",
}
_ESP_IDF = {
    "CMakeLists.txt": """\
# An ESP-IDF component: put this folder into components/, and REQUIRES {name} into main's list.
idf_component_register(SRCS "{name}.c" INCLUDE_DIRS ".")
target_compile_options(${{COMPONENT_LIB}} PRIVATE -O2 -ffp-contract=off)
""",
    "idf_component.yml": 'version: "1.0.0"\ndescription: "The network {name}, generated"\n',
}
_NO_FUSED = """\
/* Arduino passes no flags of a library to the compiler. */
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#elif defined(__GNUC__)
#pragma GCC optimize("-O2", "-ffp-contract=off")
#endif
"""
_ARDUINO = {
    "library.properties": """\
name={name}
version=1.0.0
author=stepwell
maintainer=stepwell
sentence=The network {name} as C without a runtime.
paragraph=One function, one static arena; no allocation.
category=Data Processing
url=https://pypi.org/project/stepwell
architectures=*
includes={name}.h
""",
    "examples/run/run.ino": """\
#include <{name}.h>

{buffers}

void setup() {{
  Serial.begin(115200);
}}

void loop() {{
  const unsigned long start = micros();
  const int status = {function}({ports});
  Serial.print("status ");
  Serial.print(status);
  Serial.print(", microseconds ");
  Serial.println(micros() - start);
  delay(1000);
}}
""",
}
_WASM = {
    "Makefile": """\
# CC is any Clang with wasm32-wasi's C library: that of wasi-sdk, or of `pip install ziglang`.
ifeq ($(origin CC),default)
CC = python3 -m ziglang cc
endif
@name@.wasm: @name@.c @name@.h
\t$(CC) --target=wasm32-wasi -mexec-model=reactor -std=c99 -O2 -s -ffp-contract=off@flags@ \\
\t    @exports@ @name@.c -o $@
""",
    "{name}.mjs": """\
// Runs @name@.wasm in a browser or in node: const net = await load(bytes); net.@name@_run(input).
const PORTS = @ports@;
const ARRAYS = {
  int8_t: Int8Array, uint8_t: Uint8Array, int16_t: Int16Array, int32_t: Int32Array,
  int64_t: BigInt64Array, float: Float32Array, double: Float64Array,
};

// Takes the bytes of the file; returns its functions. Each takes a typed array for each input, in
// the header's order and layout, and returns the output, or an array of outputs.
export async function load(bytes) {
  const { instance } = await WebAssembly.instantiate(bytes, {});
  const { memory, __heap_base, _initialize, ...functions } = instance.exports;
  _initialize?.();
  const net = { reset: functions.@name@_reset };
  for (const [name, [inputs, outputs]] of Object.entries(PORTS)) {
    let end = __heap_base.value;
    const places = [...inputs, ...outputs].map(([kind, count]) => {
      const at = (end + 15) & ~15;
      end = at + count * ARRAYS[kind].BYTES_PER_ELEMENT;
      return { at, view: () => new ARRAYS[kind](memory.buffer, at, count) };
    });
    const missing = end - memory.buffer.byteLength;
    if (missing > 0) memory.grow(Math.ceil(missing / 65536));
    net[name] = (...given) => {
      inputs.forEach(([kind, count], n) => {
        if (given[n]?.length !== count) throw new Error(`input ${n} takes ${count} of ${kind}`);
        places[n].view().set(given[n]);
      });
      const status = functions[name](...places.map((place) => place.at));
      if (status !== 0) throw new Error(`${name} returns ${status}`);
      const made = places.slice(inputs.length).map((place) => place.view().slice());
      return made.length === 1 ? made[0] : made;
    };
  }
  return net;
}
""",
}
