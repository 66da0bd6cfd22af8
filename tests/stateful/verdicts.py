"""What becomes of a program with a history on a target: all its calls, in order, against eager's.

Who runs them keeps the state itself: the interpreter's session at the target's level, and the
target's engine with the artifact. What a right result may be is what `random_programs.oracle` says of the
whole history taken as one program.
"""

from __future__ import annotations

import copy
import logging
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

import stepwell
from stepwell.backends.executorch.running.runner import PteSession
from stepwell.backends.tosa.reference_model import ReferenceSession
from stepwell.dialects.quant.ops import dequantize, quantize
from stepwell.dialects.quant.ports import INPUT, OUTPUT, meanings
from stepwell.ir.diagnostics import ArtifactError, InputMismatch, StepwellError, VerificationError
from stepwell.ir.rewriting.failures import StepFailure
from stepwell.ir.types import element

from ..random_programs.oracle import (
    RUNS,
    TOSA_COARSE,
    Expected,
    denormals_as_zero,
    ran,
    shaken,
    tensors,
)
from ..random_programs.stepping import Stepping, runs
from ..random_programs.verdicts import UNDEFINED, Verdict, WrongError, trace
from .drawing import Profile, draw
from .quantizing import in_eight_bits, in_four_bits
from .source import FILE, Call, Calls, Method, Program, called, eager, exported

REPAIRS = 4
"""How often parts that a target refuses are taken out, so that the rest of a program is tried."""
COARSE = 0.03
"""How far a result may be, of the largest of its tensor, where scales are found at run time."""

WHOLE = {"state": 3.0, "alias": 2.0, "sizes": 2.0, "layers": 3.0, "control": 1.0}
PLAIN = {"state": 2.0, "alias": 0.7, "sizes": 1.0, "layers": 5.0}


class Lane:
    """A target, and what its programs are drawn from."""

    def __init__(
        self, target: str, profile: Profile, quantizer: str = "", coarse: Mapping[str, float] = {}
    ) -> None:
        self.target, self.profile, self.quantizer, self.coarse = target, profile, quantizer, coarse


LANES = {
    "program": Lane("", Profile(WHOLE, 0.5, (1, 1, 2, 3))),
    "xnnpack": Lane("xnnpack", Profile(WHOLE, 0.5, (1, 1, 2, 3))),
    "xnnpack, int8": Lane(
        "xnnpack",
        Profile({**PLAIN, "modules": 3.0}, 0.35, (1,), ("static", "static", "dynamic", "8da4w")),
        "xnnpack",
    ),
    "cortex-m55": Lane("cortex-m55", Profile(PLAIN, 0.0, (1,), ("static",)), "cortex-m"),
    "tosa fp": Lane(
        "tosa-1.1+fp+int64+shape+variable+controlflow",
        Profile(WHOLE, 0.35, (1, 1, 2)),
        coarse=TOSA_COARSE,
    ),
    "tosa int": Lane(
        "tosa-1.0+int+variable+controlflow", Profile(PLAIN, 0.0, (1,), ("static",)), "tosa"
    ),
}


def methods_of(program: Program) -> dict[str, ExportedProgram]:
    """Each method as torch exports it, of one module."""
    logging.disable(logging.WARNING)
    core = program.core()
    if program.quantized == "8da4w":
        in_four_bits(core)
    return {
        name: exported(Method(core, name), program, number)
        for number, name in enumerate(program.names)
    }


def judge(program: Program, lane: str, exported_it: Callable[[], None] | None = None) -> Verdict:
    """What becomes of a program; parts that are refused are taken out and the rest tried again."""
    refusals: list[str] = []
    for _ in range(REPAIRS + 1):
        verdict, lines = judge_whole(program, LANES[lane], exported_it)
        verdict.refusals = refusals = refusals + verdict.refusals
        verdict.program, verdict.text = program.as_json(), program.text
        verdict.statements = sum(map(len, program.methods))
        if verdict.kind != "refused":
            return verdict
        dropped = {at for line in lines if (at := program.part_of(line)) is not None}
        rest = program.without(dropped) if dropped else None
        if rest is None:
            return verdict
        program = rest
    return verdict


