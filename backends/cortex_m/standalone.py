"""A Cortex-M program as C without a runtime: constants, one static arena, a function that runs it.

The calls, their order and the places of tensors are those of the `.pte`: what is written here is
the container that `emit` made, call by call. The kernels are this project's own, plain C99
(`portable_kernels.c`), bit for bit what the interpreter and CMSIS-NN compute, without scratch; or
CMSIS-NN's own, through its public API. Nothing is allocated; a program needs its constants in flash
and its arena in RAM.
"""

from __future__ import annotations

from stepwell.backends.cortex_m.c_array import check_identifier
from stepwell.backends.cortex_m.c_calls import HANDLERS
from stepwell.backends.cortex_m.c_calls_cmsis_nn import CMSIS_NN, CMSIS_NN_HANDLERS
from stepwell.backends.cortex_m.c_writer import Sources, Writer
from stepwell.backends.cortex_m.emit import TARGET_METHOD, emit
from stepwell.dialects.cmsis.ops import CmsisOp
from stepwell.dialects.cmsis.ops.base import to_attribute
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.program import Program

__all__ = ["KERNELS", "Sources", "to_sources"]

KERNELS = {"portable": (None, HANDLERS), "cmsis-nn": (CMSIS_NN, CMSIS_NN_HANDLERS)}
"""Whose kernels → the library that the program is linked with, and what writes each call."""


def to_sources(
    program: Program, name: str = "model", method: str = "forward", kernels: str = "portable"
) -> Sources:
    """The C files of one method: `<name>.h`, `<name>.c`, and a skeleton of a firmware around them.

    Args:
        program: at the cmsis level.
        name: of the files and the function.
        method: which one.
        kernels: a key of `KERNELS`.

    Raises:
        StepwellError: the name cannot be one, or there is no such method or kernels.
        UnsupportedError: naming every call that has no kernel in C.
    """
    check_identifier(name)
    if kernels not in KERNELS:
        known = " or ".join(repr(key) for key in KERNELS)
        raise StepwellError(f"there are no kernels {kernels!r} in C", help=f"they are {known}")
    library, handlers = KERNELS[kernels]
    container = emit(_without_scratch(program) if library is None else program)
    found = container.method(method)
    if found is None or method == TARGET_METHOD:
        raise StepwellError(
            f"there is no method {method!r}", help="methods are " + ", ".join(program.methods)
        )
    return Writer(container, found, name, library).sources(handlers)


def _without_scratch(program: Program) -> Program:
    plain = program.clone()
    for op in plain.module.walk():
        if isinstance(op, CmsisOp):
            for field in ("scratch", "output_scratch"):
                if field in op.properties:
                    op.properties[field] = to_attribute(0)
    return plain
