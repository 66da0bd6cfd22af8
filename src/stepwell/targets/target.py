"""What a target is: a pipeline, the emitters of its artifacts, and the engine that runs them.

The targets of the house are in `targets.py`; a plug-in makes one of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from stepwell.ir.calls.arguments import takes
from stepwell.ir.declared.numerics import NUMERICS
from stepwell.ir.diagnostics import Problem, StepwellError
from stepwell.ir.options import PIPELINE, Option, Ranges, chosen, read_options
from stepwell.ir.program import Program
from stepwell.ir.rewriting.pipeline import Pipeline
from stepwell.ir.rewriting.rewrite import Bound

NUMERICS_OF = Option(
    "numerics",
    NUMERICS,
    "torch",
    "which classes of numbers (NaN, infinities, zeros) are kept (`docs/semantics.md`)",
)

RANGES = Option(
    "ranges",
    Ranges(),
    None,
    "the numbers that inputs hold, none of them NaN, from which proofs begin: that nothing is "
    "infinite, or that int64 fits into TOSA's int32; calls are held to it",
)

OPTIONS: tuple[Option, ...] = (NUMERICS_OF, RANGES)
"""What every target takes."""
PipelineChange = Callable[[Pipeline], Pipeline]
PipelineLike = Pipeline | str | PipelineChange
"""A pipeline, its name or its text, or a function that changes the target's own."""
Emitter = Callable[..., Any]
"""Program and options → an artifact."""
Runner = Callable[[bytes, Sequence[Any], str], tuple[Any, ...]]
Session = Callable[[str, Sequence[Any]], tuple[Any, ...]]
"""Calls of one loaded artifact, by method and inputs, which keep their state."""
CoreRunner = Callable[[bytes, Sequence[Any], str, str], tuple[Any, ...]]
"""As a `Runner`, with the name of the core to run on."""


