"""`lower`: run a target's pipeline on a program, and verify the result."""

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
from stepwell.ir.extensions import extension
from stepwell.ir.levels import UPSTREAM
from stepwell.ir.options import OptionValue
from stepwell.ir.platform.process_settings import without_collection
from stepwell.ir.program import Program
from stepwell.ir.rewriting.failures import StepFailure, leave_alone
from stepwell.ir.rewriting.pipeline import Observer, Pipeline, PipelineRun, exact_ops
from stepwell.ir.rewriting.rewrite import History, Step
from stepwell.ir.verification import find_problems
from stepwell.lowered import Lowered
from stepwell.pipelines.pass_pipeline.pipeline_text import prepared
from stepwell.pipelines.pass_pipeline.stages import stretch
from stepwell.program import from_exported_program, programs_of
from stepwell.report.advice import left_to_kernels
from stepwell.report.hints import hints
from stepwell.report.report import CheckedSteps, Report
from stepwell.targets.table import PIPELINES, find_target
from stepwell.targets.target import PipelineLike, Target
from stepwell.translate.engine_losses import losing_nodes
from stepwell.translate.rewrites.sizes.bucket_sizes import Buckets, BucketSizes
from stepwell.translate.rewrites.sizes.pin_known_sizes import PinKnownSizes
from stepwell.translate.rewrites.sizes.pin_symbolic_sizes import PinSymbolicSizes, Sizes

if TYPE_CHECKING:
    from stepwell.lowered import Source

__all__ = ["PIPELINES", "Lowered", "Pipeline", "emit", "lower"]


def lower(
    program: Source,
    target: str,
    pipeline: PipelineLike | None = None,
    *,
    observer: Observer | None = None,
    sizes: Sizes | None = None,
    buckets: Buckets | None = None,
    check: bool | str = False,
    certify: bool = False,
    start: str | None = None,
    stop: str | None = None,
    **options: OptionValue,
) -> Lowered:
    """Lower a program to a target; the argument is never changed.

    Args:
        program: an exported program; a mapping of methods to programs, or to plain values that they
            return; the result of ExecuTorch's `to_edge`; or a stepwell program at any level of the
            target, on which only the remaining passes run (`docs/levels.md`).
        target: `xnnpack`, `cortex-m55`, `c-rv32imc`, `tosa-1.0+fp`, …
        pipeline: replaces the target's own: a pipeline (`stepwell.PIPELINES[...]`), its name or its
            text (`"normalize,my-rewrite,…"`), or a function that changes the target's own
            (`lambda own: own.after("normalize", MyRewrite)`).
        observer: called after each pass with (pass, program, number of applications).
        sizes: static values for symbolic sizes of inputs: `"max"` (each at its upper bound), `4`
            (if there is only one), or `{"s77": 4}`. The result takes these sizes only.
        buckets: upper bounds of a symbolic size, as in `[64, 1024]` (if there is only one size)
            or `{"s77": [64, 1024]}`. Each bound gets a method of its own, such as `forward_64`,
            whose memory is planned for it; they share weights (`docs/dynamic_shapes.md`).
        check: compare the program before and after every pass, and the artifact with the program,
            and raise an error for a difference. The result is `report.check`. The check takes as
            long as `stepwell check`: some hundred runs of the model. A family of CPUs,
            `"xnnpack/avx2"`, is the `engine` of that check.
        certify: prove or test each application; the result is `lowered.certificate`
            (`docs/proofs.md`).
        start: the last stage or pass that ran on the program, if the program's own attribute does
            not apply: `start="aten"` runs every pass.
        stop: the last stage or pass to run. The program then has an attribute that states it, and
            `lower` or `emit` of the program, or of its text, runs the remaining passes.
        options: the target's options (`docs/options.md`).

    Raises:
        StepwellError: the target or an option is unknown, or the program cannot be lowered; every
            reason is listed with its place in the model. With `check`, also every contradiction.
        UnsupportedError: the lowered program cannot be emitted, or the runtime would reject it.
    """
    given: dict[str, Any] = {"observer": observer, "sizes": sizes, "buckets": buckets}
    given |= {"check": check, **options}
    lowered = lower_as_far(
        program, target, pipeline, certify=certify, start=start, stop=stop, **given
    )
    if stop is None:  # A lowering that stops early has no artifact yet.
        lowered.require_artifact()
    return lowered


