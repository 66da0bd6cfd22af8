"""Emit a program at level `xnnpack` as a `.pte`."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from stepwell.backends.executorch.container import Container
from stepwell.backends.executorch.external import external_files, external_to_bytes
from stepwell.backends.executorch.writing.emit import emit
from stepwell.backends.executorch.writing.serialize import to_bytes, to_parts
from stepwell.backends.executorch.writing.weight_files import files_of_weights
from stepwell.backends.executorch.writing.weight_segment import FileBuffer, OnFile, Progress, Tail
from stepwell.backends.xnnpack.emit import payload, room
from stepwell.dialects.xnnpack import DelegateOp
from stepwell.ir.core import WeightOp
from stepwell.ir.diagnostics import UnsupportedError
from stepwell.ir.program import Program
from stepwell.ir.traversal import walk
from stepwell.ir.weight_bytes import dense_size


def to_pte(
    program: Program, *, embed_unpacked_constants: bool = False, checked: bool = True
) -> bytes:
    """Return the `.pte` of a program.

    Args:
        program: at the xnnpack level.
        embed_unpacked_constants: see `backends.xnnpack.emit.payload`.
        checked: see `backends.executorch.writing.emit.emit`.

    Raises:
        UnsupportedError: names every op that neither a delegate nor a kernel runs, and every
            constant that must not be in a delegate.

    """
    return _write(program, embed_unpacked_constants, tail_of(program), checked)


def write_pte(
    program: Program,
    path: Path,
    *,
    embed_unpacked_constants: bool = False,
    progress: Progress | None = None,
) -> None:
    """Write the result of `to_pte` to a new file, into which weights are computed directly.

    Args:
        program, embed_unpacked_constants: as for `to_pte`.
        path: the path of the file.
        progress: called with each weight of a delegate before it is written.

    Raises:
        UnsupportedError: as `to_pte`.
        OSError: the file exists already, or cannot be written.
    """
    _write(program, embed_unpacked_constants, tail_of(program, OnFile(path), progress))


def _write(program: Program, embed: bool, tail: Tail, checked: bool = True) -> bytes:
    container = _container(program, embed, tail=tail, checked=checked)
    return tail.file(to_parts(container, tail=tail.segments, tail_offset=tail.fixed))


def to_container(program: Program, *, embed_unpacked_constants: bool = False) -> Container:
    """Return the container that `to_pte` serializes, with debug handles, which a file lacks."""
    return _container(program, embed_unpacked_constants)


def tail_of(
    program: Program, ground: FileBuffer | None = None, progress: Progress | None = None
) -> Tail:
    """Return a segment for the constants of all delegates, after all other weights."""
    inside = outside = 0
    for func in program.methods.values():
        for op in walk(func):
            if isinstance(op, DelegateOp):
                inside += room(op)
            elif isinstance(op, WeightOp) and not isinstance(op.parent_op(), DelegateOp):
                outside += dense_size(op.result.type)
    return Tail(inside, outside, ground, progress)


def _container(
    program: Program,
    embed: bool,
    *,
    tail: Tail | None = None,
    external: bool = False,
    files: Mapping[str, str] | None = None,
    checked: bool = True,
) -> Container:
    read_by_kernels = {
        op.key.data
        for func in program.methods.values()
        for op in func.body.block.ops
        if isinstance(op, WeightOp)
    }
    writer = partial(
        payload, embed_unpacked_constants=embed, tail=tail, outside=read_by_kernels, files=files
    )
    return emit(
        program, {DelegateOp: writer}, external_weights=external, files=files, checked=checked
    )


def to_pte_and_ptd(
    program: Program, *, embed_unpacked_constants: bool = False
) -> tuple[bytes, bytes]:
    """Return the `.pte` of a program without its weights, and the `.ptd` with the weights.

    Args:
        program: at the xnnpack level.
        embed_unpacked_constants: see `backends.xnnpack.emit.payload`.

    Raises:
        UnsupportedError: as `to_pte`, and if the program has no weights.

    """
    container = _container(program, embed_unpacked_constants, external=True)
    weights = external_to_bytes(container)
    if weights is None:
        raise UnsupportedError("the program has no weights to keep separately", help="use to_pte")
    return to_bytes(container), weights


def to_pte_and_ptds(
    program: Program,
    files: Mapping[str, str | Sequence[str]],
    *,
    embed_unpacked_constants: bool = False,
) -> tuple[bytes, dict[str, bytes]]:
    """Return the `.pte` of a program without some of its weights, and the `.ptd` files with those.

    Args:
        program: at the xnnpack level.
        files: name of a file → patterns of the names of its weights; see `files_of_weights`.
        embed_unpacked_constants: see `backends.xnnpack.emit.payload`.

    Raises:
        StepwellError: as `to_pte`, and if no weight matches a pattern.

    """
    held = files_of_weights(program, files)
    container = _container(program, embed_unpacked_constants, files=held)
    made = external_files(container)
    return to_bytes(container), {file: made[file] for file in files}
