"""Try a rewrite on one variant of its example: dropped, not matched, refused, applied, or wrong."""

import traceback
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation

from stepwell.ir.context import Context
from stepwell.ir.diagnostics import Problem, StepwellError, UnsupportedError, first_line
from stepwell.ir.rewriting.pipeline import exact_ops
from stepwell.ir.rewriting.rewrite import EXACT, GreedyRewrites, History, Pass, Rewrite, bound_of
from stepwell.ir.verification import find_problems
from stepwell.ir.weights import UnknownValue
from stepwell.program import Program
from stepwell.targets.table import PIPELINES
from stepwell.validation.checked import Checked
from stepwell.validation.compare import differs, tolerated, total_bound
from stepwell.validation.contracts.draft import Draft, Dropped
from stepwell.validation.fills import UNRULY, Fill, inputs_of, is_real
from stepwell.validation.recording import Recording, record
from stepwell.validation.samples import Sample

Outcome = Literal["dropped", "not matched", "refused", "applied", "wrong"]

Filling = tuple[str, Fill, Fill, bool]
SAMPLES: tuple[Filling, ...] = (
    ("random", "random", "zeros", True),
    ("ties and whole numbers", "integers", "random", True),
    ("zeros", "zeros", "integers", True),
    ("negative", "negative", "negative", True),
    ("special values", "special", "random", False),
    ("denormals", "denormal", "rolled", False),
    ("extremes", "extremes", "extremes", False),
)
"""(label, filling of floats, filling of integers, whether a bounded pass guarantees its bound)."""
MODERATE = 0.75
"""Floats up to this power of the largest one are of moderate size."""
HUGE = 1e30
"""The largest factor to which a bound applies."""


@dataclass(frozen=True)
class Verdict:
    """The outcome of rewrites on one variant of their example; `why` is the reason, except for
    `applied`.
    """

    outcome: Outcome
    why: str = ""


def try_variant(
    rewrites: Sequence[Rewrite[Any] | Pass],
    draft: Draft,
    samples: Sequence[Filling] = SAMPLES,
    engines: Sequence[str] = (),
) -> Verdict:
    """Apply rewrites to a variant, and compare it with the original on every sample.

    Args:
        rewrites: rewrites that are applied together to a fixed point; or one pass.
        draft: the variant.
        samples: the fills (kinds of elements) of the inputs.
        engines: families of CPUs on whose special-value behavior the new nodes are also tried.

    Returns:
        "dropped" if the variant is not a program, or if the interpreter rejects every sample.
    """
    try:
        program = draft.build()
    except Dropped as reason:
        return Verdict("dropped", str(reason))
    unruly = is_unruly(draft)
    work = Program.of(program)
    try:
        run = _recorded(work, samples, unruly)
        if engines:
            run.engines = engines
            exact = exact_ops(PIPELINES["xnnpack"].steps)
            work.context = Context("xnnpack", exact=exact, judges=False)
    except StepwellError as error:
        return Verdict("dropped", error.problems[0].fact)
    except Exception as error:  # Kernels raise whatever they like.
        return Verdict("dropped", _traced(error))
    step = _step_of(rewrites)
    if draft.is_blind:
        return _without_data(step, run)
    try:
        run.step(step)
    except UnsupportedError as error:  # A pass may refuse a whole program.
        return Verdict("refused", error.problems[0].fact)
    except Exception as error:  # Whatever it is: nothing may escape a rewrite.
        return Verdict("wrong", f"raises {_traced(error)}")
    problems = [
        problem
        for problem in find_problems(work.module, work.weights, membership=False)
        if not _awaits_narrowing(problem)
    ]
    if problems:
        return Verdict("wrong", f"does not verify: {problems[0]}")
    if run.findings:
        found = run.findings[0]
        claim = f"{found.rewrite or found.step} at {found.op or 'the outputs'} claims {found.bound}"
        return Verdict("wrong", f"{claim}; on {found.sample}: {found.what}")
    if run.history.events:
        return Verdict("applied")
    if run.history.refusals:
        return Verdict("refused", next(iter(run.history.refusals.values())).reason)
    return Verdict("not matched")


def _step_of(rewrites: Sequence[Rewrite[Any] | Pass]) -> Pass:
    found = [rewrite for rewrite in rewrites if isinstance(rewrite, Rewrite)]
    if found:
        return GreedyRewrites("contract", tuple(found))
    (whole,) = rewrites
    assert isinstance(whole, Pass)
    return whole


