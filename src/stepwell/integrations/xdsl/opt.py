"""`stepwell opt`: the `mlir-opt` of stepwell, xDSL's driver with our text, verifier and passes.

    stepwell opt model.mlir -p 'merge-views,lift-constant-scalar{protect_attention=false}'
    stepwell opt tests.mlir --split-input-file --verify-diagnostics
    stepwell opt model.mlir -p lower-to-xnnpack --mlir-print-ir-after-change --time-passes
    stepwell opt repro.mlir

The text contains small constants. Larger constants are keys of the weights file next to the
`.mlir`. If this file is missing, passes see only types, and a rewrite that depends on elements
refuses. A reproducer (`stepwell.validation.reducer.reproducer`) names the pass to run in its
header.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import IO, Any

from xdsl.context import Context
from xdsl.dialects import get_all_dialects
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass
from xdsl.transforms import get_all_passes
from xdsl.universe import Universe
from xdsl.xdsl_opt_main import xDSLOptMain

from stepwell.dialects import make_known
from stepwell.integrations.xdsl.opt_diagnostics import (
    Diagnostic,
    expectations,
    line_of,
    shown,
    unmet,
)
from stepwell.ir.context import statistics_lines
from stepwell.ir.diagnostics import (
    ParseFailure,
    Problem,
    StepwellError,
    VerificationError,
    first_line,
)
from stepwell.ir.extensions import extension
from stepwell.ir.levels import LEVEL, level_of
from stepwell.ir.platform.files import write_atomically
from stepwell.ir.program import Program
from stepwell.ir.rewriting.failures import REPRODUCER, StepFailure
from stepwell.ir.rewriting.rewrite import History, Pass, Step
from stepwell.ir.syntax.inline_values import LIMIT, take_values, too_large, with_values
from stepwell.ir.syntax.storage import pack_tensors, unpack_tensors, weights_path
from stepwell.ir.syntax.text import ask_for_more, parse_module, to_text
from stepwell.ir.verification import find_problems
from stepwell.ir.weights import WeightStore
from stepwell.pipelines.pass_pipeline.named_passes import (
    Passes,
    PipelinePass,
    StepPass,
    all_passes,
    given_to,
    history_of,
    statistics_of,
    weights_of,
)
from stepwell.pipelines.pass_pipeline.pass_text import parse_passes
from stepwell.plugins.plugins import load_entry_points, load_plugin

_DUMPS = {"before-all": "before every pass", "after-all": "after every pass",
          "after-change": "after each pass that changes it",
          "after-failure": "after a pass that fails"}  # fmt: skip
_ALIASES = {
    "--mlir-print-debuginfo": "print_debuginfo",
    "--mlir-print-op-generic": "print_op_generic",
    "--mlir-timing": "time_passes",
    "--mlir-pass-statistics": "stats",
    "--pass-pipeline": "passes",
}
"""MLIR's names of options that xDSL's driver has under other names."""


@dataclasses.dataclass
class Chunk:
    """A program of an input of `opt`: its text, its number and the position of its first line."""

    text: str
    number: int | None
    offset: int


class OptMain(xDSLOptMain):
    """The driver of `stepwell opt`: xDSL's, with stepwell's levels and passes. Plain xDSL passes
    (`cse`, `dce`) work too.

    Args:
        add_arguments: adds further arguments to the parser.
        args: the command line, without the program's name.
    """

    def __init__(
        self, add_arguments: Callable[[argparse.ArgumentParser], None], args: Sequence[str]
    ) -> None:
        self.add_arguments = add_arguments
        super().__init__(args=args)

    def register_all_dialects(self) -> None:
        """Register the names of stepwell's and xDSL's dialects; the parser loads them on use."""
        make_known()
        ask_for_more(load_entry_points)
        self.ctx = Context()

    def register_all_passes(self) -> None:
        """Register xDSL's and stepwell's passes with the driver."""
        self.available_passes = Passes(get_all_passes())
        self.available_passes["saturate-by-rules"] = partial(extension, "saturate-by-rules")

    def register_all_targets(self) -> None:
        """Register text output only, ours or MLIR's: `stepwell lower` writes artifacts."""
        self.available_targets["mlir"] = self._print
        for form in ("torch-mlir", "linalg"):
            self.available_targets[form] = partial(self._print_upstream, form)

    def register_all_frontends(self) -> None:
        """Register stepwell's text as an input format, which `read` parses."""
        self.available_frontends["mlir"] = lambda stream: ModuleOp([])

    def register_all_arguments(self, arg_parser: Any) -> None:
        """Add the arguments of xDSL's driver, some of them also under MLIR's names, and ours."""
        super().register_all_arguments(arg_parser)
        arg_parser.prog = "stepwell opt"
        arg_parser.add_argument(
            "--stats", action="store_true", help="print what each pass counted to standard error"
        )
        arg_parser.description = "Run passes on the text of a program: xDSL's driver with ours."
        for action in arg_parser._actions:
            if action.dest == "target":
                action.type = self._printed
            if action.dest == "passes":
                action.help = (
                    "passes in order: name{option=value}, or label(a,b) for rewrites driven "
                    "together; see --list-passes"
                )
            if action.dest == "verify_diagnostics":
                action.help = (
                    "match what is said with // expected-error {{…}} comments, as MLIR does; "
                    "without such a comment, print what the verifier says"
                )
            for alias, dest in _ALIASES.items():
                if action.dest == dest:
                    action.option_strings.append(alias)
                    arg_parser._option_string_actions[alias] = action
        self.add_arguments(arg_parser)
        arg_parser.add_argument(
            "--trust", action="store_true", help="load the files that a reproducer names"
        )
        arg_parser.add_argument(
            "--constants",
            type=int,
            default=LIMIT,
            metavar="N",
            help=f"write constants of at most N elements into the text ({LIMIT})",
        )
        for when, told in _DUMPS.items():
            arg_parser.add_argument(
                f"--mlir-print-ir-{when}", action="store_true", help=f"print the IR {told}"
            )
        for when in ("before", "after"):
            arg_parser.add_argument(
                f"--mlir-print-ir-{when}",
                action="append",
                default=[],
                metavar="PASS",
                help=f"print the IR {when} a pass",
            )
        arg_parser.add_argument(
            "--list-passes", action="store_true", help="print every pass with its options, and exit"
        )

    def _printed(self, asked: str) -> str:
        """Return the output format of `-t`, if opt can print it."""
        if asked.partition("{")[0] not in self.available_targets:
            raise StepwellError(
                f"-t {asked}: opt prints only {', '.join(self.available_targets)}",
                help=f"stepwell lower FILE -t {asked} lowers a program to a target, stepwell "
                "emit writes its artifact; -p lower-to-… only runs the passes",
            )
        return asked

    def setup_pipeline(self) -> None:
        """Load the named plug-ins; passes are resolved after the text is parsed."""
        for file in getattr(self.args, "load", ()):
            load_plugin(file)

    @property
    def name(self) -> str:
        """The name of the input in messages."""
        input_file = self.args.input_file
        return "<stdin>" if input_file in (None, "-") else Path(input_file).name

    def chunks(self, text: str) -> Iterator[Chunk]:
        """Split the input text into its separate programs."""
        if not self.args.split_input_file:
            yield Chunk(text, None, 0)
            return
        offset = 0
        for number, part in enumerate(text.split("// -----"), 1):
            yield Chunk(part, number, offset)
            offset += part.count("\n")

    def read(self, chunk: Chunk) -> ModuleOp:
        """Parse a chunk, with the constants in its text and in the weights file next to it."""
        module = parse_module(
            "\n" * chunk.offset + chunk.text,
            name=self.name,
            allow_unregistered=self.args.allow_unregistered_dialect,
            locate=True,
            others=get_all_dialects(),
        )
        store = WeightStore()
        if self.args.input_file not in (None, "-"):
            beside = weights_path(Path(self.args.input_file))
            if beside.exists():
                for key, tensor in unpack_tensors(beside).items():
                    store.add(key, tensor)
        take_values(module, store)
        given_to(module, store)
        return module

    def passes(self, text: str) -> tuple[ModulePass, ...]:
        """Return the passes to run: those of the command line, else a reproducer's."""
        return parse_passes(text, self.available_passes)

    def run_passes(self, module: ModuleOp, passes: Sequence[ModulePass]) -> None:
        """Apply passes in order, with verification, printing and timing around them.

        Raises:
            StepwellError: a pass produced an invalid program; `at` is the pass's number.
        """
        came_at = level_of(module)
        self._verify(module, whole=not passes and LEVEL in module.attributes)
        for at, one in enumerate(passes):
            dump_before = self.args.mlir_print_ir_before
            if self.args.mlir_print_ir_before_all or one.name in dump_before:
                self._dump(module, "Before", one)
            before = self._text(module) if self.args.mlir_print_ir_after_change else ""
            started = time.perf_counter()
            if one.name.startswith(("apply-pdl", "apply-eqsat-pdl")):  # They parse patterns.
                for name, make in Universe.get_multiverse().all_dialects.items():
                    if name not in self.ctx.registered_dialect_names:
                        self.ctx.register_dialect(name, make)
            try:
                one.apply(self.ctx, module)
                if self.args.time_passes:
                    took = time.perf_counter() - started
                    print(f"{one.name}: {took * 1e3:.2f} ms", file=sys.stderr)
                is_done = at == len(passes) - 1 and LEVEL in module.attributes
                self._verify(module, whole=is_done and level_of(module) != came_at)
            except StepwellError as error:
                if self.args.mlir_print_ir_after_failure:
                    self._dump(module, "After", one, " Failed")
                if isinstance(error, StepFailure):
                    error.at = at
                raise
            except Exception as error:
                reason = f"{type(error).__name__}: {first_line(error)}"
                raise StepwellError(f"pass {one.name} fails: {reason}") from error
            changed = bool(before) and before != self._text(module)
            if (
                self.args.mlir_print_ir_after_all
                or changed
                or (one.name in self.args.mlir_print_ir_after)
            ):
                self._dump(module, "After", one)
            if self.args.print_between_passes and at < len(passes) - 1:
                print(f"// IR after {one.name}:\n{self._text(module)}\n")

    def _verify(self, module: ModuleOp, whole: bool) -> None:
        if not self.args.disable_verify:
            check_module(module, whole)

    def _dump(self, module: ModuleOp, when: str, by: ModulePass, more: str = "") -> None:
        head = f"// -----// IR Dump {when} {type(by).__name__}{more} ({by.name}) //----- //"
        print(f"{head}\n{self._text(module)}\n", file=sys.stderr)

    def _print(self, module: ModuleOp, stream: IO[str]) -> None:
        stream.write(self._text(module) + "\n")

    def _print_upstream(self, form: str, module: ModuleOp, stream: IO[str]) -> None:
        program = Program(module, weights_of(module))
        stream.write(program.raise_to("aten").render(form))

    def _text(self, module: ModuleOp) -> str:
        shown = with_values(module, weights_of(module), self.args.constants)
        return to_text(
            shown, locations=self.args.print_debuginfo, generic=self.args.print_op_generic
        )


