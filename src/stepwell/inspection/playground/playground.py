"""Implement the playground without its page: a method for each action, JSON in and out.

held = Playground(program, "block")
held.lower({"target": "xnnpack", "edits": [["without", "legalize/lower-clamp"]]})
held.rule({"target": "xnnpack"}, "rule …")
held.file({"target": "xnnpack"})
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from difflib import SequenceMatcher
from typing import Any

from xdsl.dialects.builtin import FileLineColLoc, LocationAttr, ModuleOp, StringAttr
from xdsl.ir import Operation

from stepwell.inspection.playground import sharing
from stepwell.inspection.playground.differences import differences, runs, same_inputs
from stepwell.inspection.playground.pipeline_rows import EditedPipeline, command
from stepwell.inspection.playground.proofs import Prover
from stepwell.inspection.playground.settings import Asked
from stepwell.inspection.playground.typed_rules import tried, typed, watched
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.levels import AFTER
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import Step, step_name
from stepwell.ir.syntax.inline_values import take_values
from stepwell.ir.syntax.text import parse_module
from stepwell.ir.weights import WeightStore
from stepwell.lowering import Lowered, lower
from stepwell.pipelines.pass_pipeline.stages import stages_of
from stepwell.report.outcomes import fates
from stepwell.targets.table import PIPELINES, find_target
from stepwell.validation.samples import Sample, make_samples

VARIANT_SECONDS = 0.25
"""The time limit for variants of a typed rule."""
PROOF_SECONDS = 0.1
"""The time that an answer waits for a proof; the page asks again later."""

_FIRST_RULE = """
rule remove-double-negation
Before:
    %a = aten.neg.default(%x)
    %y = aten.neg.default(%a)
After:
    %y = %x
