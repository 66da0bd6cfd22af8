"""`lower`: one straight line from a program to what a target runs."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from stepwell.ir.calls.arguments import takes
from stepwell.ir.calls.calling import declare_ranges
from stepwell.ir.context import Context
from stepwell.ir.declared.numerics import numerics_of
from stepwell.ir.diagnostics import Problem, StepwellError, VerificationError
from stepwell.ir.levels import UPSTREAM
from stepwell.ir.options import OptionValue
from stepwell.ir.platform.process_settings import without_collection
from stepwell.ir.program import Program
from stepwell.ir.rewriting.failures import StepFailure, leave_alone
from stepwell.ir.rewriting.pipeline import Observer, Pipeline, PipelineRun
from stepwell.ir.rewriting.rewrite import History, Step
from stepwell.ir.verification import find_problems
from stepwell.lowered import Lowered
from stepwell.pipelines.pass_pipeline.pipeline_text import prepared
from stepwell.pipelines.pass_pipeline.stages import stretch
from stepwell.program import from_exported_program, programs_of
from stepwell.report.advice import left_to_kernels
from stepwell.report.report import Report
from stepwell.targets.table import PIPELINES, find_target
from stepwell.targets.target import PipelineLike, Target
from stepwell.translate.engine_losses import losing_nodes
from stepwell.translate.rewrites.sizes.pin_known_sizes import PinKnownSizes
from stepwell.translate.rewrites.sizes.pin_symbolic_sizes import PinSymbolicSizes, Sizes

if TYPE_CHECKING:
    from stepwell.lowered import Source
    from stepwell.validation.certificates.certificate import Certificate
    from stepwell.validation.certificates.recorder import Recorder
    from stepwell.validation.result import CheckResult

__all__ = ["PIPELINES", "Lowered", "Pipeline", "emit", "lower"]


def lower(
    program: Source,
    target: str,
    pipeline: PipelineLike | None = None,
    *,
    observer: Observer | None = None,
    sizes: Sizes | None = None,
    check: bool = False,
    certify: bool = False,
    start: str | None = None,
    stop: str | None = None,
    **options: OptionValue,
) -> Lowered:
    """Lower a program to a target; the argument is never changed.

    Args:
        program: an exported program, several as methods (and plain values, as methods that give
            them), what ExecuTorch's `to_edge` gave, or a stepwell program at any level of the
            target: it takes the rest of the way (`docs/levels.md`).
        target: `xnnpack`, `cortex-m55`, `tosa-1.0+fp`, …
        pipeline: instead of the target's own: one (`stepwell.PIPELINES[...]`), its name or its text
            (`"normalize,my-rewrite,…"`), or a function that changes the target's own
            (`lambda own: own.after("normalize", MyRewrite)`).
        observer: called after each step with (step, program, applications).
        sizes: numbers for symbolic sizes of inputs, which the result then takes alone: `"max"`
            (each at its bound), `4` (the only one), or `{"s77": 4}`.
        check: compare before and after every step on the way, and the artifact with the program,
            and refuse what differs; the result is `report.check`. Takes as long as `stepwell
            check`: some hundred runs of the model.
        certify: prove each application, or run it: `lowered.certificate` (`docs/proofs.md`).
        start: the stage or the step that the program is behind, where it is not what the program
            says itself: `start="aten"` takes every step.
        stop: the stage or the step to stop behind. The program then says where it is, and `lower`
            or `emit` of it, or of its text, takes the rest.
        options: what may be chosen for the target (`docs/options.md`).

    Raises:
        StepwellError: the target or an option is unknown, or the program cannot be lowered; every
            reason is listed with its place in the model. With `check`, also what it contradicts.
        UnsupportedError: the lowered program cannot be emitted, or the runtime would refuse it.
    """
    given: dict[str, Any] = {"observer": observer, "sizes": sizes, "check": check, **options}
    lowered = lower_as_far(
        program, target, pipeline, certify=certify, start=start, stop=stop, **given
    )
    if stop is None:  # What stops on its way is no artifact yet.
        lowered.require_artifact()
    return lowered


def lower_as_far(
    program: Source,
    target: str,
    pipeline: PipelineLike | None = None,
    *,
    observer: Observer | None = None,
    sizes: Sizes | None = None,
    check: bool = False,
    certify: bool = False,
    start: str | None = None,
    stop: str | None = None,
    **options: OptionValue,
) -> Lowered:
    """Lower a program as `lower` does, where what has no kernel may stay in it.

    For reports on such a program, and for flows that compute the rest by other means.
    """
    chosen_target = find_target(target)
    given = chosen_target.chosen(options)
    if observer is not None and not takes(observer, 3):
        raise StepwellError(
            f"a {type(observer).__name__} is no observer", help="a function of (step, program, int)"
        )
    whole = prepared(chosen_target, pipeline, given)
    program = programs_of(program)
    started = time.perf_counter()
    source = program if isinstance(program, Program) else from_exported_program(program)
    if source.level == UPSTREAM:
        source = program = source.raise_to("aten")
    work = source.clone() if source is program else source
    way = stretch(work, whole, chosen_target.name, start, stop)
    chosen = way.pipeline
    if PinKnownSizes.concerns(work):
        chosen = Pipeline(chosen.name, (PinKnownSizes(), *chosen.steps))
    if sizes is not None:
        chosen = Pipeline(chosen.name, (PinSymbolicSizes.of(sizes), *chosen.steps))
    if check and (way.begins or way.ends):
        raise StepwellError(
            "check follows a model all the way to its artifact",
            help="leave out check, or lower what was imported, to the end",
        )
    work.weights.require_data()
    work.context = Context(chosen_target.name, chosen_target.settings(given))
    declare_ranges(list(work.methods.values()), given.get("ranges") or {})
    checked = _checked(source, chosen_target, chosen, given) if check else None
    with without_collection():
        _verify(work, is_between=start is not None or way.begins is not None)
        while True:
            try:
                recorder = _recorder(work) if certify else None
                run = _run(chosen, work, observer, recorder)
                way.leaves(work, chosen_target.name)
                _verify(work, is_between=False)
                break
            except (StepFailure, VerificationError) as error:
                work = _again(program, chosen_target, chosen, work.context, error)
    seconds = time.perf_counter() - started
    delegates, outside = chosen_target.inventory(work)
    # What stops on the way is left to no kernel yet.
    refusals = run.history.refusals.values()
    left, total = ((), 0) if way.ends else left_to_kernels(work, outside, refusals)
    report = Report(
        target=target,
        delegates=delegates,
        outside=Counter(outside),
        refusals=tuple(run.history.refusals.values()),
        steps=tuple(run.steps),
        seconds=seconds,
        events=tuple(run.history.events),
        numerics=numerics_of(work.context),
        ranges=work.context.option("ranges") or {},
        deviations=tuple(run.history.deviations),
        engine_losses=losing_nodes(work),
        check=checked,
        left=left,
        work=total,
        cuts=chosen_target.cuts(work),
    )
    return Lowered(work, report, chosen_target, given, program, _certified(recorder, target))


def emit(
    program: Source,
    target: str,
    kind: str | None = None,
    **options: Any,
) -> Any:
    """The artifact of a program at any level of a target: the rest of the way, and its bytes.

    Args:
        program: as for `lower`.
        target: its name.
        kind: of artifact; None: the target's own format.
        options: as for `lower`, its arguments too.

    Raises:
        StepwellError: as `lower` and `Lowered.emit`.
    """
    return lower(program, target, **options).emit(kind)


def _recorder(program: Program) -> Recorder:
    from stepwell.validation.certificates.recorder import Recorder

    return Recorder(program)


def _run(
    pipeline: Pipeline, program: Program, observer: Observer | None, recorder: Recorder | None
) -> PipelineRun:
    """Take the steps; a recorder looks at each application, and behind each step."""
    if recorder is None:
        return pipeline.run(program, observer)

    def behind(step: Step, program: Program, applied: int) -> None:
        recorder.behind(step, program, applied)
        if observer is not None:
            observer(step, program, applied)

    return pipeline.run(program, behind, history=History(watch=recorder))


def _certified(recorder: Recorder | None, target: str) -> Certificate | None:
    if recorder is None:
        return None
    from stepwell.validation.certificates.certificate import certificate

    made = certificate(recorder, target)
    held = recorder.program.weights.entries  # What a check of the certificate reads is there.
    held.update({key: each for key, each in recorder.weights.entries.items() if key not in held})
    return made


def _verify(program: Program, *, is_between: bool) -> None:
    """Raise what is wrong; of a program between levels, not that ops of two levels stand in it."""
    problems = find_problems(program.module, program.weights, membership=not is_between)
    if found := list(problems):
        raise VerificationError(found)


def _again(
    origin: Source,
    target: Target,
    pipeline: Pipeline,
    context: Context,
    error: StepFailure | VerificationError,
) -> Program:
    """The program from its beginning, without the application in which a step made a mistake.

    Raises:
        StepwellError: the mistake cannot be left alone; with its cause and a reproducer, found by
            taking the way again.
    """
    from stepwell.validation.reducer.reproducer import explained

    source = (  # What was imported has been worked on.
        origin if isinstance(origin, Program) else from_exported_program(origin)
    )

    def make() -> Program:
        program = source.clone()
        program.context = Context(target.name, context.options, left_alone=context.left_alone)
        declare_ranges(list(program.methods.values()), context.option("ranges") or {})
        return program

    if isinstance(error, StepFailure) and leave_alone(error, context):
        return make()
    cause = explained(make, pipeline.steps, error)
    if isinstance(cause, StepFailure) and leave_alone(cause, context):
        return make()
    raise cause from error


def _checked(
    source: Program, target: Target, pipeline: Pipeline, given: Mapping[str, Any]
) -> CheckResult:
    """What a check of the lowering says.

    Raises:
        StepwellError: it contradicts a step or the artifact; every finding is listed.
    """
    from stepwell.validation.check import check_steps

    result = check_steps(source, target, pipeline.steps, given)
    if result.ok:
        return result
    help = "stepwell check shows every step; Pipeline.without(...) leaves one out"
    raise StepwellError(
        [
            Problem(
                f"check: {finding.step}: {finding.op or 'the outputs'}: {finding.what}",
                finding.where,
                help,
            )
            for finding in result.findings
        ]
    )