def check_module(module: ModuleOp, whole: bool = True) -> None:
    """Verify a parsed module.

    Args:
        module: any module; one without methods may contain anything.
        whole: whether every op must also belong to the level that the module states. Between
            passes, and in a text that states no level, a program may mix ops of two levels.
    """
    if problems := list(find_problems(module, membership=whole)):
        raise VerificationError(problems)


def opt(
    arguments: Sequence[str],
    add_arguments: Callable[[argparse.ArgumentParser], None] = lambda parser: None,
) -> int:
    """Run the driver; returns the exit code.

    Each piece of a split input is a separate program. With `--verify-diagnostics`, diagnostics are
    matched against the comments that expect them. In an input without such a comment, the
    diagnostics of the verifier (with `--parsing-diagnostics`, of the parser) are printed and count
    as success.
    """
    main = OptMain(add_arguments, arguments)
    if main.args.list_passes:
        for name, factory in sorted({**get_all_passes(), **all_passes()}.items()):
            print(_describe(name, factory()))
        return 0
    text = _input(main)
    asked = _Asked.of(main, text)
    wanted = expectations(text) if main.args.verify_diagnostics else []
    pieces: list[str] = []
    modules: list[ModuleOp] = []
    failures: list[Problem] = []
    diagnostics: list[Diagnostic] = []
    chunks = list(main.chunks(text))
    for chunk in chunks:
        try:
            module = asked.run(main, chunk)
            diagnostics += _remarks(module, main.name)
            if main.args.stats:
                print("\n".join(statistics_lines(statistics_of(module))), file=sys.stderr)
            modules.append(module)
            pieces.append(main.output_resulting_program(module))
        except StepwellError as error:
            diagnostics += [Diagnostic("error", line_of(p, main.name), p) for p in error.problems]
            expected = (main.args.verify_diagnostics and isinstance(error, VerificationError)) or (
                main.args.parsing_diagnostics and isinstance(error, ParseFailure)
            )
            clear = [shown(p, text, main.name, chunk.number) for p in error.problems]
            pieces.append(f"{StepwellError(clear)}\n" if expected and not wanted else "")
            failures += () if expected else clear
            if isinstance(error, StepFailure) and not wanted:
                error.problems = tuple(clear)
                error.args = (str(error),)
                if len(chunks) == 1:
                    raise
    if wanted:
        failures = [shown(p, text, main.name, None) for p in unmet(wanted, diagnostics, main.name)]
    output = "// -----\n".join(pieces)
    if failures:
        if len(chunks) > 1 and not wanted:
            sys.stdout.write(output)
        raise StepwellError(failures)
    _write(main, output, modules)
    return 0


