"""Add the command-line arguments that several commands share."""

import argparse
from pathlib import Path
from typing import Any

from stepwell.cli.terminal.completing import completed_by, quantizers, targets

FLAG: dict[str, Any] = {"action": "store_true"}
SEVERAL: dict[str, Any] = {"action": "append", "default": []}
"""An option that may be repeated."""
FILE: dict[str, Any] = {"type": Path, "metavar": "FILE"}


def add_model(parser: argparse.ArgumentParser) -> None:
    """Add the positional argument `MODEL` to a command."""
    parser.add_argument("model", help=".pt2, .mlir, .gguf, file.py:callable, transformers folder")
    add_model_options(parser)


def add_model_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for opening a `MODEL`."""
    add = parser.add_argument
    add(
        "-v",
        "--verbose",
        **FLAG,
        help="every pass and every refusal with its place; the full error of a failed export",
    )
    add("--trust", **FLAG, help="unpickle a .pt2's sample inputs")
    completed_by(
        add(
            "--quantize",
            metavar="NAME",
            help="quantize a file.py:callable first; int8: for the target; NAME,POINT=BITS: a "
            "mixture, as accuracy prints it",
        ),
        quantizers,
    )
    add(
        "--data",
        metavar="FILE",
        help="calibrate --quantize on these inputs: file.py:callable that returns them, each a "
        "tensor or a tuple, or a .npz with an array of samples for each input",
    )


def add_language(parser: argparse.ArgumentParser) -> None:
    """Add the options for exporting a language model of transformers."""
    group = parser.add_argument_group("language models", "where MODEL is a folder of transformers")
    add = group.add_argument
    add("--context", type=int, metavar="TOKENS", help="length of the context (2048)")
    add(
        "--attention",
        choices=("custom", "torch"),
        help="ExecuTorch's operators, or the model's own (by default the first that fits it)",
    )
    add(
        "--cache",
        choices=("static", "dynamic"),
        help="inside the program (the default), or as inputs and outputs",
    )
    add("--one-token", **FLAG, help="one token at a time, instead of any number")
    add(
        "--chunk",
        type=int,
        metavar="TOKENS",
        help="the most tokens of a call (the context; 64 for delta rules and state spaces)",
    )
    add("--logits", choices=("last", "all"), help="tokens to return logits for (last)")
    add(
        "--dtype",
        choices=("fp32", "fp16", "bf16"),
        help="dtype of the computation (the folder's own)",
    )
    add(
        "--cache-dtype",
        choices=("fp32", "fp16", "bf16"),
        help="dtype of keys and values (that of the computation)",
    )
    add("--embedding", type=int, choices=(8, 4), help="bits of an element of the token embedding")
    add("--group", type=int, metavar="N", help="number of weights that share a scale")
    add("--batch", type=int, metavar="N", help="number of sequences in a batch (1)")
    add(
        "--methods",
        type=lambda said: tuple(said.split(",")),
        metavar="NAME,NAME",
        help="of prefill, decode (one token) and verify (all logits), instead of forward",
    )


def add_load(parser: argparse.ArgumentParser) -> None:
    """Add the option `--load FILE`, which every command has."""
    parser.add_argument(
        "--load",
        **SEVERAL,
        **FILE,
        help="execute a Python file as a plug-in (docs/plugins.md); may be repeated",
    )


def add_options(parser: argparse.ArgumentParser, help: str) -> None:
    """Add `-O NAME=VALUE` to a parser: an option of the target, which may be repeated."""
    parser.add_argument("-O", "--option", **SEVERAL, metavar="NAME=VALUE", help=help)


def add_target(parser: argparse.ArgumentParser, default: str | None = "xnnpack") -> None:
    """Add the option `-t TARGET`, and those for target options and pipeline edits."""
    completed_by(
        parser.add_argument(
            "-t",
            "--target",
            default=default,
            help="xnnpack (the default), cortex-m55, c-rv32imc, tosa-1.0+fp, a plug-in's, ..."
            if default
            else "lower it first; --html then shows every pass",
        ),
        targets,
    )
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
    """An argparse action that collects edits of a pipeline (`--after`, …) in the order given."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option: str | None = None) -> None:
        assert option is not None
        namespace.edits = [*namespace.edits, (option.lstrip("-"), values)]
