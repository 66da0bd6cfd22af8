"""Stages of each target's pipeline: the stage of a program, and the passes that remain for it.

A stage is a point between two passes at which programs are complete: they print, parse, verify and
run. A program whose lowering stopped at a stage has an attribute (`stepwell.after =
"xnnpack/share-nodes"`), so that its text can be lowered further. A program that was written by hand
or read from an artifact starts at the stage of its level.

    stepwell.lower(program, "xnnpack", stop="nodes")       # xnnpack nodes, outside delegates
    stepwell.emit(stepwell.load("edited.mlir"), "xnnpack")  # the remaining passes, and the bytes
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
"""The stage before the first pass of every pipeline."""


@dataclass(frozen=True)
class PipelineSlice:
    """A contiguous slice of a pipeline.

    Attributes:
        pipeline: the passes of the slice.
        begins: the pass before the slice; None if it begins at the pipeline's first pass.
        ends: the last pass of the slice; None if it ends at the pipeline's last pass.
    """

    pipeline: Pipeline
    begins: str | None
    ends: str | None

    def leaves(self, program: Program, target: str) -> None:
        """Set the program's attribute that states the last pass of this slice."""
        if self.ends in (None, START):
            program.module.attributes.pop(AFTER, None)
        else:
            program.module.attributes[AFTER] = StringAttr(f"{target}/{self.ends}")


def stages_of(pipeline: Pipeline, target: str) -> dict[str, str]:
    """Return the stages of a target's pipeline, in order, each with its last pass.

    The name is empty for the first stage, and for the last one, which follows all passes.
    """
    steps = set(map(step_name, pipeline.steps))
    stages = {START: ""}
    for name, behind in find_target(target).stages.items():
        step = next((step for step in behind if step in steps), "")
        if step or not behind:
            stages[name] = step
    return stages


def last_stage(target: str) -> str:
    """Return the level that is emitted; empty for a plug-in's target, which states its own."""
    return next(reversed([*find_target(target).stages]), "")


def stretch(
    program: Program,
    pipeline: Pipeline,
    target: str,
    start: str | None = None,
    stop: str | None = None,
) -> PipelineSlice:
    """Return the passes from a program's stage to the stage at which to stop.

    Args:
        program: at any level of the target.
        pipeline: all passes.
        target: the target's name.
        start: the last stage or pass that ran on the program; None: read from the program.
        stop: the last stage or pass to run; None: the end of the pipeline.

    Raises:
        StepwellError: the stage or pass is unknown, or the program is at no stage of the target.
    """
    stages = stages_of(pipeline, target)
    begin = _entrance(program, pipeline, target) if start is None else start
    first = 0 if begin == START else _behind(pipeline, stages, begin)
    last = len(pipeline.steps) if stop is None else _behind(pipeline, stages, stop)
    if stop == START:
        last = 0
    if last < first:
        raise StepwellError(
            f"{begin!r} already ran on the program, but {stop!r} is an earlier stage",
            help=f"stages of {target}, in order: {', '.join(stages)}",
        )
    names = [step_name(step) for step in pipeline.steps]
    return PipelineSlice(
        replace(pipeline, steps=pipeline.steps[first:last]),
        names[first - 1] if first else None,
        None if last == len(names) else names[last - 1] if last else START,
    )


def _behind(pipeline: Pipeline, stages: Mapping[str, str], name: str) -> int:
    """Return the number of passes up to the end of a stage or of a pass."""
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
            f"{name!r} is applied together with the rest of {whole!r}: the lowering cannot stop "
            "inside the group",
            help=f"stop after {whole!r}",
        )
    return at + 1


def _entrance(program: Program, pipeline: Pipeline, target: str) -> str:
    """Return the last stage or pass of a program, from its attribute, level and operations."""
    after = stopped_after(program.module)
    if after is not None:
        whose, _, step = after.partition("/")
        if whose != target:
            raise StepwellError(
                f"the program's lowering to {whose} stopped after {step!r}",
                help=f"lower it to {whose}; or state its stage in the pipeline of {target}: "
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
        return last_stage(target)  # There is no work for the accelerator.
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
            f"the program's biases and scratch memory are made for {cpu.data}, not for {target}",
            help=f"emit it for {cpu.data}, or lower the model to {target}",
        )
    return level


def _of_tosa(program: Program, target: str) -> str:
    if last_stage(target) == "ethosu":
        return "operators"
    stated = program.module.attributes.get(TOSA_TARGET)
    is_this = isinstance(stated, StringAttr) and stated.data == target
    return "tosa" if is_this else "laid-out"  # `finish-tosa` checks the profile.


def _foreign(program: Program, target: str) -> StepwellError:
    return StepwellError(
        f"the program is at level {program.level!r}, which no stage of {target} accepts",
        help=f"{target} takes programs at "
        + ", ".join(dict.fromkeys((START, last_stage(target))))
        + ', and programs that stopped at one of its stages; program.raise_to("aten") (--raise) '
        "raises a program where that is supported",
    )
