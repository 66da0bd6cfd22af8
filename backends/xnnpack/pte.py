"""A program at the xnnpack level to a `.pte`."""

from __future__ import annotations

from stepwell.backends.executorch.emit import emit
from stepwell.backends.executorch.serialize import to_bytes
from stepwell.backends.xnnpack.emit import payload_writer
from stepwell.dialects.xnnpack import DelegateOp
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
    writer = payload_writer(embed_unpacked_constants=embed_unpacked_constants)
    return to_bytes(emit(program, {DelegateOp: writer}))
