"""`stepwell show SOURCE`: show a program as text, tables, a page or a graph."""

from __future__ import annotations

import argparse
import sys
import webbrowser
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stepwell.backends.executorch.reading.read import read_container
from stepwell.cli.commands import options_of
from stepwell.cli.terminal.outcome import Outcome
from stepwell.cli.terminal.progress import waiting
from stepwell.cli.terminal.quantization import quantization_of
from stepwell.cli.terminal.sources import open_source
from stepwell.inspection.viewer import tell, to_dot, to_html, to_model_explorer
from stepwell.inspection.viewer.highlight import highlighted
from stepwell.inspection.viewer.memory import memory_plans
from stepwell.inspection.viewer.overlays import read_overlay
from stepwell.inspection.viewer.side_by_side import with_beside
from stepwell.inspection.viewer.summary import summarize
from stepwell.inspection.viewer.weights import weight_numbers
from stepwell.inspection.viewer.workspace import workspace_plans
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.platform.files import read_bytes, write_atomically
from stepwell.ir.syntax.text import to_text
from stepwell.lowering import lower

if TYPE_CHECKING:
    from stepwell.cli.terminal.sources import Model
    from stepwell.inspection.viewer.story import Story
    from stepwell.ir.program import Program


def run(arguments: argparse.Namespace) -> Outcome:
    """Write the requested files; print the text or the tables."""
    if arguments.profile and not (arguments.html and arguments.target):
        raise StepwellError("--profile needs a lowered program", help="add --html and --target")
    if arguments.difference and not (arguments.html and arguments.target):
        raise StepwellError("--difference needs a lowered program", help="add --html and --target")
    if (arguments.overlay or arguments.beside) and not arguments.html:
        raise StepwellError("--overlay and --beside require --html", help="add --html FILE")
    if (arguments.option or arguments.pipeline or arguments.edits) and not arguments.target:
        fact = "-O, --pipeline and changes of the pipeline need a target"
        raise StepwellError(fact, help="add --target")
    if arguments.open and not arguments.html:
        raise StepwellError("--open opens the page that --html writes", help="add --html FILE")
    options = options_of(arguments) if arguments.target else {}
    model = opened(arguments.model, arguments)
    program = model.program
    for note in model.notes:
        print(note, file=sys.stderr)
    written = [path for path in (arguments.html, arguments.dot, arguments.model_explorer) if path]
    if arguments.html:
        folder = Path(arguments.model.rpartition(":")[0] or arguments.model).parent
        with waiting(f"telling {arguments.model}"):
            story = tell(program, arguments.target, title=model.name, folder=folder, **options)
        if arguments.profile:
            story = with_times(story, arguments.method)
        if arguments.difference:
            story = with_differences(story, program, arguments.method)
        story = with_memory(story, arguments.model, program)
        story = with_others(story, program, arguments, options)
        editor = None if arguments.editor == "none" else arguments.editor
        write_atomically(arguments.html, to_html(story, editor).encode())
        _say(arguments.html, story, arguments.open)
        program = story.lowered.program if story.lowered else program
    elif arguments.target:
        with waiting(f"lowering {arguments.model}"):
            program = lower(program, arguments.target, **options).program
    if arguments.dot:
        write_atomically(arguments.dot, to_dot(program, arguments.method).encode())
    if arguments.model_explorer:
        write_atomically(arguments.model_explorer, to_model_explorer(program).encode())
    text = None
    if arguments.summary:
        print(summarize(program))
    elif not written:
        text = to_text(program.module, locations=arguments.locations, generic=arguments.generic)
        color = arguments.color == "always" or (arguments.color == "auto" and sys.stdout.isatty())
        print(highlighted(text) if color else text)
    summary = summarize(program) if arguments.json else None
    return Outcome({"summary": summary, "text": text}, written)


def opened(source: str, arguments: argparse.Namespace) -> Model:
    """Open the model or artifact that the command names, with its options."""
    read_as = {name: getattr(arguments, name) for name in ("trust", "largest")}
    return open_source(source, **read_as, **quantization_of(arguments))


def _say(path: Path, story: Story, is_opened: bool) -> None:
    """Print which files were written, and open a file if requested."""
    made = sum(len(level.applications) for level in story.levels)
    held = [f"{len(story.levels)} levels" if len(story.levels) > 1 else "one level"]
    held += [f"{made} rewrites"] if made else []
    held += ["a profile"] if story.times else []
    held += ["a memory plan"] if story.memory else []
    print(f"wrote {path}: {path.stat().st_size:,} bytes, {', '.join(held)}; needs no network")
    if not is_opened:
        return
    if not webbrowser.open(path.resolve().as_uri()):
        raise StepwellError("no browser was found", help=f"open {path} yourself")


def with_memory(story: Story, model: str, program: Program) -> Story:
    """Add the arenas of the lowered or given `.pte` to a story (the page's contents), and the
    workspaces of its XNNPACK delegates.
    """
    if story.lowered is not None and story.lowered.target.artifact == "pte":
        data = story.lowered.artifact
    elif story.lowered is None and model.endswith(".pte"):
        data = read_bytes(Path(model))
    else:
        return story
    inside = story.lowered.program if story.lowered is not None else program
    plans = (*memory_plans(read_container(data)), *workspace_plans(inside))
    return replace(story, memory=plans)


def with_differences(story: Story, program: Program, method: str) -> Story:
    """Add the difference of each node from eager PyTorch to a story (the page's contents), on the
    inputs of `with_times`.
    """
    from stepwell.inspection.viewer.differences import differences
    from stepwell.loaders.artifacts import random_inputs

    assert story.lowered is not None
    inputs = random_inputs(story.lowered.artifact, method, 0)
    found = differences(program, story.lowered.program, inputs, method)
    return replace(story, differences=found)


def with_others(
    story: Story, program: Program, arguments: argparse.Namespace, options: dict[str, Any]
) -> Story:
    """Add weight statistics, the user's numbers and a second program to the page's contents."""
    shown = story.lowered.program if story.lowered is not None else program
    story = replace(story, numbers=weight_numbers(shown))
    story = replace(story, overlays={path.name: read_overlay(path) for path in arguments.overlay})
    if not arguments.beside:
        return story
    other = opened(arguments.beside, arguments)
    second = other.program
    if arguments.target:
        with waiting(f"lowering {arguments.beside}"):
            second = lower(second, arguments.target, **options).program
    return with_beside(story, second, other.name)


def with_times(story: Story, method: str) -> Story:
    """Add the time of each op, measured on random inputs, to a story (the page's contents).

    Raises:
        StepwellError: the target's engine has no profiler.
    """
    from stepwell.loaders.artifacts import random_inputs

    lowered = story.lowered
    assert lowered is not None
    record = lowered.to_etrecord(method)  # Reject other targets before their artifact is read.
    inputs = random_inputs(lowered.artifact, method, 0)
    profile = lowered.profile(*inputs, method=method, record=record)
    times = {
        node.name: sum(event.milliseconds / len(event.nodes) for event in events)
        for node, events in profile.by_node.items()
        if node is not None
    }
    added = sum(event.milliseconds for event in profile.by_node.get(None, ()))
    return replace(story, latency=profile.milliseconds / 1e3, times=times, added=added)
