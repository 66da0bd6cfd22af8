"""Arguments that several commands take."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from stepwell.cli.terminal.completing import completed_by, quantizers, targets


def add_model(parser: argparse.ArgumentParser) -> None:
    """Add the argument `MODEL`."""
    parser.add_argument("model", help=".pt2, .mlir, .gguf, file.py:callable, transformers folder")
    add_model_options(parser)


def add_model_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for opening a `MODEL`."""
    parser.add_argument(
        "-v",
        "--verbose",
        action="store_true",
        help="every pass and every refusal with its place; the full error of a failed export",
    )
    parser.add_argument("--trust", action="store_true", help="unpickle a .pt2's sample inputs")
    quantize = parser.add_argument(
        "--quantize", metavar="NAME", help="quantize the module of a file.py:callable first"
    )
    completed_by(quantize, quantizers)


def add_language(parser: argparse.ArgumentParser) -> None:
    """Add the options for exporting a language model of transformers."""
    group = parser.add_argument_group("language models", "where MODEL is a folder of transformers")
    group.add_argument("--context", type=int, metavar="TOKENS", help="length of the context (2048)")
    group.add_argument(
        "--attention",
        choices=("custom", "torch"),
        help="ExecuTorch's operators, or the model's own (by default the first that fits it)",
    )
    group.add_argument(
        "--cache",
        choices=("static", "dynamic"),
        help="inside the program (the default), or as inputs and outputs",
    )
    group.add_argument(
        "--one-token", action="store_true", help="one token at a time, instead of any number"
    )
    group.add_argument(
        "--logits", choices=("last", "all"), help="tokens to return logits for (last)"
    )
    group.add_argument(
        "--dtype",
        choices=("fp32", "fp16", "bf16"),
        help="dtype of the computation (the folder's own)",
    )
    group.add_argument(
        "--cache-dtype",
        choices=("fp32", "fp16", "bf16"),
        help="dtype of keys and values (that of the computation)",
    )
    group.add_argument(
        "--embedding", type=int, choices=(8, 4), help="bits of an element of the token embedding"
    )
    group.add_argument(
        "--group", type=int, metavar="N", help="number of weights that share a scale"
    )
    group.add_argument("--batch", type=int, metavar="N", help="number of sequences in a batch (1)")
    group.add_argument(
        "--methods",
        type=lambda said: tuple(said.split(",")),
        metavar="NAME,NAME",
        help="of prefill, decode (one token) and verify (all logits), instead of forward",
    )


def add_load(parser: argparse.ArgumentParser) -> None:
    """Add the option `--load FILE`, which every command has."""
    parser.add_argument(
        "--load",
        action="append",
        default=[],
        type=Path,
        metavar="FILE",
        help="execute a Python file as a plug-in (docs/plugins.md); may be repeated",
    )


def add_options(parser: argparse.ArgumentParser, help: str) -> None:
    """Add `-O`, an option of a target, which may be repeated."""
    parser.add_argument(
        "-O", "--option", action="append", default=[], metavar="NAME=VALUE", help=help
    )


def add_target(parser: argparse.ArgumentParser, default: str | None = "xnnpack") -> None:
    """Add the option `-t TARGET`, and those for target options and pipeline edits."""
    target = parser.add_argument(
        "-t",
        "--target",
        default=default,
        help=(
            "xnnpack (the default), cortex-m55, tosa-1.0+fp, a plug-in's, ..."
            if default
            else "lower it first; --html then shows every pass"
        ),
    )
    completed_by(target, targets)
    add_options(parser, "an option of the target, as in Python (docs/options.md); may be repeated")
    group = parser.add_argument_group("the pipeline", "replace the target's own, or edit it")
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
        "insert passes after a pass, or rewrites in a group (absorb/merge-linears)",
    ),
    ("before", "PATH=STEPS", "insert passes before a pass"),
    ("replace", "PATH=STEPS", "replace a pass by others"),
    ("without", "PATH,…", "remove passes"),
    ("move", "PATH=PLACE", "move a pass, or a rewrite, directly before another"),
)


class _EditAction(argparse.Action):
    """Collects the edits in the order of the command line."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option: str | None = None) -> None:
        assert option is not None
        namespace.edits = [*namespace.edits, (option.lstrip("-"), values)]
