"""`Target`: a pipeline, the emitters of its artifacts, and the engine that runs them.

stepwell's own targets are in `table.py`; a plug-in may define others.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from xdsl.ir import Operation

from stepwell.ir.calls.arguments import takes
from stepwell.ir.declared.numerics import NUMERICS
from stepwell.ir.diagnostics import Problem, StepwellError, op_name
from stepwell.ir.options import PIPELINE, Option, Ranges, chosen, read_options
from stepwell.ir.program import Program
from stepwell.ir.rewriting.pipeline import Pipeline
from stepwell.ir.rewriting.rewrite import Bound

NUMERICS_OF = Option(
    "numerics",
    NUMERICS,
    "torch",
    "which classes of numbers (NaN, infinities, zeros) are preserved (`docs/semantics.md`)",
)

RANGES = Option(
    "ranges",
    Ranges(),
    None,
    "the range of input values, none of them NaN, from which proofs start: that no value "
    "is infinite, or that int64 fits into TOSA's int32; calls must respect it",
)

OPTIONS: tuple[Option, ...] = (NUMERICS_OF, RANGES)
"""The options of every target."""
PipelineChange = Callable[[Pipeline], Pipeline]
PipelineLike = Pipeline | str | PipelineChange
"""A pipeline, its name or its text, or a function that changes the target's own."""
Emitter = Callable[..., Any]
"""Program and options → an artifact."""
Runner = Callable[[Any, Sequence[Any], str], tuple[Any, ...]]
Session = Callable[[str, Sequence[Any]], tuple[Any, ...]]
"""Calls of one loaded artifact, by method and inputs, which keep their state."""
CoreRunner = Callable[[bytes, Sequence[Any], str, str], tuple[Any, ...]]
"""As a `Runner`, with the name of the core to run on."""


