"""Evaluation of a model on the same batches at every lowering stage, down to its artifact."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.program import Program
from stepwell.ir.rewriting.failures import StepFailure
from stepwell.ir.rewriting.rewrite import step_name
from stepwell.lowering import lower
from stepwell.pipelines.pass_pipeline.pipeline_text import prepared
from stepwell.pipelines.pass_pipeline.ports import given_back, taken
from stepwell.pipelines.pass_pipeline.stages import START, stages_of
from stepwell.quantization.sensitivity.metrics import Batch, Judged, Metric, Tally, flips, judged
from stepwell.targets.table import find_target
from stepwell.targets.target import PipelineLike

Run = Callable[..., Sequence[Any]]


@dataclass(frozen=True)
class Stage:
    """One stage, compared with the previous one.

    Attributes:
        name: `model`, `program`, `quantized`, a stage of the target's pipeline, or `artifact`.
        loss, score: the stage's loss and score, minus those of the previous stage; `loss` also
            counts flipped classes.
        mean: the mean loss and score of the stage itself.
        samples: the number of samples.
    """

    name: str
    loss: Tally
    score: Tally
    mean: tuple[float, float]
    samples: int


@dataclass
class StageComparison:
    """The evaluated stages, each compared with the previous one."""

    batches: Sequence[Batch]
    reference: Sequence[Sequence[Any]]
    metric: Metric | None
    stages: list[Stage]
    last: Sequence[Judged] = ()

    def take(self, name: str, run: Run) -> None:
        """Evaluate one more stage on all batches and append it."""
        found = [
            judged(tuple(run(*inputs)), labels, wanted, self.metric)
            for (inputs, labels), wanted in zip(self.batches, self.reference, strict=False)
        ]
        loss, score, own, scored = Tally(), Tally(), Tally(), Tally()
        for now, ahead in zip(found, self.last or found, strict=False):
            loss.add(now.loss - ahead.loss, flips(now, ahead))
            score.add(now.score - ahead.score)
            own.add(now.loss)
            scored.add(now.score)
        self.stages.append(Stage(name, loss, score, (own.mean, scored.mean), own.count))
        self.last = found


def down(
    way: StageComparison,
    program: Program,
    target: str,
    pipeline: PipelineLike | None,
    options: Mapping[str, Any],
) -> str | None:
    """Evaluate every stage of a target; return the name of the pass that loses accuracy, or None.

    Raises:
        StepwellError: the program cannot be lowered.
    """  # fmt: skip
    chosen_target = find_target(target)
    steps = prepared(chosen_target, pipeline, chosen_target.chosen(options))
    guilty: str | None = None
    at = 0
    names = [step_name(step) for step in steps.steps]
    for stage, step in stages_of(steps, chosen_target.name).items():
        if stage == START:
            continue
        ahead = way.last
        lowered = lower(program, target, pipeline, stop=stage, **options)
        way.take(stage, in_floats(lowered.program, lowered.program.run))
        end = names.index(step) + 1 if step else len(names)
        now = way.stages[-1].loss
        if guilty is None and now.is_sure and now.mean > 0:
            guilty = _step(way, ahead, program, target, pipeline, options, names[at:end])
        at = end
    whole = lower(program, target, pipeline, **options)
    way.take("artifact", in_floats(whole.program, whole.run))
    return guilty


def in_floats(program: Program, run: Run) -> Run:
    """Wrap a run so that it takes the model's float arguments in place of quantized integers."""
    func = program.method()
    return lambda *inputs: given_back(func, run(*taken(func, inputs)))


def _step(
    way: StageComparison,
    ahead: Sequence[Judged],
    program: Program,
    target: str,
    pipeline: PipelineLike | None,
    options: Mapping[str, Any],
    names: Sequence[str],
) -> str | None:
    """Find, by bisection, the first of some passes after which the loss occurs."""  # fmt: skip

    def is_lost(name: str) -> bool:
        probe = StageComparison(way.batches[:1], way.reference[:1], way.metric, [], ahead[:1])
        part = lower(program, target, pipeline, stop=name, **options).program
        probe.take(name, in_floats(part, part.run))
        return probe.stages[-1].loss.is_sure and probe.stages[-1].loss.mean > 0

    low, high = 0, len(names) - 1
    while low < high:
        middle = (low + high) // 2
        try:
            lost = is_lost(names[middle])
        except (StepwellError, StepFailure):
            return None  # A program between two passes may not be executable.
        low, high = (low, middle) if lost else (middle + 1, high)
    return names[low] if names else None
