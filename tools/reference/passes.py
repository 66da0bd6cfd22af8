"""Every rewrite and pass: motivation, example, error bound, and the pipelines that run it."""

from __future__ import annotations

import inspect
import sys
from collections import defaultdict
from typing import Any

from reference.text import anchor, fenced, first_paragraph, folded, prose, table, where
from stepwell.ir.rewriting.forms import Position
from stepwell.ir.rewriting.rewrite import Bound, GreedyRewrites, NamedPass, Rewrite, Step, step_name
from stepwell.pipelines.pass_pipeline.named_passes import step_classes
from stepwell.pipelines.pass_pipeline.ordering import places_of
from stepwell.pipelines.xnnpack import Pipeline
from stepwell.targets.table import PIPELINES
from stepwell.translate.lowerings.lowering import Lowering
from stepwell.translate.passes import folder_of, pass_modules
from stepwell.translate.rewrites import documentation
from stepwell.translate.rules.rewrite import RuleRewrite

FOLDERS = {
    folder_of(f"{module.__name__}.x"): first_paragraph(module.__doc__)
    for module in pass_modules()
    if hasattr(module, "__path__")
} | {"shared": "For every level."}
"""The subject of the passes of a folder, from its package's docstring."""
SHOWN = (
    "xnnpack",
    "xnnpack-published",
    "cortex-m55",
    "ethos-u55-128",
    "tosa-1.0+fp",
    "tosa-1.0+int",
    "tosa-1.1+fp+mxfp",
)
"""Pipelines on the page of pipelines; the others of a family differ in a setting."""


def pages() -> dict[str, str]:
    """Return one page per folder of rewrites, an index of all, and the order of each pipeline."""
    places = _places()
    by_folder: dict[str, list[str]] = defaultdict(list)
    rows: list[tuple[str, str, str]] = []
    for name, cls in step_classes().items():
        folder = folder_of_step(cls)
        by_folder[folder].append(entry(name, cls, places.get(cls, [])))
        rows.append((f"[`{name}`]({folder}.md#{anchor(name)})", folder, summary(cls)))
    found = {"reference/passes/index.md": _index(rows)}
    for folder, entries in by_folder.items():
        head = f"# Passes: {folder}\n\n{FOLDERS[folder]}\n\n"
        found[f"reference/passes/{folder}.md"] = head + "\n".join(entries)
    found["reference/pipelines.md"] = _pipelines()
    return found


def folder_of_step(cls: type[Step]) -> str:
    """Return the folder of a pass."""
    return folder_of(cls.__module__) or "shared"


def summary(cls: type[Step]) -> str:
    """Return what a pass does, in a line."""
    return first_paragraph(cls.__doc__)


def entry(name: str, cls: type[Step], places: list[str]) -> str:
    """Render a pass's section."""
    parts = [f"## {name}\n", prose(cls.__doc__), ""]
    motive = _motive(cls)
    if motive and motive != prose(cls.__doc__):
        parts += [motive, ""]
    if issubclass(cls, Rewrite) and not inspect.isabstract(cls):
        parts += [f"Matches {_anchors(cls)}. {bound_text(cls.bound)}", ""]
    else:
        parts += [f"Runs on whole programs. {bound_text(cls.bound)}", ""]
    examples = _examples(cls)
    for before, after in examples[:2]:
        parts += ["Before:\n", fenced(before, "mlir"), "After:\n", fenced(after, "mlir")]
    for before, after in examples[2:]:
        parts.append(
            folded(
                "another form",
                f"Before:\n\n{fenced(before, 'mlir')}\nAfter:\n\n{fenced(after, 'mlir')}",
            )
        )
    if issubclass(cls, RuleRewrite):
        parts.append(folded("the text of the rule", fenced(cls.rule.text)))
    run = ", ".join(f"`{place}`" for place in places)
    parts += [
        f"`{_file(cls)}`"
        + (f"; run by {run}" if run else "; not a pass of its own in any pipeline"),
        "",
    ]
    return "\n".join(parts)


def _motive(cls: type[Step]) -> str:
    """Return the module's text before its example; in a file of rules, each rule's own."""
    if issubclass(cls, RuleRewrite):
        return prose(cls.rule.prose)
    if issubclass(cls, Lowering):
        return ""
    text = sys.modules[cls.__module__].__doc__ or ""
    return prose(text.split("\nBefore:\n")[0]).strip()


