"""Stages of each target's pipeline: where a program stands, and which steps are left for it.

A stage is a place between two steps at which programs are complete: they print, parse, verify and
run. A program that stopped says so itself (`stepwell.after = "xnnpack/share-nodes"`), so that its
text goes in again; one that was written by hand or read from an artifact comes in where its level
does.

    stepwell.lower(program, "xnnpack", stop="nodes")       # xnnpack nodes, outside delegates
    stepwell.emit(stepwell.load("edited.mlir"), "xnnpack")  # the rest of the way, and the bytes
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from xdsl.dialects.builtin import StringAttr

from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.levels import AFTER, CMSIS_TARGET, TOSA_TARGET, stopped_after
from stepwell.ir.options import nearest
from stepwell.ir.program import Program
from stepwell.ir.rewriting.pipeline import Pipeline
from stepwell.ir.rewriting.rewrite import step_name
from stepwell.targets.table import find_target

START = "aten"
"""The stage of every pipeline ahead of its first step."""


@dataclass(frozen=True)
class PipelineSlice:
    """The part of a pipeline that a program takes.

    Attributes:
        pipeline: the steps of it.
        begins: the step behind which it begins; none at the pipeline's first.
        ends: the step behind which it ends; none at the pipeline's last.
    """

    pipeline: Pipeline
    begins: str | None
    ends: str | None

    def leaves(self, program: Program, target: str) -> None:
        """State where a program that took it stands."""
        if self.ends in (None, START):
            program.module.attributes.pop(AFTER, None)
        else:
            program.module.attributes[AFTER] = StringAttr(f"{target}/{self.ends}")


def stages_of(pipeline: Pipeline, target: str) -> dict[str, str]:
    """The stages of a target's pipeline, in order, each with the step that it stands behind.

    That of the first is empty, as is that of the last: all steps.
    """
    steps = set(map(step_name, pipeline.steps))
    stages = {START: ""}
    for name, behind in find_target(target).stages.items():
        step = next((step for step in behind if step in steps), "")
        if step or not behind:
            stages[name] = step
    return stages


def last_stage(target: str) -> str:
    """The level that is emitted; empty for a plug-in's target, which states its own."""
    return next(reversed([*find_target(target).stages]), "")


def stretch(
    program: Program,
    pipeline: Pipeline,
    target: str,
    start: str | None = None,
    stop: str | None = None,
) -> PipelineSlice:
    """The steps from where a program stands, or is said to stand, to where it is to stop.

    Args:
        program: at any level of the target.
        pipeline: all steps.
        target: its name.
        start: a stage or a step that the program is behind; None: what it says itself.
        stop: a stage or a step to stop behind; None: the last.

    Raises:
        StepwellError: there is no such stage or step, or the program stands at no stage of it.
    """
    stages = stages_of(pipeline, target)
    begin = _entrance(program, pipeline, target) if start is None else start
    first = 0 if begin == START else _behind(pipeline, stages, begin)
    last = len(pipeline.steps) if stop is None else _behind(pipeline, stages, stop)
    if stop == START:
        last = 0
    if last < first:
        raise StepwellError(
            f"the program is behind {begin!r} already, and {stop!r} lies ahead of that",
            help=f"stages of {target}, in order: {', '.join(stages)}",
        )
    names = [step_name(step) for step in pipeline.steps]
    return PipelineSlice(
        replace(pipeline, steps=pipeline.steps[first:last]),
        names[first - 1] if first else None,
        None if last == len(names) else names[last - 1] if last else START,
    )


def _behind(pipeline: Pipeline, stages: Mapping[str, str], name: str) -> int:
    """How many steps lie ahead of a stage or of the end of a step."""
    step = stages.get(name, name)
    if name == START:
        return 0
    if not step:
        return len(pipeline.steps)
    try:
        at, part = pipeline.find(step if "/" in step else f"/{step}")
    except StepwellError:
        raise StepwellError(
            f"pipeline {pipeline.name!r} has neither a stage nor a step {name!r}",
            help=nearest(name, {*stages, *map(step_name, pipeline.steps)})
            + f"stages are {', '.join(stages)}; `stepwell opt --list-passes` has the steps",
        ) from None
    if part is not None:
        whole = step_name(pipeline.steps[at])
        raise StepwellError(
            f"{name!r} is driven together with the rest of {whole!r}: nothing ends between them",
            help=f"stop behind {whole!r}",
        )
    return at + 1


def _entrance(program: Program, pipeline: Pipeline, target: str) -> str:
    """The stage or the step that a program is behind, by what it says and holds."""
    after = stopped_after(program.module)
    if after is not None:
        whose, _, step = after.partition("/")
        if whose != target:
            raise StepwellError(
                f"the program stopped on its way to {whose}, behind {step!r}",
                help=f"lower it to {whose}; or say where it enters the way to {target}: "
                f"start={', '.join(map(repr, stages_of(pipeline, target)))} (--from)",
            )
        return step
    level = program.level
    if level == START:
        return START
    if level == "executorch" and target.startswith("xnnpack"):
        return last_stage(target)
    if level == "tosa" and last_stage(target) in ("tosa", "ethosu"):
        return _of_tosa(program, target)
    if level == "cmsis" and last_stage(target) == "ethosu":
        return last_stage(target)  # Its accelerator has nothing to do.
    if level != last_stage(target):
        raise _foreign(program, target)
    if level == "xnnpack":
        names = {op.name for op in program.module.walk()}
        is_loose = any(
            op.name.startswith("xnnpack.") and op.name != "xnnpack.delegate"
            for func in program.methods.values()
            for op in func.body.block.ops
        )
        return level if not is_loose else "laid-out" if "xnnpack.delegate" in names else "nodes"
    cpu = program.module.attributes.get(CMSIS_TARGET)
    if level == "cmsis" and isinstance(cpu, StringAttr) and cpu.data != pipeline.name:
        raise StepwellError(
            f"the program's biases and scratch memory are those of {cpu.data}, not of {target}",
            help=f"emit it for {cpu.data}, or lower the model to {target}",
        )
    return level


def _of_tosa(program: Program, target: str) -> str:
    if last_stage(target) == "ethosu":
        return "operators"
    stated = program.module.attributes.get(TOSA_TARGET)
    is_this = isinstance(stated, StringAttr) and stated.data == target
    return "tosa" if is_this else "laid-out"  # Finishing looks whether the target has it all.


def _foreign(program: Program, target: str) -> StepwellError:
    return StepwellError(
        f"the program is at level {program.level!r}, and no stage of {target} takes that",
        help=f"{target} takes programs at "
        + ", ".join(dict.fromkeys((START, last_stage(target))))
        + ', and what stopped on the way to it; program.raise_to("aten") (--raise) leads up '
        "where there is a way",
    )
