"""Run C without a runtime on this machine: its C compiler builds a library, which is called."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

from stepwell.backends.cortex_m.c.writer import Sources
from stepwell.backends.executorch.container import Method, TensorValue
from stepwell.backends.executorch.kernels.scalar_types import torch_dtype
from stepwell.ir.calls.calling import laid_out
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.diagnostics import NoEngine, StepwellError

_FLAGS = "-std=c99 -O1 -ffp-contract=off -Werror=implicit -shared -fPIC".split()
_REASONS = {1: "a pointer is NULL", 2: "a kernel refuses", 3: "an index is outside of its table"}


def session_of(sources: Sources) -> Callable[[str, Sequence[Any]], tuple[Any, ...]]:
    """Build a program and return the function that calls its methods, which keep their state.

    Raises:
        NoEngine: this machine has no C compiler.
        StepwellError: the compiler refuses the program.
    """
    library = _built.__wrapped__(sources.name, *_texts(sources))

    def call(method: str, inputs: Sequence[Any]) -> tuple[Any, ...]:
        return _called(library, sources, method, inputs)

    return call


def run_sources(sources: Sources, inputs: Sequence[Any], method: str) -> tuple[Any, ...]:
    """Run a method once, from the initial state.

    Raises:
        NoEngine: this machine has no C compiler.
        StepwellError: the compiler refuses the program, or the method is unknown or fails.
    """
    header, code = _texts(sources)
    library = _built(sources.name, header, code)
    reset = f"{sources.name}_reset"
    if f"void {reset}(" in header:
        getattr(library, reset)()
    return _called(library, sources, method, inputs)


@lru_cache(maxsize=4)
def _built(name: str, header: str, code: str) -> ctypes.CDLL:
    """Compile a program and load it; equal texts are one library."""
    found = [each for each in (os.environ.get("CC"), "cc", "gcc", "clang") if each]
    compiler = next((path for each in found if (path := shutil.which(each))), None)
    if compiler is None:
        raise NoEngine(
            "this machine has no C compiler",
            help="install gcc or clang; lowered.program.run computes what the C computes",
        )
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / f"{name}.h").write_text(header)
        (Path(folder) / f"{name}.c").write_text(code)
        command = [compiler, *_FLAGS, f"{name}.c", "-o", "program.so", "-lm"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        if done.returncode:
            reason = done.stderr.partition("\n")[0]
            raise StepwellError(f"{compiler} refuses the program: {reason}")
        return ctypes.CDLL(str(Path(folder) / "program.so"))


def _texts(sources: Sources) -> tuple[str, str]:
    """Return the program's header and source, in whatever folder a project has them."""
    by_name = {Path(path).name: text for path, text in sources.files.items()}
    return by_name[f"{sources.name}.h"], by_name[f"{sources.name}.c"]


def _tensors(method: Method, indices: Sequence[int]) -> list[TensorValue | None]:
    values = (method.values[index] for index in indices)
    return [value if isinstance(value, TensorValue) else None for value in values]


def _called(
    library: ctypes.CDLL, sources: Sources, method: str, inputs: Sequence[Any]
) -> tuple[Any, ...]:
    """Call a method's function, write inputs that it modifies, and return its outputs."""
    if method not in sources.methods:
        raise StepwellError(
            f"there is no method {method!r}", help="methods are " + ", ".join(sources.methods)
        )
    held = sources.methods[method]
    pairs = zip(_tensors(held, held.inputs), inputs, strict=True)
    given = [(tensor, cast("torch.Tensor", value)) for tensor, value in pairs if tensor]
    copies = [laid_out(value.clone(), tensor.dim_order) for tensor, value in given]
    results = list(filter(None, _tensors(held, held.outputs)))
    made = [
        torch.empty([tensor.sizes[axis] for axis in tensor.dim_order],
                    dtype=torch_dtype(tensor.scalar_type))
        for tensor in results
    ]  # fmt: skip
    alone = len(sources.methods) == 1
    function = getattr(library, f"{sources.name}_{'run' if alone else method}")
    status = function(*(ctypes.c_void_p(value.data_ptr()) for value in (*copies, *made)))
    if status != 0:
        raise StepwellError(f"{method} returns {status}: {_REASONS.get(status, 'unknown')}")
    for (_, value), copy in zip(given, copies, strict=True):
        value.copy_(copy)
    return tuple(
        value.permute([tensor.dim_order.index(axis) for axis in range(value.dim())])
        for value, tensor in zip(made, results, strict=True)
    )
