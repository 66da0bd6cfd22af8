"""Textual pipelines: `normalize,my-rewrite{limit=4},both(first,second),absorb/merge-linears`.

A name is resolved in this order: a pass of the current pipeline, or a rewrite in a group by its
path, with the options set there; a rewrite or pass of stepwell or of a plug-in, with options; a
pipeline, for all its passes. `label(a,b)` applies rewrites together until a fixed point. In a file,
a line break separates passes like a comma, and `#` begins a comment. `spell_step` prints this
notation.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, cast

from xdsl.utils.arg_spec import ArgSpec, parse_spec
from xdsl.utils.exceptions import ArgSpecParseError

from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.options import nearest
from stepwell.ir.platform.files import read_bytes
from stepwell.ir.rewriting.legalization import Legalize, Phase
from stepwell.ir.rewriting.pipeline import Pipeline
from stepwell.ir.rewriting.rewrite import GreedyRewrites, NamedPass, Pass, Rewrite, Step, step_name
from stepwell.pipelines.pass_pipeline.named_passes import StepPass, find_pass, name_of, step_classes
from stepwell.plugins.plugins import registry
from stepwell.plugins.registry import unknown
from stepwell.targets.table import PIPELINES
from stepwell.targets.target import PipelineLike, Target

GROUP = re.compile(r"([\w.+-]+)\((.*)\)", re.S)
"""`label(a,b)`."""
_OPEN, _CLOSE = "({[", ")}]"

EditKind = Literal["before", "after", "without", "replace", "move"]


@dataclasses.dataclass(frozen=True)
class Edit:
    """An edit of a pipeline, given on the command line.

    Attributes:
        kind: the kind of edit.
        path: the path of the pass, or of the rewrite in a group, to edit.
        steps: the textual passes to insert; for `move` the path of the pass to move before; for
            `without` empty.
    """

    kind: EditKind
    path: str
    steps: str = ""

    @classmethod
    def parse(cls, kind: EditKind, text: str) -> Edit:
        """Parse `PATH=STEPS`, or `PATH` for `without`.

        Raises:
            StepwellError: the path or the passes are missing.
        """
        path, equals, steps = text.partition("=")
        if kind == "without":
            return cls(kind, text.strip())
        if not equals or not path.strip() or not steps.strip():
            raise StepwellError(
                f"--{kind} {text}: PATH=PASSES is required",
                help=f"--{kind} absorb/fold-bias-into-layer=my-rewrite",
            )
        return cls(kind, path.strip(), steps.strip())

    def apply(self, pipeline: Pipeline, known: Mapping[str, Step] | None = None) -> Pipeline:
        """Return the edited pipeline. `known` maps the caller's own names to passes."""
        if self.kind == "without":
            return pipeline.without(*split(self.path))
        if self.kind == "move":
            return pipeline.move(self.path, self.steps)
        steps = parse_steps(self.steps, pipeline, known)
        if self.kind == "after":
            return pipeline.after(self.path, *steps)
        if self.kind == "before":
            return pipeline.before(self.path, *steps)
        first, *others = steps
        changed = pipeline.replace(self.path, first)
        return changed.after(step_name(first), *others) if others else changed


def prepared(target: Target, pipeline: PipelineLike | None, options: Mapping[str, Any]) -> Pipeline:
    """Return the pipeline that a lowering runs, by `Target.prepare`; parse it if it is textual.

    Raises:
        StepwellError: as `Target.prepare`; or the text names an unknown pass.
    """
    if isinstance(pipeline, str):
        pipeline = parse_pipeline(pipeline, target.own_pipeline(options))
    return target.prepare(pipeline, options)


def parse_pipeline(text: str, own: Pipeline) -> Pipeline:
    """Parse a pipeline from its name, its text, or a file with the text.

    Args:
        text: the name, the text, or the path of the file.
        own: the target's pipeline, whose passes can be named.

    Raises:
        StepwellError: a pass is unknown; the nearest name is suggested.
    """
    text = text.strip()
    if text in PIPELINES:
        return PIPELINES[text]
    path = Path(text)
    if path.suffix and "{" not in text and path.is_file():
        return Pipeline(path.stem, parse_steps(_read(path), own))
    return Pipeline("of the caller", parse_steps(text, own))


def _read(path: Path) -> str:
    lines = read_bytes(path).decode(errors="replace").splitlines()
    kept = [line.partition("#")[0].strip().rstrip(",") for line in lines]
    return ",".join(line for line in kept if line)


def parse_steps(
    text: str, own: Pipeline | None = None, known: Mapping[str, Step] | None = None
) -> tuple[Step, ...]:
    """Parse a list of passes by name: the caller's `known` ones, those of a pipeline, or
    stepwell's.

    Raises:
        StepwellError: a name or an option is unknown, or the syntax is wrong.
    """
    steps = [step for item in split(text) for step in _steps_of(item, own, known or {})]
    if not steps:
        raise StepwellError(
            "the pipeline has no pass", help="write a list, such as normalize,my-rewrite"
        )
    return tuple(steps)


