"""The command line: `stepwell lower | emit | show | explain | check | opt | run | demo`.

A `StepwellError` is printed without a traceback.
"""

from __future__ import annotations

import argparse
import importlib
import io
import logging
import sys
import warnings
from collections.abc import Callable, Sequence
from contextlib import nullcontext, redirect_stdout, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import stepwell
from stepwell.cli.arguments import inspection, lowering
from stepwell.cli.arguments.common import add_load
from stepwell.cli.terminal.completing import complete
from stepwell.cli.terminal.outcome import Outcome, add_json, json_of, told
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.platform.files import as_path, require_place, write_atomically
from stepwell.ir.rewriting.failures import REPRODUCER, StepFailure

if TYPE_CHECKING:
    from stepwell.validation.reducer.reproducer import Reproducer


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; return the exit code: 0, 1 after a reported error, 130 after Ctrl-C.

    Invalid arguments end the process with 2.
    """
    _quieten_others()
    given = list(sys.argv[1:] if argv is None else argv)
    name, json = given[0] if given else "", None
    try:
        name, json, act = _asked(given)
        with redirect_stdout(io.StringIO()) if json == OUTPUT else nullcontext():
            outcome = act()
        _write_json(json, told(name, outcome))
        return outcome.code
    except StepwellError as error:
        print(f"error: {error}", file=sys.stderr)
        if error.__cause__ is not None and {"-v", "--verbose"} & set(given):
            notes = getattr(error.__cause__, "__notes__", ())
            print("\n".join(("", str(error.__cause__), *notes)), file=sys.stderr)
        if isinstance(error, StepFailure) and error.reproducer is not None:
            _write_reproducer(error.reproducer)
        with suppress(StepwellError):  # The file itself may be the one that cannot be written.
            _write_json(json, told(name, error))
        return 1
    except BrokenPipeError:
        return 0
    except KeyboardInterrupt:
        return 130  # as shells report an interrupt


OUTPUT = "-"
"""The value of `--json` for the standard output."""


def _asked(given: list[str]) -> tuple[str, str | None, Callable[[], Outcome]]:
    """Return the command's name, the path of its JSON outcome, and a function that runs it."""
    if given[:1] == ["opt"]:  # xDSL's driver parses its arguments.
        return "opt", json_of(given), lambda: _runner("opt")(given[1:])
    parser = _parser()
    complete(parser)
    arguments = parser.parse_args(given)

    def act() -> Outcome:
        _require_places(arguments)
        for file in arguments.load:
            stepwell.load_plugin(file)
        return _runner(arguments.name)(arguments)

    return arguments.name, arguments.json, act


WRITTEN = """html dot model_explorer script junit table rules resume save tune store
certify emit_ir""".split()
"""The arguments of commands that name a file to write; `output` may be a folder."""


def _require_places(arguments: argparse.Namespace) -> None:
    """Check where files are written before the work, which may take long.

    Raises:
        StepwellError: a path is a folder, or its folder does not exist.
    """
    for path in [getattr(arguments, name, None) for name in WRITTEN]:
        if isinstance(path, Path):  # `prove` has rules of another kind.
            require_place(path)
    if arguments.json not in (None, OUTPUT):
        require_place(as_path(arguments.json))


def _runner(name: str) -> Callable[[Any], Outcome]:
    """Import the module of a command, and return its function `run`."""
    return importlib.import_module(f"stepwell.cli.commands.{name.replace('-', '_')}").run


def _write_json(file: str | None, text: str) -> None:
    if file == OUTPUT:
        print(text)
    elif file is not None:
        write_atomically(as_path(file), text.encode())


def _write_reproducer(reproducer: Reproducer) -> None:
    """Write `repro.mlir` in the current folder; overwrite only an older reproducer."""
    names = ("repro.mlir", *(f"repro-{number}.mlir" for number in range(2, 100)))
    free = (Path(n) for n in names if not Path(n).exists() or _begins(Path(n), REPRODUCER))
    path = next(free, None)
    if path is None:
        return
    try:
        reproducer.save(path)
    except StepwellError as error:
        print(f"  no reproducer was written: {error}", file=sys.stderr)
        return
    replay = reproducer.command(path)
    print(f"  {path} holds the program and the one step: {replay}", file=sys.stderr)
    print(f"  smaller: {replay.replace(' opt ', ' reduce ', 1)}", file=sys.stderr)


def _begins(path: Path, text: str) -> bool:
    with path.open("rb") as file:
        return file.read(len(text)) == text.encode()


def _quieten_others() -> None:
    """Suppress messages of torch and torchao on import that do not concern the model."""
    for name in ("torchao", "torch.utils._pytree"):
        logging.getLogger(name).setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", category=SyntaxWarning, module=r".*\btorchao\b")
    for said in (
        "`isinstance.treespec, LeafSpec.` is deprecated",
        "_check_is_size will be removed",
    ):
        warnings.filterwarnings("ignore", said)


class _Version(argparse.Action):
    """An argparse action that prints the version, which is looked up on demand."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str) -> None:
        super().__init__(option_strings, dest, nargs=0, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        print(stepwell.__version__)
        parser.exit()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="stepwell",
        description="A multi-level IR for ExecuTorch: lower a program, and raise it again.",
        epilog="exit codes: 0 done, 1 an error or a difference that was reported, 2 bad arguments, "
        "130 interrupted",
    )
    parser.add_argument("--version", action=_Version, help="show the version and exit")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    for name, (add_arguments, help) in COMMANDS.items():
        if add_arguments is None:
            commands.add_parser(name, help=help)
            continue
        command = commands.add_parser(name, help=help, description=help)
        command.set_defaults(name=name)
        add_load(command)
        add_json(command)
        add_arguments(command)
    return parser


COMMANDS: dict[str, tuple[Callable[[argparse.ArgumentParser], None] | None, str]] = {
    "lower": (lowering.lower, "lower a model to a target, write the artifact"),
    "emit": (lowering.emit, "write a program at any level as an artifact"),
    "show": (inspection.show, "a model or an artifact as text, tables, page, graph"),
    "explain": (inspection.explain, "what each op of a model was lowered to, and why"),
    "check": (inspection.check, "compare before and after every pass"),
    "validate": (inspection.validate, "is an artifact of any flow right? else, what is wrong"),
    "accuracy": (lowering.accuracy, "which stage and layer lose accuracy, and why"),
    "budget": (lowering.budget, "compare programs with a committed file of figures"),
    "prove": (inspection.prove, "prove rules by a solver"),
    "discover": (inspection.discover, "enumerate terms, find rules that nobody wrote"),
    "verify-certificate": (inspection.verify_certificate, "verify a lowering's certificate"),
    "replay": (lowering.replay, "compare two commits on a set of programs"),
    "sweep": (lowering.sweep, "lower many models to many targets"),
    "opt": (None, "run passes on a text: name{option=value},…; --list-passes lists them"),
    "reduce": (inspection.reduce, "reduce a reproducer of a failing pass"),
    "play": (inspection.play, "try rewrites and passes on a local page"),
    "env": (lambda _: None, "say what is installed, and which parts of stepwell work with it"),
    "plugins": (lambda _: None, "list plug-ins, their registrations and failures"),
    "run": (inspection.run, "run an artifact on its engine, on random inputs"),
    "demo": (lowering.demo, "lower DeiT-Tiny, run it, compare with PyTorch"),
}
"""Each command: a function that adds its arguments, and a description."""
