"""Liveness: the values that an instruction uses, and the effect of loops on lifetimes."""

from __future__ import annotations

from collections.abc import Sequence

from stepwell.backends.executorch.container import (
    DelegateCall,
    Instruction,
    JumpFalse,
    KernelCall,
    Move,
)


def touched(instruction: Instruction) -> tuple[int, ...]:
    """The values that an instruction reads or writes."""
    match instruction:
        case KernelCall(_, args) | DelegateCall(_, args):
            return args
        case Move(source, target):
            return (source, target)
        case JumpFalse(condition, _):
            return (condition,)
        case _:
            return ()


def widened_by_jumps(
    spans: dict[int, tuple[int, int]], instructions: Sequence[Instruction]
) -> dict[int, tuple[int, int]]:
    """Extend lifetimes under jumps: a value used in a loop is live for the whole loop.

    A forward jump only skips instructions, so it reads nothing that was not live. Only a backward
    jump can reach bytes that were reused in the meantime.
    """
    loops = [
        (instruction.target, step)
        for step, instruction in enumerate(instructions)
        if isinstance(instruction, JumpFalse) and instruction.target <= step
    ]
    for start, stop in sorted(loops, key=lambda loop: loop[1] - loop[0]):
        for base, (first, last) in spans.items():
            if first <= stop and last >= start:
                spans[base] = (min(first, start), max(last, stop))
    return spans