def _without_data(step: Pass, run: Checked) -> Verdict:
    """Apply a pass with weights without data; the data is restored before the comparison."""
    work, history = run.program, History()
    held = dict(work.weights.entries)
    for key in held:
        type_ = work.weights.type_of(key)
        del work.weights.entries[key]
        work.weights.add_unknown(key, type_)
    try:
        applied = step.apply(work, history)
    except (UnsupportedError, UnknownValue) as error:
        if isinstance(step, GreedyRewrites):
            return Verdict("wrong", f"raises without data: {_traced(error)}")
        return Verdict("refused", error.problems[0].fact)
    except Exception as error:  # Whatever it is: nothing may escape a rewrite.
        return Verdict("wrong", f"raises without data: {_traced(error)}")
    finally:
        work.weights.entries.update(held)
    if not applied:
        return Verdict("refused" if history.refusals else "not matched", "without data")
    grouped = isinstance(step, GreedyRewrites)
    bounds = [r.bound for r in step.rewrites] if grouped else [bound_of(step)]
    # Single applications are not observed here, so an integer may differ by one unit of the
    # result's scale.
    whole = total_bound(bounds * applied)
    bound = replace(tolerated(bounds * applied), units=whole.units, varies=whole.varies)
    for befores in run.recordings.values():
        for before in befores:
            if not bound.exact and not before.sample.plain:
                continue
            now = record(work.method(), work.weights, before.sample)
            for what, old in before.observed().items():
                difference = differs(old, now.observed()[what], bound, against="tensor")
                if difference is not None:
                    return Verdict("wrong", f"without data, on {before.sample.label}: {difference}")
    return Verdict("applied")


def _awaits_narrowing(problem: Problem) -> bool:
    """Whether a problem is a 64-bit integer, which TOSA's pipeline narrows or refuses at its
    end.
    """
    return "has no form on" in problem.fact and "i64" in problem.fact.split("; it")[0]


FILLS = "where masked_fill full clamp pad hardtanh maximum minimum .eq. .ne.".split()
"""Ops that store a number or compare with it, for which any infinite number is equivalent."""


def is_unruly(draft: Draft) -> bool:
    """Whether weights or constant factors of a program overflow or are NaN."""
    if any(source.fill in UNRULY for source in draft.sources if source.key is not None):
        return True
    return any(
        isinstance(value, float) and not abs(value) <= HUGE
        for step in draft.steps
        if not any(word in step.cls.name for word in FILLS)
        for value in step.arguments.values()
    )


def _traced(error: Exception) -> str:
    """Return an exception with its stack trace, innermost frame last."""
    frames = [
        f"{frame.filename.rsplit('/', 1)[-1]}:{frame.lineno} {frame.name}"
        for frame in traceback.extract_tb(error.__traceback__)[-4:]
    ]
    return f"{type(error).__name__}: {first_line(error)} ({' > '.join(frames)})"


def _recorded(work: Program, samples: Sequence[Filling], unruly: bool) -> Checked:
    """Return a check whose recordings are runs of the variant on every sample that it accepts."""
    run = Checked(work, 1 << 28)
    func = work.method()
    floats = any(is_real(v.type) for op in func.walk() for v in (*op.operands, *op.results))
    kept: list[Recording] = []
    failure = ""
    for sample in samples_of(func, samples, floats=floats, unruly=unruly):
        try:
            made = record(func, work.weights, sample)
        except StepwellError as error:
            failure = error.problems[0].fact
            continue
        if sample.plain and overflows(made):
            made.sample = replace(sample, plain=False)
        kept.append(made)
    if kept and _draws(func):
        again = record(func, work.weights, kept[0].sample).observed()
        if any(differs(v, again[k], EXACT) for k, v in kept[0].observed().items()):
            raise StepwellError("the variant draws random numbers, so two runs differ")
    if not kept:
        raise StepwellError(f"the variant fails on every sample: {failure}")
    run.recordings[func.sym_name.data] = kept
    return run


RANDOM = ("dropout", "rand", "bernoulli", "normal", "attention")
"""Parts of the names of ops that may draw random numbers."""


def _draws(func: FuncOp) -> bool:
    return any(word in op.name for op in func.walk() for word in RANDOM)


def overflows(recording: Recording) -> bool:
    """Whether floats come near the maximum of their type, or become infinite or NaN.

    In such a run a moved factor changes which sum overflows; a bound applies to moderate numbers
    only.
    """
    for value, held in recording.values.items():
        if not isinstance(held, torch.Tensor) or not held.is_floating_point() or not held.numel():
            continue
        if held.dtype.itemsize == 1:
            continue
        limit = torch.finfo(held.dtype).max ** MODERATE
        finite = held[held.isfinite()]
        if finite.numel() and float(finite.double().abs().max()) > limit:
            return True
        owner = value.owner
        if isinstance(owner, Operation) and finite.numel() < held.numel():
            values = [recording.values.get(operand) for operand in owner.operands]
            if "inf" not in str(owner) and all(_is_finite(tensor) for tensor in values):
                return True
    return False


def _is_finite(value: Any) -> bool:
    return not isinstance(value, torch.Tensor) or bool(value.isfinite().all())


def samples_of(
    func: FuncOp, samples: Sequence[Filling] = SAMPLES, *, floats: bool, unruly: bool = False
) -> list[Sample]:
    """Return the runtime inputs on which a variant is tried.

    Args:
        func: the method.
        samples: the fills (kinds of elements) of its inputs.
        floats: whether the method computes with floats. A bound applies to floats; integer-only
            variants must be correct at their extremes, too.
        unruly: whether the method's weights overflow or are NaN, so that only exact passes
            guarantee anything.
    """
    random = torch.Generator().manual_seed(0)
    types = func.function_type.inputs.data
    made: list[Sample] = []
    for label, real, whole, plain in samples:
        inputs = tuple(inputs_of(types, real, whole, random))
        made.append(Sample(label, inputs, (plain or not floats) and not unruly))
    return made