def _examples(cls: type[Step]) -> list[tuple[str, str]]:
    if issubclass(cls, RuleRewrite | Lowering):
        return documentation.examples_of_rule(cls)
    module = sys.modules[cls.__module__]
    return documentation.examples_of(module) if not getattr(module, "RULES", ()) else []


def _file(cls: type[Step]) -> str:
    return where(sys.modules[cls.__module__])


def _anchors(cls: Any) -> str:
    anchors = getattr(cls, "anchors", ())
    names = [f"`{op.name}`" if hasattr(op, "name") else f"any `{op.__name__}`" for op in anchors]
    if not names:
        return "every op"
    more = f" and {len(names) - 6} others" if len(names) > 6 else ""
    return ", ".join(names[:6]) + more


def bound_text(bound: Bound) -> str:
    """Describe an error bound in words."""
    if bound.exact:
        return "Results are equal bit for bit."
    terms: list[str] = []
    if bound.units:
        terms.append(f"{bound.units} unit{'s' * (bound.units > 1)} of the stored integer")
    if bound.relative:
        terms.append(f"{bound.relative:g} relative")
    if bound.absolute:
        terms.append(f"{bound.absolute:g} absolute")
    terms += [
        f"{factor:g} of {' + '.join(f'|{n}|' for n in names)}" for factor, names in bound.magnitudes
    ]
    if bound.derived and not terms:
        terms.append("the roundings of both sides")
    moved = "Results differ by at most " + ", ".join(terms) if terms else "Results differ"
    return moved + (f": {bound.reason}." if bound.reason else ".")


def _places() -> dict[type[Step], list[str]]:
    """Map the class of a pass to its paths in the listed pipelines."""
    found: dict[type[Step], list[str]] = defaultdict(list)
    for name in SHOWN:
        for path, step in _steps(PIPELINES[name]):
            found[type(step)].append(f"{name}: {path}")
    return found


def _parts(step: Any) -> list[Any]:
    """Return the parts of a pass, or the pass itself if it has none."""
    if isinstance(step, GreedyRewrites):
        return list(step.rewrites)
    return [step.held] if isinstance(step, NamedPass) else [step]


def _steps(pipeline: Pipeline) -> list[tuple[str, Any]]:
    return [
        (step_name(step) + f"/{step_name(part)}" * isinstance(step, GreedyRewrites), part)
        for step in pipeline.steps
        for part in _parts(step)
    ]


def _index(rows: list[tuple[str, str, str]]) -> str:
    folders = "\n".join(f"- [{name}]({name}.md): {what}" for name, what in FOLDERS.items())
    return (
        "# Passes\n\nEvery rewrite and pass, by its name for `stepwell opt -p NAME`. The examples "
        "are those of the files: a test runs each and interprets both sides on the same inputs.\n\n"
        f"{folders}\n\n{table(('pass', 'folder', 'what it does'), rows)}"
    )


def _pipelines() -> str:
    names = step_classes()
    paths = {cls: f"passes/{folder_of_step(cls)}.md#{anchor(name)}" for name, cls in names.items()}
    parts = [
        "# Pipelines\n\nThe order in which each target runs its passes. A pass with several "
        "rewrites runs them together until none applies. The path of each is an argument of "
        "`pipeline.after(path, …)` (`absorb/fold-bias-into-layer`). The reason for each position "
        "is declared in `src/stepwell/pipelines/pass_pipeline/ordering.py`. A form is what some "
        "rewrites establish: tests check it between passes.\n"
    ]
    for name in SHOWN:
        rows = [
            (
                str(at),
                f"`{step_name(step)}`",
                ", ".join(_link(part, paths) for part in _parts(step)),
                _why(places_of(name)[step_name(step)]),
            )
            for at, step in enumerate(PIPELINES[name].steps, 1)
        ]
        parts += [f"## {name}\n", table(("", "step", "runs", "why here"), rows)]
    return "\n".join(parts)


def _why(place: Position) -> str:
    said = [place.because]
    if place.needs:
        said.append(f"Needs a program that is {' and '.join(f.name for f in place.needs)}.")
    if place.leaves:
        said.append(" ".join(f"After it {form.says} ({form.name})." for form in place.leaves))
    return " ".join(said)


def _link(step: Any, paths: dict[type[Step], str]) -> str:
    name, path = step_name(step), paths.get(type(step))
    return f"[{name}]({path})" if path else f"`{name}`"