def split(text: str) -> list[str]:
    """Split a text at the commas outside brackets and strings.

    Raises:
        StepwellError: a bracket or a string is not closed.
    """
    items, depth, start, quoted = list[str](), 0, 0, False
    for at, character in enumerate(text):
        if character == '"':
            quoted = not quoted
        elif not quoted and character in _OPEN:
            depth += 1
        elif not quoted and character in _CLOSE:
            depth -= 1
        elif character == "," and not depth and not quoted:
            items.append(text[start:at])
            start = at + 1
    if depth or quoted:
        raise StepwellError(f"a bracket or a string is not closed in {text!r}")
    return [item.strip() for item in (*items, text[start:]) if item.strip()]


def _steps_of(item: str, own: Pipeline | None, known: Mapping[str, Step]) -> Iterator[Step]:
    if item in known:
        yield known[item]
        return
    group = GROUP.fullmatch(item)
    if group is not None:
        label, inner = group.groups()
        rewrites = [step for part in split(inner) for step in _steps_of(part, own, known)]
        wrong = [step_name(step) for step in rewrites if not isinstance(step, Rewrite)]
        if wrong or not rewrites:
            fact = f"{', '.join(wrong)} is not a rewrite" if wrong else "the group is empty"
            raise StepwellError(f"{label}(…) must contain only rewrites: {fact}")
        is_phased = any(isinstance(step, Phase) for step in rewrites)
        made = Legalize if is_phased else GreedyRewrites
        yield made(label, tuple(cast("list[Rewrite[Any]]", rewrites)))
        return
    held = _of_own(item, own) if own is not None and "{" not in item else None
    if held is None:
        yield from _by_name(item, own)
    else:
        yield held


def _of_own(item: str, own: Pipeline) -> Step | None:
    """Return the pass of a pipeline, or the rewrite of a group, with a name; None if there is none.

    Raises:
        StepwellError: the name is ambiguous, and the candidates have different options.
    """
    meant = [_at(own, path) for path in own.paths if item in (path, path.rpartition("/")[2])]
    if meant and any(step != meant[0] for step in meant):
        own.find(item)  # Raises, and lists the candidates.
    return meant[0] if meant else None


def _at(own: Pipeline, path: str) -> Step:
    at, part = own.find(path if "/" in path else f"/{path}")
    step = own.steps[at]
    return step if part is None else _parts(step)[part]


def _parts(step: Step) -> Sequence[Step]:
    return step.rewrites if isinstance(step, GreedyRewrites) else (cast(NamedPass, step).held,)


def _by_name(item: str, own: Pipeline | None) -> Iterator[Step]:
    try:
        spec: ArgSpec = parse_spec(item)
    except ArgSpecParseError as error:
        raise StepwellError(f"{item!r} is not a pass: {str(error).splitlines()[0]}") from None
    made = find_pass(spec.name)
    if made is not None and issubclass(made, StepPass):
        yield made.of_spec(spec).step
        return
    if spec.name in PIPELINES and not spec.parameters:
        yield from PIPELINES[spec.name].steps
        return
    brought = registry().steps
    names = {*step_classes(), *brought, *PIPELINES, *(own.paths if own else ())}
    error = unknown("step", spec.name, sorted(brought))
    help = error.problems[0].help or ""
    near = nearest(spec.name, names)
    rest = help.partition("; left out")
    listed = "stepwell opt --list-passes lists them"
    raise StepwellError(f"pass {spec.name!r} is unknown", help=near + listed + rest[1] + rest[2])


def spell_step(step: Step, *, foreign: bool = False) -> str | None:
    """Return the textual form of a pass, or None if its class or one of its options has none.

    Args:
        step: the pass.
        foreign: also print a class that is not registered, because its file may be loaded later.
    """
    if isinstance(step, NamedPass):
        return spell_step(step.held, foreign=foreign)
    if isinstance(step, GreedyRewrites):
        parts = [spell_step(part, foreign=foreign) for part in step.rewrites]
        if None in parts:
            return None
        return f"{step.label}({','.join(part for part in parts if part)})"
    return _spell_one(step, foreign)


def _spell_one(step: Rewrite[Any] | Pass, foreign: bool) -> str | None:
    name = name_of(type(step)) or (type(step).name if foreign else None)
    if name is None:
        return None
    told: list[str] = []
    fields = dataclasses.fields(cast(Any, step)) if dataclasses.is_dataclass(step) else ()
    for option in fields:
        value = getattr(step, option.name)
        if value == option.default and type(value) is type(option.default):
            continue
        text = _spell_value(value)
        if text is None:
            return None
        told.append(f"{option.name}={text}")
    return f"{name}{{{' '.join(told)}}}" if told else name


def _spell_value(value: Any) -> str | None:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'"{value}"' if '"' not in value else None
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, tuple) and value:
        parts = [_spell_value(part) for part in cast("tuple[Any, ...]", value)]
        return None if None in parts else ",".join(part for part in parts if part)
    return None
