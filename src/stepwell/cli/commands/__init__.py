"""The commands, one module each, with a function `run(arguments)`; a module is imported when its
command runs.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from stepwell.pipelines.pass_pipeline.pipeline_text import Edit, parse_pipeline
from stepwell.targets.table import find_target

if TYPE_CHECKING:
    from stepwell.ir.rewriting.pipeline import Pipeline
    from stepwell.targets.target import PipelineLike


def language_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the language-model options (`add_language`) that were set."""
    names = (
        "context attention cache cache_dtype chunk logits dtype embedding group batch methods"
    ).split()
    said = {name: getattr(arguments, name) for name in names}
    values: dict[str, Any] = {name: value for name, value in said.items() if value is not None}
    return values | ({"any_length": False} if arguments.one_token else {})


def options_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the `-O` options for the named target, and the pipeline, if one was given.

    Raises:
        StepwellError: the target, an option or a step is unknown.
    """
    chosen = find_target(arguments.target).read_options(arguments.option)
    changed = _changed_pipeline(arguments.pipeline, arguments.edits)
    return chosen if changed is None else {**chosen, "pipeline": changed}


def _changed_pipeline(text: str | None, edits: Sequence[tuple[Any, str]]) -> PipelineLike | None:
    """Return the pipeline that `--pipeline` and the edits (`--after`, …) select; else None."""
    if not edits:
        return text

    def change(own: Pipeline) -> Pipeline:
        changed = own if text is None else parse_pipeline(text, own)
        for kind, said in edits:
            changed = Edit.parse(kind, said).apply(changed)
        return changed

    return change