"""


@dataclass(frozen=True)
class Shown:
    """A displayed program: its text, and the data that is not in the text.

    Attributes:
        text: the text of the program without locations.
        weights: the weights that the text names.
        locations: the locations of the ops, in the text's order.
    """

    text: str
    weights: WeightStore
    locations: Sequence[LocationAttr]

    @classmethod
    def of(cls, program: Program) -> Shown:
        """Copy the text, weights and locations of a program for display."""
        locations = [op.location for op in program.module.walk()]
        return cls(program.text(), program.weights, locations)


class Playground:
    """A program that the page of `stepwell play` lowers, edits and compares."""

    def __init__(
        self,
        program: Program,
        name: str = "program",
        asked: Asked | None = None,
        inputs: Sequence[Any] | None = None,
        model: str | None = None,
    ) -> None:
        """Create a playground for a program.

        Args:
            program: a program at any level, which is not changed.
            name: the name to show.
            asked: the initial settings.
            inputs: inputs of the method for comparisons; by default random ones.
            model: the model's name in commands (`MODEL`).
        """
        self.program, self.name, self.model = program, name, model or f"{name}.mlir"
        self.asked = asked or Asked()
        self.prover = Prover()
        self._inputs = inputs
        self._eager: tuple[Sample, dict[str, Any], dict[str, Any]] | None = None
        self._lowered: tuple[Asked, Lowered] | None = None
        self._shown: dict[str, Shown] = {}

    @property
    def method(self) -> str:
        """Return the method whose values are compared."""
        return next(iter(self.program.methods))

    def begin(self) -> dict[str, Any]:
        """Return the first data of a page: the name, the targets, and the settings."""
        return {
            "name": self.name,
            "targets": list(PIPELINES),
            "asked": self.asked.to_json(),
        }

    def lower(self, given: Any) -> dict[str, Any]:
        """Lower the program with the requested settings.

        Returns:
            the passes as rows, the stages, the text at the selected stage and at the end, the
            report, the fate of each op, and where each typed rule applied.

        Raises:
            StepwellError: a setting is unknown, or the program cannot be lowered.
        """
        asked = Asked.of_json(given)
        started = time.perf_counter()
        target = find_target(asked.target)
        options = target.read_options(asked.options)
        rules = {name: watched(rule) for name, rule in typed(asked.rules).items()}
        steps: dict[str, Step] = {name: step for name, (step, _) in rules.items()}
        way = EditedPipeline.of(target.name, target.own_pipeline(options), asked.edits, steps)
        looked = _Looked(way, asked.at)
        program = self.program if asked.text is None else self._edited(asked)
        lowered = lower(program, asked.target, lambda own: way.pipeline, observer=looked, **options)
        left = looked.shown
        if left is None:
            ahead = asked.text is not None and looked.step is not None
            left = self._ahead(asked, way, options) if ahead else Shown.of(program)
        self._shown[asked.at] = left
        self.asked, self._lowered = asked, (asked, lowered)
        text = str(left.text) if asked.text is None or asked.at != asked.text_at else asked.text
        return {
            "asked": asked.to_json(),
            "stages": list(stages_of(way.pipeline, target.name)),
            "steps": way.rows(lowered.report),
            "left": text,
            "right": lowered.program.text(),
            "report": str(lowered.report),
            "delegates": lowered.report.delegates,
            "outside": lowered.report.outside.most_common(),
            "refusals": [asdict(refusal) for refusal in lowered.report.refusals],
            "ops": [
                asdict(fate)
                for fate in fates(self.program, lowered.program, lowered.target, lowered.report)
            ],
            "pictures": {name: [asdict(one) for one in made] for name, (_, made) in rules.items()},
            "artifact": "c.zip" if target.artifact == "c" else target.artifact,
            "command": command(self.model, asked.target, asked.options, asked.edits),
            "seconds": time.perf_counter() - started,
        }

    def _edited(self, asked: Asked) -> Program:
        """Return the edited program, with the weights of the program before the edit."""
        assert asked.text is not None
        origin = self._shown.get(asked.text_at)
        weights = (self.program.weights if origin is None else origin.weights).child()
        module = parse_module(asked.text, name="edited", locate=True)
        take_values(module, weights)
        if origin is not None:
            with_locations(module, asked.text, origin.text, origin.locations)
        missing = sorted(Program(module, weights).used_weights() - set(weights))
        if missing:
            raise StepwellError(
                f"the weight {missing[0]!r} does not exist",
                help=f'the text may define a small weight: stepwell.weight <"{missing[0]}"> '
                '"constant" = dense<…> : tensor<…> : tensor<…>',
            )
        return Program(module, weights)

    def _ahead(self, asked: Asked, way: EditedPipeline, options: Mapping[str, Any]) -> Shown:
        """Return the program at the stage at which it is edited, before the edit."""
        stop = way.step_of(asked.at)
        taken = lower(self.program, asked.target, lambda own: way.pipeline, stop=stop, **options)
        return Shown.of(taken.program)

    def lowered(self, given: Any) -> Lowered:
        """Return the result of the settings: the last one, or a new lowering."""
        asked, last = Asked.of_json(given), self._lowered
        if last is None or last[0] != asked:
            self.lower(given)
            last = self._lowered
        assert last is not None
        return last[1]

    def compare(self, given: Any, lowered: Lowered | None = None) -> dict[str, Any]:
        """Compare each op of a lowered program with eager PyTorch, on the sample.

        Args:
            given: the settings.
            lowered: their result, if it exists; then this changes nothing that other actions use.

        Raises:
            StepwellError: the program does not run, or its input types differ from the model's.
        """
        started = time.perf_counter()
        source, eager = self.program, self._eager
        after = (lowered or self.lowered(given)).program
        same_inputs(source, after, self.method)
        if eager is None:
            sample = next(iter(make_samples(source.method(self.method), self._inputs)))
            eager = (sample, *runs(source, self.method, sample))
            if source is self.program:  # No other one was opened meanwhile.
                self._eager = eager
        sample, values, outputs = eager
        nodes, whole = differences(values, outputs, after, self.method, sample)
        return {
            "nodes": {one.node: asdict(one) for one in nodes},
            "outputs": [asdict(one) for one in whole],
            "sample": sample.label,
            "seconds": time.perf_counter() - started,
        }

    def rule(self, given: Any, text: str) -> dict[str, Any]:
        """Parse typed rules, test each on its variants, start its proof, and apply it.

        Args:
            given: the settings, whose rules are replaced by these.
            text: the text of all rules. A rule that no edit names is inserted where it can apply.

        Returns:
            the result of `lower`, and the result of each rule.

        Raises:
            StepwellError: a text is not a rule, or names an unknown op or function.
        """
        started = time.perf_counter()
        asked = replace(Asked.of_json(given), rules=text)
        known = typed(text)
        own = _texts_of(text)
        for name in known:
            self.prover.ask(own[name])
        found = {name: tried(rule, VARIANT_SECONDS / len(known)) for name, rule in known.items()}
        asked = self._placed(asked)
        lowered = self.lower(asked.to_json())
        until = time.perf_counter() + PROOF_SECONDS
        rules = [
            {
                "name": name,
                "wrong": found[name].wrong,
                "variants": found[name].words,
                "proof": self.prover.verdict(own[name], max(until - time.perf_counter(), 0)),
            }
            for name in known
        ]
        return {"rules": rules, "lowered": lowered, "seconds": time.perf_counter() - started}

    def _placed(self, asked: Asked) -> Asked:
        """Return the settings with an edit for each rule, and without edits of rules that do not
        exist.
        """
        rules = typed(asked.rules)
        target = find_target(asked.target)
        options = target.read_options(asked.options)
        edits = list(asked.edits)
        named = {said.partition("=")[2] for _, said in edits}
        for name, rule in rules.items():
            if name not in named:
                steps: dict[str, Step] = {one: cls() for one, cls in rules.items()}
                way = EditedPipeline.of(target.name, target.own_pipeline(options), edits, steps)
                behind = None if asked.text is None else way.step_of(asked.text_at)
                kind, path = way.place_for(rule.anchors, behind)
                edits.append((kind, f"{path}={name}"))
        return replace(asked, edits=tuple(edits))

    def verdicts(self, text: str) -> dict[str, str | None]:
        """Return the solver's verdict on each rule of a text; None if it is not finished."""
        return {name: self.prover.verdict(own) for name, own in _texts_of(text).items()}

    def _to_share(self, given: Any) -> sharing.Shared:
        asked = Asked.of_json(given)
        edited = None if asked.text is None else self._edited(asked)
        return sharing.Shared(self.name, self.program, asked, edited)

    def link(self, given: Any) -> str:
        """Return the program, the edit, the passes and the rules as the fragment of a URL.

        Raises:
            StepwellError: the weights are too large for a link.
        """
        return sharing.to_link(self._to_share(given))

    def file(self, given: Any) -> bytes:
        """Return the program, the edit, the passes and the rules as an archive to save."""
        return sharing.to_file(self._to_share(given))

    def open(self, shared: str | bytes) -> dict[str, Any]:
        """Replace the current program by the content of a link or a file.

        Raises:
            ParseFailure: it is neither a link nor a file.
        """
        is_link = isinstance(shared, str)
        self.take(sharing.from_link(shared) if is_link else sharing.from_file(shared))
        return self.begin()

    def take(self, held: sharing.Shared) -> None:
        """Replace the state of this playground by that of a shared one (a link or a file)."""
        self.program, self.name, self.asked = held.program, held.name, held.asked
        self.model = f"{held.name}.mlir"
        self._eager = self._lowered = self._inputs = None
        edited = held.edited
        self._shown = {} if edited is None else {held.asked.text_at: Shown.of(edited)}

    def artifact(self, given: Any) -> bytes:
        """Return the bytes of the artifact.

        Raises:
            StepwellError: the artifact cannot be emitted.
        """
        lowered = self.lowered(given)
        return bytes(lowered.artifact)

    def warm(self) -> None:
        """Import modules, load kernels and start the solver's process before the first action."""
        (rule,) = typed(_FIRST_RULE).values()
        tried(rule, 0)
        self.prover.start()

    def close(self) -> None:
        """Stop the processes that the playground started."""
        self.prover.close()


