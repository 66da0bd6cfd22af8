"""A program at the xnnpack level to a `.pte`."""

from __future__ import annotations

from stepwell.backends.executorch.container import Container
from stepwell.backends.executorch.emit import emit
from stepwell.backends.executorch.serialize import external_to_bytes, to_bytes
from stepwell.backends.xnnpack.emit import payload_writer
from stepwell.dialects.xnnpack import DelegateOp
from stepwell.ir.diagnostics import UnsupportedError
from stepwell.ir.program import Program


def to_pte(program: Program, *, embed_unpacked_constants: bool = False) -> bytes:
    """The `.pte` of a program.

    Args:
        program: at the xnnpack level.
        embed_unpacked_constants: see `backends.xnnpack.emit.payload`.

    Raises:
        UnsupportedError: naming every op that neither a delegate nor a kernel runs, and every
            constant that must not be in a delegate.

    """
    return to_bytes(to_container(program, embed_unpacked_constants=embed_unpacked_constants))


def to_container(program: Program, *, embed_unpacked_constants: bool = False) -> Container:
    """What `to_pte` writes, with the debug handles that the file has no place for."""
    writer = payload_writer(embed_unpacked_constants=embed_unpacked_constants)
    return emit(program, {DelegateOp: writer})


def to_pte_and_ptd(
    program: Program, *, embed_unpacked_constants: bool = False
) -> tuple[bytes, bytes]:
    """The `.pte` of a program without its weights, and the `.ptd` that holds them.

    Args:
        program: at the xnnpack level.
        embed_unpacked_constants: see `backends.xnnpack.emit.payload`.

    Raises:
        UnsupportedError: as `to_pte`, and if the program has no weights.

    """
    writer = payload_writer(embed_unpacked_constants=embed_unpacked_constants)
    container = emit(program, {DelegateOp: writer}, external_weights=True)
    weights = external_to_bytes(container)
    if weights is None:
        raise UnsupportedError("the program has no weights to keep separately", help="use to_pte")
    return to_bytes(container), weights
