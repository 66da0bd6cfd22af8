"""A Cortex-M program as C without a runtime: constants, one static arena, a function that runs it.

The calls, their order and the places of tensors are those of the `.pte`: what is written here is
the container that `emit` made, call by call. The kernels are this project's own, plain C99
(`portable_kernels.c`), bit for bit what the interpreter and CMSIS-NN compute; they need no scratch.
Nothing is allocated; a program needs its constants in flash and its arena in RAM.
"""

from __future__ import annotations

from stepwell.backends.cortex_m.c_array import check_identifier
from stepwell.backends.cortex_m.c_calls import HANDLERS
from stepwell.backends.cortex_m.c_writer import Sources, Writer
from stepwell.backends.cortex_m.emit import TARGET_METHOD, emit
from stepwell.dialects.cmsis.ops import CmsisOp
from stepwell.dialects.cmsis.ops.base import to_attribute
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.program import Program

__all__ = ["Sources", "to_sources"]


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
    return Writer(container, found, name).sources(HANDLERS)