class _Looked:
    """An observer that keeps the program as it is after one pass."""

    def __init__(self, way: EditedPipeline, at: str) -> None:
        self.step = way.step_of(at)
        self.shown: Shown | None = None
        self._target = way.target

    def __call__(self, step: Step, program: Program, applied: int) -> None:
        """Keep what the page shows of the program after the requested pass."""
        if step_name(step) != self.step:
            return
        attributes = program.module.attributes
        attributes[AFTER] = StringAttr(f"{self._target}/{self.step}")
        try:
            self.shown = Shown.of(program)
        finally:
            attributes.pop(AFTER)


def _texts_of(text: str) -> dict[str, str]:
    """Return the text of each rule by its name."""
    parts = [part for part in re.split(r"^(?=rule )", text, flags=re.M) if part.startswith("rule ")]
    return {part.partition("\n")[0].removeprefix("rule ").strip(): part.strip() for part in parts}


def with_locations(
    module: ModuleOp, text: str, before: str, locations: Sequence[LocationAttr]
) -> None:
    """Set the locations of ops to those of the ops before the edit.

    An op whose line is unchanged is the same op. So is an op in a changed line, if it replaces as
    many lines as there were before. The location of a new op is its position in the text.

    Args:
        module: the module parsed from `text`, with locations in the text.
        text: the edited text.
        before: the text before the edit.
        locations: the locations of the ops of `before`, in order.
    """
    old, new = before.splitlines(), text.splitlines()
    of_line = {
        line: location
        for (line, _), location in zip(
            _placed(parse_module(before, locate=True)), locations, strict=True
        )
        if line is not None
    }
    kept: dict[int, int] = {}
    for kind, a, b, c, d in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind == "equal" or (kind == "replace" and b - a == d - c):
            kept.update(zip(range(c + 1, d + 1), range(a + 1, b + 1), strict=True))
    for line, op in list(_placed(module)):
        if line is not None and (place := of_line.get(kept.get(line, 0))) is not None:
            op.location = place


def _placed(module: ModuleOp) -> Iterator[tuple[int | None, Operation]]:
    for op in module.walk():
        place = op.location
        yield (place.line.data if isinstance(place, FileLineColLoc) else None), op
