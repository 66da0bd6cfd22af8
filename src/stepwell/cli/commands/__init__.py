"""Commands of the command line, one module each: `add_arguments(parser)` and `run(arguments)`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stepwell.cli.terminal.completing import completed_by, quantizers, targets

if TYPE_CHECKING:
    from stepwell.ir.rewriting.pipeline import Pipeline
    from stepwell.targets.target import PipelineLike


def add_model(parser: argparse.ArgumentParser) -> None:
    """The argument `MODEL`, as every command that takes one says it."""
    parser.add_argument("model", help=".pt2, .mlir, .gguf, file.py:callable, transformers folder")
    add_model_options(parser)


def add_model_options(parser: argparse.ArgumentParser) -> None:
    """What may be said of how a `MODEL` is opened."""
    parser.add_argument(
        "-v",
        "--verbose",
        action="store_true",
        help="every step and every refusal with its place; all that torch says of a failed export",
    )
    parser.add_argument("--trust", action="store_true", help="unpickle a .pt2's sample inputs")
    quantize = parser.add_argument(
        "--quantize", metavar="NAME", help="quantize the module of a file.py:callable first"
    )
    completed_by(quantize, quantizers)


def add_language(parser: argparse.ArgumentParser) -> None:
    """What may be said of how a language model of transformers is exported."""
    group = parser.add_argument_group("language models", "where MODEL is a folder of transformers")
    group.add_argument("--context", type=int, metavar="TOKENS", help="of a conversation (2048)")
    group.add_argument(
        "--attention",
        choices=("custom", "torch"),
        help="ExecuTorch's operators, or the model's own (by default the first that fits it)",
    )
    group.add_argument(
        "--cache",
        choices=("static", "dynamic"),
        help="inside the program (what is meant without this option), or given and given back",
    )
    group.add_argument(
        "--one-token", action="store_true", help="a token at a time, instead of any number"
    )
    group.add_argument("--logits", choices=("last", "all"), help="of which tokens (last)")
    group.add_argument(
        "--dtype", choices=("fp32", "fp16", "bf16"), help="to compute in (the folder's own)"
    )
    group.add_argument(
        "--cache-dtype",
        choices=("fp32", "fp16", "bf16"),
        help="of keys and values (what is computed in)",
    )
    group.add_argument(
        "--embedding", type=int, choices=(8, 4), help="bits of a number of the tokens' table"
    )
    group.add_argument("--group", type=int, metavar="N", help="weights that share a scale")
    group.add_argument("--batch", type=int, metavar="N", help="conversations side by side (1)")
    group.add_argument(
        "--methods",
        type=lambda said: tuple(said.split(",")),
        metavar="NAME,NAME",
        help="of prefill, decode (one token) and verify (all logits), instead of forward",
    )


def language_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """What was said of it."""
    names = "context attention cache cache_dtype logits dtype embedding group batch methods".split()
    said = {name: getattr(arguments, name) for name in names}
    values: dict[str, Any] = {name: value for name, value in said.items() if value is not None}
    return values | ({"any_length": False} if arguments.one_token else {})


def add_load(parser: argparse.ArgumentParser) -> None:
    """The option `--load FILE`, of every command."""
    parser.add_argument(
        "--load",
        action="append",
        default=[],
        type=Path,
        metavar="FILE",
        help="load a plug-in from a Python file, which is run (docs/plugins.md); several times",
    )


def add_target(parser: argparse.ArgumentParser, default: str | None = "xnnpack") -> None:
    """The option `-t TARGET`, its options, and what may be changed in its pipeline."""
    target = parser.add_argument(
        "-t",
        "--target",
        default=default,
        help=(
            "xnnpack (what is meant without this option), cortex-m55, tosa-1.0+fp, a plug-in's, ..."
            if default
            else "lower it first; --html then shows every step"
        ),
    )
    completed_by(target, targets)
    parser.add_argument(
        "-O",
        "--option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an option of the target, as in Python (docs/options.md); may stand several times",
    )
    group = parser.add_argument_group("the pipeline", "instead of the target's own, or changes")
    group.add_argument(
        "--pipeline", metavar="TEXT", help="normalize,my-rewrite,…, a name, or a file of these"
    )
    for kind, form, help in _EDITS:
        group.add_argument(
            f"--{kind}", action=_EditAction, dest="edits", metavar=form, default=[], help=help
        )


_EDITS = (
    (
        "after",
        "PATH=STEPS",
        "more steps behind a step, or rewrites within one (absorb/merge-linears)",
    ),
    ("before", "PATH=STEPS", "more steps ahead of one"),
    ("replace", "PATH=STEPS", "other steps in one's place"),
    ("without", "PATH,…", "leave steps out"),
    ("move", "PATH=PLACE", "a step, or a rewrite, directly ahead of another"),
)


class _EditAction(argparse.Action):
    """Keeps the edits in the order in which they stand."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option: str | None = None) -> None:
        assert option is not None
        namespace.edits = [*namespace.edits, (option.lstrip("-"), values)]


def options_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """What `-O` said, for the target that is named; and the pipeline, if one was described.

    Raises:
        StepwellError: the target, an option or a step is unknown.
    """
    from stepwell.targets.table import find_target

    chosen = find_target(arguments.target).read_options(arguments.option)
    changed = _changed_pipeline(arguments.pipeline, arguments.edits)
    return chosen if changed is None else {**chosen, "pipeline": changed}


def _changed_pipeline(text: str | None, edits: Sequence[tuple[Any, str]]) -> PipelineLike | None:
    """What `--pipeline` and the edits ask for; None if nothing does."""
    if not edits:
        return text
    from stepwell.pipelines.pass_pipeline.pipeline_text import Edit, parse_pipeline

    def change(own: Pipeline) -> Pipeline:
        changed = own if text is None else parse_pipeline(text, own)
        for kind, said in edits:
            changed = Edit.parse(kind, said).apply(changed)
        return changed

    return change
