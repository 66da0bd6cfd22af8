"""`check`: interpret a program before and after every step of its lowering, and compare.

There are three kinds of comparison. Each application of a rewrite is compared at the values that it
replaces (`step_observer`). Each pass is compared at everything that a caller can observe: outputs,
state, and inputs that it modifies. The artifact is compared on its real engine with the program
from which it was emitted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from stepwell.backends.inventory import CLOSED
from stepwell.ir.calls.calling import declare_ranges
from stepwell.ir.context import Context
from stepwell.ir.declared.engine_behavior import known_engine
from stepwell.ir.diagnostics import NoEngine, StepwellError
from stepwell.ir.options import OptionValue
from stepwell.ir.program import Program
from stepwell.ir.rewriting.failures import StepFailure, leave_alone
from stepwell.ir.rewriting.pipeline import exact_ops
from stepwell.ir.rewriting.rewrite import Step, step_name
from stepwell.pipelines.pass_pipeline.pipeline_text import prepared
from stepwell.program import from_exported_program
from stepwell.targets.table import find_target
from stepwell.targets.target import PipelineLike, Target
from stepwell.translate.mxfp.accuracy import mx_accuracy
from stepwell.validation.checked import Checked
from stepwell.validation.engine import check_artifact, check_reference, compare_with_engine
from stepwell.validation.recording import Recording
from stepwell.validation.reducer.reproducer import explained
from stepwell.validation.result import CheckResult

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram

Progress = Callable[[str, int, int], None]
"""Called with (the current item, its number, the total)."""

MEMORY = 1 << 30
"""Bytes of intermediate values that a check keeps in order to compare single applications."""


def check(
    program: Program | ExportedProgram | Mapping[str, ExportedProgram],
    target: str,
    pipeline: PipelineLike | None = None,
    *,
    inputs: Sequence[Any] | None = None,
    reference: torch.nn.Module | None = None,
    seed: int = 0,
    artifact: bool = True,
    engine: str | None = None,
    memory: int = MEMORY,
    progress: Progress | None = None,
    **options: OptionValue,
) -> CheckResult:
    """Lower a program pass by pass, and check that no pass changes what it computes.

    Args:
        program: as for `stepwell.lower`; it is not changed.
        target: as for `stepwell.lower`.
        pipeline: replaces the target's own.
        inputs: inputs in the nesting that the model takes; samples vary them. They are needed where
            integer inputs have a meaning that their type does not express (token ids).
        reference: the PyTorch module, which is also compared with the imported program.
        seed: the seed of the random samples.
        artifact: also emit the artifact and run it on its engine.
        engine: also try each application on special values, as the nodes that it creates behave on
            this family of CPUs: `xnnpack/avx2` (`docs/special_values.md`). It runs on any CPU.
        memory: the most bytes of intermediate values to keep.
        progress: called with each pass.
        options: as for `stepwell.lower`.

    Raises:
        StepwellError: the program is invalid or cannot be lowered. Differences are not raised but
            returned.
    """
    chosen_target = find_target(target)
    given = chosen_target.chosen(options)
    source = program if isinstance(program, Program) else from_exported_program(program)
    return check_steps(
        source,
        chosen_target,
        prepared(chosen_target, pipeline, given).steps,
        given,
        inputs=inputs,
        reference=reference,
        seed=seed,
        artifact=artifact,
        engine=engine,
        memory=memory,
        progress=progress,
    )


def check_steps(
    source: Program,
    target: Target,
    steps: Sequence[Step],
    given: Mapping[str, Any],
    *,
    inputs: Sequence[Any] | None = None,
    reference: torch.nn.Module | None = None,
    seed: int = 0,
    artifact: bool = True,
    engine: str | None = None,
    memory: int = MEMORY,
    progress: Progress | None = None,
) -> CheckResult:
    """Run `check` on the passes that a lowering is about to run, with its options."""
    started = time.perf_counter()
    if engine is not None and known_engine(engine).partition("/")[0] != target.name:
        raise StepwellError(
            f"{engine} runs no programs of target {target.name}", help="leave out engine"
        )
    # With an engine, a rewrite that loses special values there is a finding, and not withdrawn.
    judges = engine is None
    context = Context(target.name, target.settings(given), exact_ops(steps), judges=judges)

    def fresh() -> Program:
        program = source.clone()
        program.context = replace(context, choices={}, known={}, statistics={})
        declare_ranges(list(program.methods.values()), context.option("ranges") or {})
        return program

    fresh().verify()
    while True:
        work = fresh()
        run = Checked(work, memory, engines=() if engine is None else (engine,))
        run.start(inputs, seed)
        try:
            _take(run, steps, reference, progress or _silent, len(steps) + 1 + artifact)
            break
        except StepFailure as failure:
            if not leave_alone(failure, context):
                raise explained(fresh, steps, failure) from failure
    left = context.left_alone.items()
    run.skipped += [f"{name} at {op or 'every op'}: {why}" for (name, op, _), why in left]
    if artifact and not run.findings:
        if progress is not None:
            progress("artifact", len(steps) + 1, len(steps) + 2)
        run.add(*check_artifact(target, work, run.recordings, given))
    return run.result(
        target.name,
        started,
        accuracy=_accuracy_of_payloads(source, target, run.recordings),
        deviations=tuple(run.history.deviations),
        tried=run.tried,
    )


def _take(
    run: Checked,
    steps: Sequence[Step],
    reference: torch.nn.Module | None,
    tell: Progress,
    total: int,
) -> None:
    """Run every pass of the pipeline, compare the program before and after it, and verify the
    result.
    """
    tell("the program itself", 0, total)
    if reference is not None:
        run.add(*check_reference(reference, run.program, run.recordings))
    for number, step in enumerate(steps, 1):
        tell(step_name(step), number, total)
        try:
            run.step(step)
        except StepFailure as failure:
            failure.at = number - 1
            raise
    tell("verify", len(steps), total)
    run.verify()
    run.finish()
    tell("done", total, total)


def check_file(target: Target, artifact: bytes, program: Program, *, seed: int = 0) -> CheckResult:
    """Compare an artifact, run on its engine, with the interpreter.

    Args:
        target: the target whose engine runs it.
        artifact: the bytes of the artifact.
        program: the program that was read from the artifact.
        seed: the seed of the random samples.

    Raises:
        StepwellError: the program is invalid, runs on no sample, or has no engine on this machine.
    """
    if program.level == "cmsis" or any(op.name in CLOSED for op in program.module.walk()):
        raise NoEngine(
            f"no engine here runs a program of {target.name}, so that the interpreter could be "
            "compared with it",
            help=f"check the model: stepwell check MODEL -t {target.name}",
        )
    started = time.perf_counter()
    work = program.clone()
    work.verify()
    run = Checked(work, 0)
    run.start(None, seed)
    run.add(*compare_with_engine(target, artifact, work, run.recordings))
    return run.result(target.name, started, of_file=True)


def _silent(what: str, number: int, of: int) -> None:
    """Ignore progress messages (the default)."""


def _accuracy_of_payloads(
    source: Program, target: Target, recordings: Mapping[str, Sequence[Recording]]
) -> str:
    """Return each layer's error in each MX payload type, on the first plain sample; "" without
    MX.
    """
    extensions = target.name.split("+")
    if "mxfp" not in extensions and "mx_common" not in extensions:
        return ""
    (runs, *others) = recordings.values()
    samples = [run.sample.inputs for run in runs if run.sample.plain][:1]
    if others or not samples or source.level != "aten":
        return ""
    measured = mx_accuracy(source, samples)
    return str(measured) if measured.layers else ""