@dataclass(frozen=True)
class Target:
    """A device or format to lower to: its pipeline, emitters of artifacts, and engine. Emitters and
    engines are imported on first use.
    """

    name: str
    pipeline: Pipeline
    artifact: str
    emitters: Mapping[str, Emitter]
    runner: Runner
    own_options: tuple[Option, ...] = ()
    """The options of this target in addition to `OPTIONS`."""
    per_method: bool = False
    """Whether an artifact contains one method, which is passed to the emitter."""
    write: Emitter | None = None
    """Writes the artifact to a `path`, if that needs less memory than its bytes. It calls
    `progress`, if given, with the item, the bytes written so far, and the total."""
    bound: Bound | None = None
    """The error bound of the engine against the interpreter; None: that of float kernels."""
    reader: Callable[[bytes], Program] | None = None
    """Reads the program of an artifact, if that is possible."""
    dialects: tuple[str, ...] = ()
    """The dialects whose ops its engine runs; other ops count as outside."""
    on_core: CoreRunner | None = None
    """Runs an artifact on an emulated core."""
    stages: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """Stage → the passes that may end it; the first one that the pipeline contains does. The last
    stage is the level that is emitted (`docs/levels.md`)."""
    problems: Callable[[Program], Sequence[Problem]] | None = None
    """Finds the problems that prevent the final program from being emitted or run."""
    session: Callable[[Any], Session] | None = None
    """Loads an artifact for successive calls, if its engine keeps state between them."""

    def emitter(self, kind: str) -> Emitter:
        """Return the emitter of an artifact kind.

        Raises:
            StepwellError: the target has no such artifact.
        """
        if kind not in self.emitters:
            raise StepwellError(
                f"target {self.name!r} has no {kind} artifact",
                help="it has " + ", ".join(f"to_{name}()" for name in self.emitters),
            )
        return self.emitters[kind]

    @property
    def options(self) -> tuple[Option, ...]:
        """Return all options of this target."""
        return (*OPTIONS, *self.own_options)

    def chosen(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Validate options and values against those of this target, and return them.

        Raises:
            StepwellError: an option or value is invalid; the message names each.
        """
        return chosen(self.options, given, f"target {self.name!r}")

    def read_options(self, texts: Sequence[str]) -> dict[str, Any]:
        """Parse and validate `name=value` strings from a command line."""
        return read_options(self.options, texts, f"target {self.name!r}")

    def settings(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the value of every option: the stated value, else the default."""
        return {option.name: given.get(option.name, option.default) for option in self.options}

    def for_artifact(
        self, kind: str, given: Mapping[str, Any], more: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the options for the emitter of an artifact.

        Args:
            kind: the kind of artifact.
            given: the options of the lowering; those that the emitter does not read are dropped.
            more: options for this artifact only.

        Raises:
            StepwellError: one of `more` is not an option of this artifact.
        """
        known = [option for option in self.options if kind in option.at]
        names = {option.name for option in known}
        earlier = [o.name for o in self.options if o.name in more and o.name not in names]
        if earlier:
            raise StepwellError(
                f"{', '.join(earlier)}: these options belong to lowering, not to emission",
                help=f"lower(program, {self.name!r}, {earlier[0]}=…)",
            )
        kept = {name: value for name, value in given.items() if name in names}
        return {**kept, **chosen(known, more, f"the .{kind} of target {self.name!r}")}

    def prepare(
        self, pipeline: Pipeline | PipelineChange | None, options: Mapping[str, Any]
    ) -> Pipeline:
        """Return the pipeline to run: the caller's, or the target's own with the options applied.

        Args:
            pipeline: the caller's, or a function that changes the target's own.
            options: the validated options.

        Raises:
            StepwellError: both a pipeline and an option that changes the target's own pipeline were
                passed.
        """
        if pipeline is None:
            return self.own_pipeline(options)
        if takes(pipeline, 1):
            return _a_pipeline(pipeline(self.own_pipeline(options)))
        shaping = [o.name for o in self.options if PIPELINE in o.at and o.name in options]
        if shaping:
            raise StepwellError(
                f"{', '.join(shaping)}: changes the target's own pipeline, but another pipeline "
                "was passed",
                help="omit one of the two; or set options of the passes in the pipeline's text",
            )
        return _a_pipeline(pipeline)

    def beyond_pipeline(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options that apply to any pipeline."""
        shaping = {option.name for option in self.options if PIPELINE in option.at}
        return {name: value for name, value in options.items() if name not in shaping}

    def own_pipeline(self, options: Mapping[str, Any]) -> Pipeline:
        """Return the target's pipeline with the options applied."""
        return self.pipeline

    def inventory(self, program: Program) -> tuple[int, dict[str, int]]:
        """Return (number of delegates, op name → count of the ops outside them)."""
        from stepwell.backends.inventory import delegates

        return delegates(program), Counter(map(op_name, self.outside(program)))

    def outside(self, program: Program) -> Sequence[Operation]:
        """Return the ops outside delegates that kernels of the runtime run, not the engine."""
        from stepwell.backends.inventory import is_delegate, outside_and_delegates

        own = tuple(f"{name}." for name in self.dialects)
        ops = (op for op in outside_and_delegates(program) if not is_delegate(op))
        return [op for op in ops if not op_name(op).startswith(own)]

    def estimates(self, program: Program) -> tuple[Any, ...]:
        """Return the estimates of delegates by the compiler of the target's device, if any."""
        return ()

    def cuts(self, program: Program) -> int:
        """Return the number of delegates that were split off only to save memory on loading."""
        from stepwell.backends.inventory import cuts

        return cuts(program)

    def packed_weights(self, program: Program) -> tuple[int, int]:
        """Return the bytes of weights that XNNPACK packs, and those of the distinct ones."""
        from stepwell.backends.inventory import packed_weights

        return packed_weights(program)

    def run(
        self, artifact: Any, inputs: Sequence[Any], method: str, cpu: str | None = None
    ) -> tuple[Any, ...]:
        """Run an artifact on this target's engine, or on an emulated core `cpu`.

        Raises:
            StepwellError: the target's artifacts do not run on an emulated core.
        """
        if cpu is None:
            return self.runner(artifact, inputs, method)
        if self.on_core is None:
            raise StepwellError(
                f"cpu={cpu}: target {self.name!r} has no emulated CPUs", help="omit cpu"
            )
        return self.on_core(artifact, inputs, method, cpu)


def _a_pipeline(pipeline: Any) -> Pipeline:
    """Check that a value is a pipeline, and return it."""
    if isinstance(pipeline, Pipeline):
        return pipeline
    raise StepwellError(
        f"pipeline has type {type(pipeline).__name__}, which is not a pipeline",
        help='stepwell.PIPELINES["xnnpack"] is one, "normalize,my-rewrite" is the text of one, and '
        "lambda own: own.after(…) changes the target's own",
    )