def judge_whole(
    program: Program, lane: Lane, exported_it: Callable[[], None] | None = None
) -> tuple[Verdict, list[int]]:
    """What becomes of a program as it is, and the lines of its text that were refused."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            eps = methods_of(program)
            if program.quantized in ("static", "dynamic"):
                eps = {"forward": in_eight_bits(program, eps["forward"], lane.quantizer)}
            program = _within_ranges(program, eps)
            given = tuple(program.given(number) for number in range(len(program.calls)))
            expected = _expected(program, eps, given, lane)
        except WrongError as wrong:
            return Verdict(wrong.kind, wrong.said), []
        except Exception as error:
            return Verdict("no program", f"{type(error).__name__}: {error}"[:300]), []
        if exported_it is not None:
            exported_it()
        try:
            _try(program, eps, given, expected, lane)
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


def _within_ranges(program: Program, eps: Mapping[str, ExportedProgram]) -> Program:
    """Without the calls whose sizes torch did not leave open, or does not take."""
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
                known[key] = _is_declared(ep, given)
        if known[key]:
            kept.append(call)
    if {call.method for call in kept} != set(range(len(program.methods))):
        raise WrongError("no program", "torch takes none of a method's calls")
    return replace(program, calls=tuple(kept))


def _is_declared(ep: ExportedProgram, given: Sequence[Tensor]) -> bool:
    """Whether every open size lies in its range, which torch itself is not strict about."""
    taken = [n for n in ep.graph.nodes if n.name in ep.graph_signature.user_inputs]
    for node, value in zip(taken, given, strict=True):
        for stated, size in zip(node.meta["val"].shape, value.shape, strict=True):
            expression = getattr(getattr(stated, "node", None), "expr", None)
            allowed = ep.range_constraints.get(expression)
            if allowed is not None and not allowed.lower <= size <= allowed.upper:
                return False
    return True


def _expected(
    program: Program, eps: Mapping[str, ExportedProgram], given: Sequence[Any], lane: Lane
) -> Expected:
    """What a right history may be.

    Raises:
        WrongError: torch's own export computes something else than eager does.
    """
    graphs = Calls([ep.module(check_guards=False) for ep in eps.values()], program.calls)
    narrow = lane.target.startswith("tosa")
    if program.quantized == "static":
        twice = lane.quantizer == "cortex-m"

        further = (  # What is in doubt twice takes many to see.
            [ran(graphs, given, Stepping(seed, twice=twice)) for seed in range(first, first + 20)]
            for first in range(100, 500, 20)
        )
        return Expected(tensors(runs(graphs, given, twice), narrow), further, narrow=narrow)
    if program.quantized:  # Scales are found at run time, and the graph alone knows how.
        with torch.no_grad():
            plain = copy.deepcopy(graphs)(*given)
        moved = shaken(lambda _: copy.deepcopy(graphs), given, lane.coarse)
        moved += [ran(graphs, given, Stepping(seed)) for seed in range(RUNS)]
        return Expected(tensors([plain, *moved], narrow))
    with torch.no_grad():
        found = [eager(program)(*given)]
        with denormals_as_zero():
            found.append(eager(program)(*given))
        torch.set_default_dtype(torch.float64)
        try:
            wide = tuple(tuple(_wide(x) for x in inputs) for inputs in given)
            found.append(eager(program, wide=True)(*wide))
        finally:
            torch.set_default_dtype(torch.float32)
        found += shaken(lambda _: eager(program), given, lane.coarse)
        expected = Expected(tensors(found, narrow), narrow=narrow, wide=2)
        if len(program.methods) == 1:
            again = tensors([copy.deepcopy(graphs)(*given)], narrow)[0]
            if (said := expected.complaint(again)) is not None:
                raise WrongError("no program", f"torch's export is not its eager: {said}")
    return expected


def _wide(value: Tensor) -> Tensor:
    return value.double() if value.is_floating_point() else value


def _try(
    program: Program,
    eps: Mapping[str, ExportedProgram],
    given: Sequence[Any],
    expected: Expected,
    lane: Lane,
) -> None:
    """Every way of running the calls.

    Raises:
        WrongError: one gives something else.
    """
    source = stepwell.from_exported_program(eps)
    source.verify()
    _round_trip(source)
    if not lane.target:
        _compare(program, "interpreter", expected, given, _interpreted(program, source))
        if len(eps) == 1:
            module = source.to_exported_program().module(check_guards=False)
            _compare(program, "torch again", expected, given, lambda _, xs: module(*xs))
        return
    lowered = stepwell.lower(eps, lane.target)
    _round_trip(lowered.program)
    _compare(program, "interpreter", expected, given, _interpreted(program, lowered.program))
    if lane.target == "xnnpack":
        run = _runtime(program, PteSession.load(lowered.artifact))
    elif lane.target.startswith("tosa") and len(eps) == 1:
        run = _reference_model(lowered)
    else:
        return
    _compare(program, lane.target, expected, given, run)


def _round_trip(program: stepwell.Program) -> None:
    text = str(program)
    if str(stepwell.parse(text, weights=program.weights)) != text:
        raise WrongError("mismatch", "the text of what was parsed is another")


Run = Callable[[int, Sequence[Tensor]], Any]


def _interpreted(program: Program, ours: stepwell.Program) -> Run:
    """Calls in a session of the interpreter, whose border may be narrower or quantized."""
    session = ours.start()

    def run(method: int, inputs: Sequence[Tensor]) -> Any:
        name = program.names[method]
        func = ours.method(name)
        stored = _stored(func, inputs)
        types = func.function_type.inputs.data
        narrow = [
            x.to(torch.int32) if x.dtype == torch.int64 and str(element(t)) == "i32" else x
            for x, t in zip(stored, types, strict=True)
        ]
        return _real(func, session.run(*narrow, method=name))

    return run


def _stored(func: Any, inputs: Sequence[Tensor]) -> list[Tensor]:
    taken = meanings(func, INPUT) or [None] * len(inputs)
    return [v if q is None else quantize(v, q) for v, q in zip(inputs, taken, strict=True)]


def _real(func: Any, outputs: Sequence[Tensor]) -> list[Tensor]:
    given = meanings(func, OUTPUT) or [None] * len(outputs)
    return [v if q is None else dequantize(v, q) for v, q in zip(outputs, given, strict=True)]


def _runtime(program: Program, session: PteSession) -> Run:
    def run(method: int, inputs: Sequence[Tensor]) -> Any:
        name = program.names[method]
        return session.run(*session.laid_out(inputs, name), method=name)

    return run


def _reference_model(lowered: stepwell.Lowered) -> Run:
    """Calls of the reference model, each with the file that the one before left."""
    session, func = ReferenceSession(lowered.artifact), lowered.program.method()
    return lambda _, inputs: _real(func, session.run(_stored(func, inputs)))


def _compare(
    program: Program, where: str, expected: Expected, given: Sequence[Any], run: Run
) -> None:
    made: list[int] = []

    def counted(method: int, inputs: Sequence[Tensor]) -> Any:
        outputs = run(method, inputs)
        made.append(len(pytree.tree_leaves(outputs)))
        return outputs

    try:
        outputs = called(counted, program.calls, given)
    except ArtifactError as error:
        if UNDEFINED.search(str(error)):
            raise WrongError("no program", f"undefined in TOSA: {error}") from error
        raise WrongError("silent", f"{where}, call {len(made)}: {error}") from error
    except InputMismatch as error:
        raise WrongError("silent", f"{where}, call {len(made)}: {error}") from error
    unit = None
    if program.quantized in ("dynamic", "8da4w"):
        unit = [_unit(value) for value in expected.runs[0]]
    narrowed = [_as_wanted(v, w) for v, w in zip(outputs, expected.runs[0], strict=False)]
    outputs = narrowed if len(narrowed) == len(outputs) else outputs
    if said := expected.complaint(outputs, unit):
        at = int(found[1]) if (found := re.match(r"output (\d+)", said)) else 0
        call = next((i for i in range(len(made)) if sum(made[: i + 1]) > at), len(made) - 1)
        raise WrongError("mismatch", f"{where}, call {call}: {said}")


def _as_wanted(value: Any, wanted: Tensor) -> Any:
    """A 64-bit integer in 32, where that is what is compared."""
    is_wide = isinstance(value, Tensor) and value.dtype == torch.int64
    return value.to(torch.int32) if is_wide and wanted.dtype == torch.int32 else value


def _unit(value: Tensor) -> float:
    if not value.is_floating_point() or not value.numel():
        return 0.0
    return COARSE * float(value.abs().nan_to_num(0, 0, 0).amax())


def judge_seed(seed: int, lane: str) -> Verdict:
    """Draw a program and judge it."""
    return judge(draw(seed, LANES[lane].profile), lane)
