"""The command line: `stepwell lower | emit | show | explain | check | opt | run | demo`.

A `StepwellError` is printed without a traceback.
"""

from __future__ import annotations

import argparse
import io
import logging
import sys
import warnings
from collections.abc import Callable, Sequence
from contextlib import nullcontext, redirect_stdout, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stepwell.cli.commands import (
    accuracy,
    add_load,
    budget,
    check,
    demo,
    explain,
    lower,
    opt,
    play,
    plugins,
    prove,
    reduce,
    replay,
    run,
    show,
    sweep,
    verify_certificate,
)
from stepwell.cli.terminal.completing import complete
from stepwell.cli.terminal.outcome import Outcome, add_json, told
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.rewriting.failures import StepFailure

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
    if given[:1] == [opt.NAME]:
        return opt.NAME, opt.json_of(given), lambda: opt.run(given[1:])
    parser = _parser()
    complete(parser)
    arguments = parser.parse_args(given)
    command: Callable[[argparse.Namespace], Outcome] = arguments.command

    def act() -> Outcome:
        if arguments.load:
            from stepwell.plugins.plugins import load_plugin

            for file in arguments.load:
                load_plugin(file)
        return command(arguments)

    return arguments.name, arguments.json, act


def _write_json(file: str | None, text: str) -> None:
    if file == OUTPUT:
        print(text)
    elif file is not None:
        from stepwell.ir.platform.files import as_path, write_atomically

        write_atomically(as_path(file), text.encode())


def _write_reproducer(reproducer: Reproducer) -> None:
    """Write `repro.mlir` in the current folder; overwrite only an older reproducer."""
    from stepwell.validation.reducer.reproducer import HEADER

    names = ("repro.mlir", *(f"repro-{number}.mlir" for number in range(2, 100)))
    free = (Path(n) for n in names if not Path(n).exists() or _begins(Path(n), HEADER))
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
    """Print the version, which is looked up on demand."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str) -> None:
        super().__init__(option_strings, dest, nargs=0, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from stepwell import __version__

        print(__version__)
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

    def add(name: str, act: Callable[[argparse.Namespace], Outcome], help: str) -> Any:
        command = commands.add_parser(name, help=help, description=help)
        command.set_defaults(command=act, name=name)
        add_load(command)
        add_json(command)
        return command

    lower.add_arguments(add("lower", lower.run, "lower a model to a target, write the artifact"))
    lower.add_emit_arguments(add("emit", lower.emit, "write a program at any level as an artifact"))
    show.add_arguments(add("show", show.run, "a model or an artifact as text, tables, page, graph"))
    explain.add_arguments(
        add("explain", explain.run, "what each op of a model was lowered to, and why")
    )
    check.add_arguments(add("check", check.run, "compare before and after every pass"))
    accuracy.add_arguments(
        add("accuracy", accuracy.run, "which stage and layer lose accuracy, and why")
    )
    budget.add_arguments(
        add("budget", budget.run, "compare programs with a committed file of figures")
    )
    prove.add_arguments(add("prove", prove.run, "prove rules by a solver"))
    verify_certificate.add_arguments(
        add("verify-certificate", verify_certificate.run, "verify a lowering's certificate")
    )
    replay.add_arguments(add("replay", replay.run, "compare two commits on a set of programs"))
    sweep.add_arguments(add("sweep", sweep.run, "lower many models to many targets"))
    commands.add_parser(opt.NAME, help=opt.HELP)
    reduce.add_arguments(add("reduce", reduce.run, "reduce a reproducer of a failing pass"))
    play.add_arguments(add("play", play.run, "try rewrites and passes on a local page"))
    add("plugins", plugins.run, "list plug-ins, their registrations and failures")

    run.add_arguments(add("run", run.run, "run an artifact on its engine, on random inputs"))

    demo.add_arguments(add("demo", demo.run, "lower DeiT-Tiny, run it, compare with PyTorch"))
    return parser