@dataclass(frozen=True)
class Target:
    """One target. Imports of emitters and engines happen when they are used."""

    name: str
    pipeline: Pipeline
    artifact: str
    emitters: Mapping[str, Emitter]
    runner: Runner
    own_options: tuple[Option, ...] = ()
    """What this target takes besides the `OPTIONS` of all."""
    per_method: bool = False
    """Whether an artifact holds one method, which its emitter is told."""
    write: Emitter | None = None
    """Writes the artifact to a `path`, where that needs less memory than its bytes, and tells a
    `progress` if one is given: what is written, how many bytes are, and of how many."""
    bound: Bound | None = None
    """How far the engine may stand from the interpreter; None: as float kernels do."""
    reader: Callable[[bytes], Program] | None = None
    """The program in an artifact, where that can be told."""
    dialects: tuple[str, ...] = ()
    """Those whose ops its engine runs; other ops count as outside."""
    on_core: CoreRunner | None = None
    """Runs an artifact on a core that is emulated."""
    stages: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """Stage → the step behind which a program is at it, the first of these that the pipeline has;
    the last stage is the level that is emitted (`docs/levels.md`)."""
    problems: Callable[[Program], Sequence[Problem]] | None = None
    """What keeps the artifact of a program at the end of the pipeline from being emitted or run."""
    session: Callable[[bytes], Session] | None = None
    """Loads an artifact for calls in a row, where its engine keeps state between them."""

    def emitter(self, kind: str) -> Emitter:
        """The emitter of an artifact kind.

        Raises:
            StepwellError: this target has no such artifact.
        """
        if kind not in self.emitters:
            raise StepwellError(
                f"target {self.name!r} has no {kind} artifact",
                help="it has " + ", ".join(f"to_{name}()" for name in self.emitters),
            )
        return self.emitters[kind]

    @property
    def options(self) -> tuple[Option, ...]:
        """Everything that may be chosen for this target."""
        return (*OPTIONS, *self.own_options)

    def chosen(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The options that were given, each found to be one of this target with a value it takes.

        Raises:
            StepwellError: naming every one that is not.
        """
        return chosen(self.options, given, f"target {self.name!r}")

    def read_options(self, texts: Sequence[str]) -> dict[str, Any]:
        """`chosen`, of `name=value` texts from a command line."""
        return read_options(self.options, texts, f"target {self.name!r}")

    def settings(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The value of every option: what was given, else the default."""
        return {option.name: given.get(option.name, option.default) for option in self.options}

    def for_artifact(
        self, kind: str, given: Mapping[str, Any], more: Mapping[str, Any]
    ) -> dict[str, Any]:
        """What the emitter of an artifact is told.

        Args:
            kind: of the artifact.
            given: options that the program was lowered with; those of other readers are left out.
            more: options for this artifact alone.

        Raises:
            StepwellError: one of `more` is none of this artifact's.
        """
        known = [option for option in self.options if kind in option.at]
        names = {option.name for option in known}
        earlier = [o.name for o in self.options if o.name in more and o.name not in names]
        if earlier:
            raise StepwellError(
                f"{', '.join(earlier)}: chosen when a program is lowered, not when it is emitted",
                help=f"lower(program, {self.name!r}, {earlier[0]}=…)",
            )
        kept = {name: value for name, value in given.items() if name in names}
        return {**kept, **chosen(known, more, f"the .{kind} of target {self.name!r}")}

    def prepare(
        self, pipeline: Pipeline | PipelineChange | None, options: Mapping[str, Any]
    ) -> Pipeline:
        """The pipeline to run: the caller's, or the target's own as the options shape it.

        Args:
            pipeline: the caller's, or a function that changes the target's own.
            options: those that were given, `chosen` already.

        Raises:
            StepwellError: both a pipeline and an option that shapes the target's own are given.
        """
        if pipeline is None:
            return self.own_pipeline(options)
        if takes(pipeline, 1):
            return _a_pipeline(pipeline(self.own_pipeline(options)))
        shaping = [o.name for o in self.options if PIPELINE in o.at and o.name in options]
        if shaping:
            raise StepwellError(
                f"{', '.join(shaping)}: shapes the target's own pipeline, and another one is given",
                help="leave out either; a pipeline says itself what its steps do",
            )
        return _a_pipeline(pipeline)

    def beyond_pipeline(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """The options that hold for any pipeline."""
        shaping = {option.name for option in self.options if PIPELINE in option.at}
        return {name: value for name, value in options.items() if name not in shaping}

    def own_pipeline(self, options: Mapping[str, Any]) -> Pipeline:
        """The target's pipeline, as the options shape it."""
        return self.pipeline

    def inventory(self, program: Program) -> tuple[int, dict[str, int]]:
        """(number of delegates, op name → count of the ops outside them)."""
        from stepwell.backends.inventory import inventory

        delegates, outside = inventory(program)
        own = tuple(f"{name}." for name in self.dialects)
        return delegates, {n: count for n, count in outside.items() if not n.startswith(own)}

    def cuts(self, program: Program) -> int:
        """Delegates that are made only so that loading takes less memory."""
        from stepwell.backends.inventory import cuts

        return cuts(program)

    def run(
        self, artifact: bytes, inputs: Sequence[Any], method: str, cpu: str | None = None
    ) -> tuple[Any, ...]:
        """Run an artifact on this target's engine; on a core of that name, if one is given.

        Raises:
            StepwellError: the target's artifacts run on no emulated core.
        """
        if cpu is None:
            return self.runner(artifact, inputs, method)
        if self.on_core is None:
            raise StepwellError(
                f"target {self.name!r} has an engine of its own, not {cpu}", help="leave out cpu"
            )
        return self.on_core(artifact, inputs, method, cpu)


def _a_pipeline(pipeline: Any) -> Pipeline:
    """What was given as a pipeline, if it is one."""
    if isinstance(pipeline, Pipeline):
        return pipeline
    raise StepwellError(
        f"a {type(pipeline).__name__} is no pipeline",
        help='stepwell.PIPELINES["xnnpack"] is one, "normalize,my-rewrite" is the text of one, and '
        "lambda own: own.after(…) changes the target's own",
    )
