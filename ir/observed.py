"""What a caller observes of a program: signatures, results, state and modified inputs."""

from collections.abc import Iterator, Mapping
from typing import Any

from xdsl.dialects.func import ReturnOp
from xdsl.ir import SSAValue

from stepwell.ir.core import MutateInputOp, UpdateOp
from stepwell.ir.program import Program


def signatures(program: Program) -> dict[str, Any]:
    """Return the type and the attributes of each method."""
    return {n: (f.function_type, dict(f.attributes)) for n, f in program.methods.items()}


def changed_signature(first: Mapping[str, Any], last: Program) -> str | None:
    """Return which method's signature differs from the first program's, or None."""
    found = signatures(last)
    names = [name for name in {**first, **found} if found.get(name) != first.get(name)]
    return f"method @{names[0]} has another signature than the first program's" if names else None


def observed(program: Program) -> Iterator[tuple[str, SSAValue]]:
    """Yield everything that a caller observes: results, state and modified inputs, in order."""
    for name, func in sorted(program.methods.items()):
        written: list[tuple[str, SSAValue]] = []
        for op in func.body.block.ops:
            if isinstance(op, UpdateOp):
                written.append((f"state {op.key.data}", op.value))
            elif isinstance(op, MutateInputOp):
                written.append((f"input {op.index.value.data}", op.value))
            elif isinstance(op, ReturnOp):
                yield from ((f"result of {name}", value) for value in op.operands)
        yield from sorted(written, key=lambda each: each[0])
