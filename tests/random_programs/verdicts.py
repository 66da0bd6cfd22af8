"""What becomes of a program on a target: all its calls, in order, compared with eager's."""

import copy
import re
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from stepwell.ir.diagnostics import ArtifactError, InputMismatch, StepwellError, VerificationError
from stepwell.ir.rewriting.failures import StepFailure

from .drawing import draw
from .profiles import Lane, lane_of
from .quantizing import in_eight_bits, in_four_bits
from .source import FILE, Call, Program, exported
from .trials import NO_STOCK, Trial, WrongError

REPAIRS = 4
"""How often what a target refuses is removed, so that the rest of a program is tried."""
BAD = ("mismatch", "abort", "traceback", "silent", "hang")
TAKEN = ("equal", "as stock", *BAD)
"""Verdicts on programs that a target took."""


@dataclass
class Verdict:
    """`equal`, `as stock`, `refused`, one of BAD, or `no program` where torch itself fails.

    `as stock` is a result that differs from eager's in the class of some elements (NaN, infinity)
    and nowhere else, and is of the class there that ExecuTorch's own flow gives: what the default
    of `numerics` promises (docs/semantics.md).
    """

    kind: str
    said: str = ""
    refusals: list[str] = field(default_factory=list[str])
    """What was removed, or refused at last."""
    statements: int = 0
    program: dict[str, Any] | None = None
    text: str = ""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def judge(program: Program, lane: str, exported_it: Callable[[], None] | None = None) -> Verdict:
    """What becomes of a program; what is refused is removed and the rest tried again.

    Args:
        program: the program.
        lane: the name of one.
        exported_it: called when torch is done and stepwell's turn begins.
    """
    refusals: list[str] = []
    for _ in range(REPAIRS + 1):
        verdict, lines = judge_whole(program, lane_of(lane), exported_it)
        verdict.refusals = refusals = refusals + verdict.refusals
        verdict.program, verdict.text = program.as_json(), program.text
        verdict.statements = sum(len(method.statements) for method in program.methods)
        if verdict.kind == NO_STOCK:
            return replace(verdict, kind=_one_by_one(program, lane_of(lane)))
        if verdict.kind != "refused":
            return verdict
        dropped = {at for line in lines if (at := program.statement_of(line)) is not None}
        rest = program.without(dropped) if dropped else None
        if rest is None:
            return verdict
        program = rest
    return verdict


def _one_by_one(program: Program, lane: Lane) -> str:
    """`as stock` where each output alone, of which the stock flow runs more, is no finding."""
    (method,) = program.methods
    if len(method.outputs) == 1:
        return "mismatch"
    alone = [
        replace(program, methods=(replace(method, outputs=(output,)),)).tidy()
        for output in method.outputs
    ]
    kinds = {judge_whole(each, lane)[0].kind for each in alone}
    return "as stock" if kinds <= {"equal", "as stock"} else "mismatch"


def judge_whole(
    program: Program, lane: Lane, exported_it: Callable[[], None] | None = None
) -> tuple[Verdict, list[int]]:
    """What becomes of a program as it is, and the lines of its text that were refused."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            eps = _exported(program, lane)
            program = _within_ranges(program, eps)
        except Exception as error:
            return Verdict("no program", f"{type(error).__name__}: {error}"[:300]), []
        if exported_it is not None:
            exported_it()
        try:
            Trial(program, eps, lane).judge()
        except WrongError as wrong:
            return Verdict(wrong.kind, wrong.said), []
        except (StepFailure, VerificationError, ArtifactError, InputMismatch) as error:
            return Verdict("traceback", trace(error)), []
        except StepwellError as error:
            lines = [int(n) for n in re.findall(rf"{re.escape(FILE)}:(\d+)", str(error))]
            return Verdict("refused", "", [problem.fact for problem in error.problems]), lines
        except Exception as error:
            return Verdict("traceback", trace(error)), []
    return Verdict("equal"), []


def trace(error: BaseException) -> str:
    """What was raised, and the last places that are not of the tests."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "/tests/" not in f.filename]
    last = [f"{'/'.join(f.filename.split('/')[-2:])}:{f.lineno}" for f in frames[-4:]]
    return f"{type(error).__name__}: {str(error)[:600]} [{' < '.join(reversed(last))}]"


def _exported(program: Program, lane: Lane) -> dict[str, ExportedProgram]:
    """The methods as torch exports and a quantizer changes them."""
    core = program.module()
    if program.quantized == "8da4w":
        in_four_bits(core)
    eps = exported(program, core)
    if program.quantized in ("static", "dynamic"):
        eps = {"forward": in_eight_bits(program, eps["forward"], lane.quantizer)}
    return eps


def _within_ranges(program: Program, eps: Mapping[str, ExportedProgram]) -> Program:
    """Without the calls whose sizes torch did not keep dynamic, or does not take."""
    if not program.limits:
        return program
    known: dict[tuple[int, str], bool] = {}
    kept: list[Call] = []
    for number, call in enumerate(program.calls):
        key = (call.method, str(dict(call.sizes)))
        if key not in known:
            known[key] = False
            ep, given = eps[program.names[call.method]], program.given(number)
            with suppress(Exception), torch.no_grad():
                copy.deepcopy(ep).module()(*given)
                known[key] = _is_declared(ep, pytree.tree_leaves(given))
        if known[key]:
            kept.append(call)
    if {call.method for call in kept} != set(range(len(program.methods))):
        raise WrongError("no program", "torch takes none of a method's calls")
    return replace(program, calls=tuple(kept))


def _is_declared(ep: ExportedProgram, given: Sequence[Tensor]) -> bool:
    """Whether every dynamic size lies in its range, which torch itself is not strict about."""
    taken = [n for n in ep.graph.nodes if n.name in ep.graph_signature.user_inputs]
    for node, value in zip(taken, given, strict=True):
        for stated, size in zip(node.meta["val"].shape, value.shape, strict=True):
            expression = getattr(getattr(stated, "node", None), "expr", None)
            allowed = ep.range_constraints.get(expression)
            if allowed is not None and not allowed.lower <= size <= allowed.upper:
                return False
    return True


def judge_seed(seed: int, lane: str) -> Verdict:
    """Draw a program and judge it."""
    return judge(draw(seed, lane_of(lane).profile), lane)