@dataclasses.dataclass(frozen=True)
class _Asked:
    """The passes to run: those of the command line, or the pass of a reproducer."""

    passes: tuple[ModulePass, ...]
    is_replay: bool
    context: Any = None

    @classmethod
    def of(cls, main: OptMain, text: str) -> _Asked:
        if main.args.passes or not text.startswith(REPRODUCER):
            return cls(main.passes(main.args.passes), False)
        from stepwell.validation.reducer.reproducer import Header, load_for

        header = Header.read(text)
        if header is None:
            return cls((), False)
        load_for(header, main.args.trust)
        header.steps()
        return cls(main.passes(header.step), True, header.lowering())

    def run(self, main: OptMain, chunk: Chunk) -> ModuleOp:
        """Apply the passes to the module of a chunk."""
        module = main.read(chunk)
        given_to(module, weights_of(module), self.context)
        try:
            main.run_passes(module, self.passes)
        except (StepFailure, VerificationError) as error:
            if main.args.disable_verify:
                raise
            raise self._explained(main, chunk, error) from error
        return module

    def _explained(self, main: OptMain, chunk: Chunk, error: StepwellError) -> StepwellError:
        """Return the error with its cause, and with a reproducer if a pass failed."""
        steps: list[Step] = []
        for at, one in enumerate(self.passes):
            if isinstance(error, StepFailure) and error.at == at:
                error.at = len(steps)
            steps += _steps_of(one, main.ctx)

        def make() -> Program:
            module = main.read(chunk)
            return Program(module, weights_of(module))

        try:
            check_module(main.read(chunk), whole=False)
        except VerificationError:
            return error  # It came so.
        return extension("reproduce-failure")(make, steps, error, reproduce=not self.is_replay)