def lower_as_far(
    program: Source,
    target: str,
    pipeline: PipelineLike | None = None,
    *,
    observer: Observer | None = None,
    sizes: Sizes | None = None,
    buckets: Buckets | None = None,
    check: bool | str = False,
    certify: bool = False,
    start: str | None = None,
    stop: str | None = None,
    **options: OptionValue,
) -> Lowered:
    """Lower a program as `lower` does, but keep operations without a kernel.

    Reports on such programs, and flows that run these operations elsewhere, use this function.
    """
    chosen_target = find_target(target)
    given = chosen_target.chosen(options)
    if observer is not None and not takes(observer, 3):
        raise StepwellError(
            f"observer ({type(observer).__name__}) does not take three arguments",
            help="pass a function of (step, program, int)",
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
    if buckets is not None:
        if check or certify:
            raise StepwellError(
                "check= and certify= compare methods of one name, and buckets= renames them",
                help="check or certify the same lowering without buckets=",
            )
        chosen = Pipeline(chosen.name, (BucketSizes.of(buckets), *chosen.steps))
    if check and (way.begins or way.ends):
        raise StepwellError(
            "check= needs a whole lowering, but start= or stop= was passed",
            help="omit check, or omit start and stop",
        )
    work.weights.require_data()
    exact = exact_ops(chosen.steps)
    work.context = Context(chosen_target.name, chosen_target.settings(given), exact)
    declare_ranges(list(work.methods.values()), given.get("ranges") or {})
    checked = _checked(source, chosen_target, chosen, given, check) if check else None
    with without_collection():
        _verify(work, is_between=start is not None or way.begins is not None)
        while True:
            try:
                recorder = extension("record-applications")(work) if certify else None
                run = _run(chosen, work, observer, recorder)
                way.leaves(work, chosen_target.name)
                _verify(work, is_between=False)
                break
            except (StepFailure, VerificationError) as error:
                work = _again(program, chosen_target, chosen, work.context, error)
    seconds = time.perf_counter() - started
    delegates, outside = chosen_target.inventory(work)
    # After an early stop, no operation is left to a kernel yet.
    refusals = run.history.refusals.values()
    ops = () if way.ends else chosen_target.outside(work)
    left, total = left_to_kernels(work, ops, refusals)
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
        packed=chosen_target.packed_weights(work),
        hints=hints(work, refusals),
        estimates=() if way.ends else chosen_target.estimates(work),
        statistics=work.context.statistics,
    )
    certificate = extension("certificate")(recorder, target) if recorder else None
    return Lowered(work, report, chosen_target, given, program, certificate)


def emit(
    program: Source,
    target: str,
    kind: str | None = None,
    **options: Any,
) -> Any:
    """Run the remaining passes on a program at any level of a target, and return its artifact.

    Args:
        program: as for `lower`.
        target: the target's name.
        kind: the kind of artifact; None: the target's own format.
        options: the options and keyword arguments of `lower`.

    Raises:
        StepwellError: as `lower` and `Lowered.emit`.
    """
    return lower(program, target, **options).emit(kind)


def _run(
    pipeline: Pipeline, program: Program, observer: Observer | None, recorder: Any
) -> PipelineRun:
    """Run the passes; a recorder observes each application and the end of each pass."""
    if recorder is None:
        return pipeline.run(program, observer)

    def behind(step: Step, program: Program, applied: int) -> None:
        recorder.behind(step, program, applied)
        if observer is not None:
            observer(step, program, applied)

    return pipeline.run(program, behind, history=History(watch=recorder))


def _verify(program: Program, *, is_between: bool) -> None:
    """Raise the verifier's errors; a program between levels may contain operations of both."""
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
    """Return the source program, set up to be lowered without the application that failed.

    Raises:
        StepwellError: the application cannot be skipped; with the cause and a reproducer, which are
            found by running the pipeline again.
    """
    source = (  # The imported program was modified already.
        origin if isinstance(origin, Program) else from_exported_program(origin)
    )

    def make() -> Program:
        program = source.clone()
        program.context = Context(
            target.name, context.options, context.exact, left_alone=context.left_alone
        )
        declare_ranges(list(program.methods.values()), context.option("ranges") or {})
        return program

    if isinstance(error, StepFailure) and leave_alone(error, context):
        return make()
    cause = extension("reproduce-failure")(make, pipeline.steps, error)
    if isinstance(cause, StepFailure) and leave_alone(cause, context):
        return make()
    raise cause from error


def _checked(
    source: Program,
    target: Target,
    pipeline: Pipeline,
    given: Mapping[str, Any],
    check: bool | str,
) -> CheckedSteps:
    """Return the result of a check of the lowering.

    Raises:
        StepwellError: the check found a wrong pass or artifact; every finding is listed.
    """
    engine = check if isinstance(check, str) else None
    run = extension("check-steps")
    result: CheckedSteps = run(source, target, pipeline.steps, given, engine=engine)
    if result.ok:
        return result
    help = "stepwell check shows every pass; Pipeline.without(...) leaves one out"
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
