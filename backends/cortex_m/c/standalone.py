"""Emit a Cortex-M program as C without a runtime: constants, one static arena, functions.

The calls, their order and the offsets of tensors are those of the `.pte`: this module translates
the container that `emit` created, call by call. The kernels are this project's own, plain C99
(`portable_kernels.c`), bit for bit equal to the interpreter and CMSIS-NN, without scratch; or
CMSIS-NN's own, through its public API; or, for each call, the one that needs fewer instructions.
Operators without a function of the library become loops, generated from the operator's meaning.
Nothing is allocated; a program needs its constants in flash and its arena in RAM.
"""

from collections.abc import Callable, Mapping, Sequence

from stepwell.backends.cortex_m.c.array import check_identifier
from stepwell.backends.cortex_m.c.calls import HANDLERS
from stepwell.backends.cortex_m.c.calls_cmsis_nn import (
    CMSIS_NN,
    CMSIS_NN_HANDLERS,
    has_own_kernel,
    mixed_handlers,
)
from stepwell.backends.cortex_m.c.control import write_method
from stepwell.backends.cortex_m.c.files import Files
from stepwell.backends.cortex_m.c.projects import CMAKE
from stepwell.backends.cortex_m.c.writer import Handler, Library, MethodWriter, Shared, Sources
from stepwell.backends.cortex_m.emit import TARGET_METHOD, emit
from stepwell.backends.cortex_m.read import stated_target
from stepwell.backends.executorch.container import Container, Method
from stepwell.dialects.cmsis.ops import CmsisOp
from stepwell.dialects.cmsis.ops.base import to_attribute
from stepwell.dialects.cmsis.target import Core, Isa
from stepwell.dialects.quant.ports import INPUT, OUTPUT, meanings
from stepwell.dialects.quant.types import Quantization
from stepwell.ir.diagnostics import Problem, StepwellError, UnsupportedError
from stepwell.ir.program import Program

__all__ = ["KERNELS", "Sources", "to_sources"]

KERNELS: dict[str, Library | None] = {"portable": None, "cmsis-nn": CMSIS_NN, "mixed": CMSIS_NN}
"""The choice of kernels → the library with which the program is linked."""


def to_sources(
    program: Program,
    name: str = "model",
    method: str | None = None,
    kernels: str = "portable",
    project: str = CMAKE,
) -> Sources:
    """Return the C files of the methods: `<name>.h`, `<name>.c`, and a skeleton of a firmware.

    Args:
        program: a program at the cmsis level.
        name: the name of the files and of the function.
        method: the only method to emit; None: all. The function of a single method is
            `<name>_run`; several are `<name>_<method>`.
        kernels: a key of `KERNELS`.
        project: a key of `PROJECTS`: the files around the program.

    Raises:
        StepwellError: the name is invalid, or the method or the kernels are unknown.
        UnsupportedError: names every call that has no kernel in C.
    """
    check_identifier(name)
    if name in _TAKEN:
        fact = f"the name {name!r} is that of a header of C, or of a file or target of a project"
        raise StepwellError(fact, help="choose another name")
    if kernels not in KERNELS:
        known = " or ".join(repr(key) for key in KERNELS)
        raise StepwellError(f"kernels {kernels!r} are unknown", help=f"known are {known}")
    target = stated_target(program)
    isa = Isa.SCALAR if target is None else target.isa
    if kernels != "portable" and isa is Isa.PORTABLE:
        fact = f"kernels {kernels!r} need memory that {target} does not plan"
        raise StepwellError(fact, help="lower the program for a Cortex-M, or use 'portable'")
    if kernels == "mixed":
        handlers = mixed_handlers(isa)
    else:
        handlers = HANDLERS if kernels == "portable" else CMSIS_NN_HANDLERS

    def is_own(op: CmsisOp) -> bool:
        return kernels == "portable" or (kernels == "mixed" and has_own_kernel(op.OPERATOR, isa))

    container = emit(_without_scratch(program, is_own))
    methods = [each for each in container.methods if each.name != TARGET_METHOD]
    if method is not None:
        methods = [each for each in methods if each.name == method]
    if not methods:
        raise StepwellError(
            f"there is no method {method!r}", help="methods are " + ", ".join(program.methods)
        )
    _check_methods([each.name for each in methods])
    core = None if target is None else target.core
    quantizations = {
        (called, side): meanings(func, side)
        for called, func in program.methods.items()
        for side in (INPUT, OUTPUT)
    }
    library = KERNELS[kernels]
    return write_files(
        container, methods, name, library, handlers, project, core, quantizations=quantizations
    )


_TAKEN = frozenset(
    "main all clean depend help install package test assert complex ctype errno fenv features "
    "float inttypes iso646 limits locale math setjmp signal stdalign stdarg stdatomic stdbool "
    "stddef stdint stdio stdlib stdnoreturn string tgmath threads time uchar unistd wchar "
    "wctype".split()
)
"""Names of a program whose files would shadow others, or whose CMake target is reserved."""


def _check_methods(names: Sequence[str]) -> None:
    """Raise `StepwellError` for names of methods that no functions of C can have together."""
    remedy = "give the method another name, or emit one: to_c(…, method=…)"
    for name in names:
        if not f"_{name}".isidentifier() or not name.isascii():
            raise StepwellError(f"the method {name!r} is no part of a C identifier", help=remedy)
    if len(names) > 1 and "reset" in names:
        fact = "a method is called 'reset', as the function that restores the state"
        raise StepwellError(fact, help=remedy)
    if len({name.upper() for name in names}) < len(names):
        fact = "two methods differ in upper and lower case alone, and their macros in nothing"
        raise StepwellError(fact, help=remedy)


def write_files(
    container: Container,
    methods: Sequence[Method],
    name: str,
    library: Library | None,
    handlers: Mapping[str, Handler],
    project: str = CMAKE,
    core: Core | None = None,
    *,
    quantizations: Mapping[tuple[str, str], Sequence[Quantization | None]] | None = None,
) -> Sources:
    """Return the C files of methods of a container.

    Args:
        container, methods: the methods to write, and the container that they are in.
        name, library, handlers, project, core: as `to_sources` chooses them.
        quantizations: by method and side, what the integers of each input or output mean.

    Raises:
        UnsupportedError: names every call that has no form in C.
    """
    shared, problems, written = (
        Shared(container, name, library, quantizations or {}),
        list[Problem](),
        list[MethodWriter](),
    )
    for method in methods:
        try:
            written.append(write_method(shared, method, handlers))
        except UnsupportedError as error:
            problems += error.problems
    if problems:
        raise UnsupportedError(problems)
    return Files(shared, written).sources(project, core)


def _without_scratch(program: Program, is_own: Callable[[CmsisOp], bool]) -> Program:
    """Return the program without the scratch of ops that run on our own kernels."""
    plain = program.clone()
    for op in plain.module.walk():
        if isinstance(op, CmsisOp) and is_own(op):
            for field in ("scratch", "output_scratch"):
                if field in op.properties:
                    op.properties[field] = to_attribute(0)
    return plain