@dataclasses.dataclass(frozen=True)
class _OfXdsl(Pass):
    """A pass of xDSL, wrapped as a pass of stepwell."""

    held: ModulePass
    ctx: Context
    name = "pass-of-xdsl"

    def apply(self, program: Program, history: History) -> int:
        self.held.apply(self.ctx, program.module)
        return 1


def _steps_of(one: ModulePass, ctx: Context) -> Sequence[Step]:
    if isinstance(one, StepPass):
        return (one.step,)
    return one.pipeline.steps if isinstance(one, PipelinePass) else (_OfXdsl(one, ctx),)


def _input(main: OptMain) -> str:
    try:
        if main.args.input_file in (None, "-"):
            data = sys.stdin.buffer.read()
        else:
            path = Path(main.args.input_file)
            if path.suffix != ".mlir" and main.args.frontend != "mlir":
                fact = f"Unrecognized file extension '{path.suffix.lstrip('.')}'"
                raise StepwellError(fact, help="opt reads .mlir text")
            data = path.read_bytes()
    except OSError as error:
        raise StepwellError(f"cannot read {error.filename}: {error.strerror}") from None
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise ParseFailure("the text is not UTF-8", f"byte {error.start}") from None


def _remarks(module: ModuleOp, name: str) -> list[Diagnostic]:
    """Return the reasons why rewrites of the passes did not apply, as MLIR remarks."""
    diagnostics: list[Diagnostic] = []
    for refusal in history_of(module).refusals.values():
        problem = Problem(f"{refusal.op}: {refusal.rewrite}: {refusal.reason}", refusal.where)
        diagnostics.append(Diagnostic("remark", line_of(problem, name), problem))
    return diagnostics


def _write(main: OptMain, text: str, modules: Sequence[ModuleOp]) -> None:
    """Write the output; a file must contain all constants, so that it can be read again."""
    if main.args.output_file is None:
        sys.stdout.write(text)
        return
    path = Path(main.args.output_file)
    tensors: dict[str, Any] = {}
    for module in modules:
        store = weights_of(module)
        for key in sorted(too_large(module, store, main.args.constants)):
            tensor = store.get(key)
            if key in tensors and not tensors[key].equal(tensor):
                raise StepwellError(
                    f"two programs have different constants named {key!r}",
                    help="--constants N with a larger N writes them into the text",
                )
            tensors[key] = tensor
    if tensors:
        write_atomically(weights_path(path), pack_tensors(tensors))
    write_atomically(path, text.encode())


def _describe(name: str, cls: type[ModulePass]) -> str:
    options = ", ".join(f"{f.name}={_default(f)}" for f in dataclasses.fields(cls))
    lines = (cls.__doc__ or "").strip().splitlines()
    first = lines[0] if lines and not lines[0].startswith(cls.__name__ + "(") else ""
    return f"{name}{'{' + options + '}' if options else ''}\n    {first}"


def _default(field: dataclasses.Field[Any]) -> str:
    value = field.default
    return "…" if value is dataclasses.MISSING else str(value).lower()
