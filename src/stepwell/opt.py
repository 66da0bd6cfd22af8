"""`stepwell opt`: the mlir-opt of this stack, xDSL's driver with our text, verifier and passes.

    stepwell opt model.mlir -p 'merge-views,lift-constant-scalar{protect_attention=false}'
    stepwell opt tests.mlir --split-input-file --verify-diagnostics
    stepwell opt model.mlir -p lower-to-xnnpack --print-between-passes --time-passes

The weights beside a `.mlir` are read if they are there; otherwise passes see their types alone, and
a rewrite that depends on an element refuses.
"""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass, PassPipeline
from xdsl.transforms import get_all_passes
from xdsl.utils.exceptions import ArgSpecParseError
from xdsl.xdsl_opt_main import xDSLOptMain

from stepwell.commands import add_load
from stepwell.dialects import make_known
from stepwell.ir.diagnostics import ParseFailure, Problem, StepwellError, VerificationError
from stepwell.ir.files import write_atomically
from stepwell.ir.levels import level_of
from stepwell.ir.storage import unpack_tensors, weights_path
from stepwell.ir.text import ask_for_more, parse_module, to_text
from stepwell.ir.verification import find_problems
from stepwell.ir.weights import WeightStore
from stepwell.plugins import load_entry_points, load_plugin
from stepwell.steps import Passes, all_passes, use_weights


class OptMain(xDSLOptMain):
    """xDSL's driver over stepwell's levels. Plain xDSL passes (`cse`, `dce`) work too."""

    def register_all_dialects(self) -> None:
        """The text parser finds dialects by itself, once they are known."""
        make_known()
        ask_for_more(load_entry_points)
        self.ctx = Context()

    def register_all_passes(self) -> None:
        """Passes of xDSL, and ours."""
        self.available_passes = Passes(get_all_passes())

    def register_all_targets(self) -> None:
        """Text only: artefacts are what `stepwell lower` is for."""
        self.available_targets["mlir"] = self._print

    def register_all_frontends(self) -> None:
        """Our text."""
        self.available_frontends["mlir"] = self._parse

    def register_all_arguments(self, arg_parser: Any) -> None:
        """The arguments of xDSL's driver, and a list of passes."""
        super().register_all_arguments(arg_parser)
        arg_parser.prog = "stepwell opt"
        arg_parser.description = "Run passes on the text of a program: xDSL's driver with ours."
        for action in arg_parser._actions:
            if action.dest == "passes":
                action.help = "passes in order, with options: name{option=value}; see --list-passes"
        add_load(arg_parser)
        arg_parser.add_argument(
            "--list-passes", action="store_true", help="print every pass with its options, and exit"
        )

    def _parse(self, stream: IO[bytes]) -> ModuleOp:
        try:
            text = stream.read().decode()
        except UnicodeDecodeError as error:
            raise ParseFailure("the text is not UTF-8", f"byte {error.start}") from None
        module = parse_module(
            text,
            name=self.get_input_name(),
            allow_unregistered=self.args.allow_unregistered_dialect,
        )
        if self.args.input_file is not None:
            beside = weights_path(Path(self.args.input_file))
            if beside.exists():
                store = WeightStore()
                for key, tensor in unpack_tensors(beside).items():
                    store.add(key, tensor)
                use_weights(module, store)
        return module

    def _print(self, module: ModuleOp, stream: IO[str]) -> None:
        stream.write(self._text(module) + "\n")

    def _text(self, module: ModuleOp) -> str:
        return to_text(
            module,
            locations=self.args.print_debuginfo,
            generic=self.args.print_op_generic,
        )

    def setup_pipeline(self) -> None:
        """Passes with verification, printing and timing between them."""
        for file in self.args.load:
            load_plugin(file)
        started, came_at = time.perf_counter(), ""

        def between(
            previous: ModulePass | None, module: ModuleOp, following: ModulePass | None
        ) -> None:
            nonlocal started, came_at
            if self.args.time_passes and previous is not None:
                took = time.perf_counter() - started
                print(f"{previous.name}: {took * 1e3:.2f} ms", file=sys.stderr)
            if previous is None:
                came_at = level_of(module)
            if not self.args.disable_verify:
                entered = previous is None or level_of(module) != came_at
                check_module(module, whole=following is None and entered)
            if previous and following and self.args.print_between_passes:
                print(f"// IR after {previous.name}:\n{self._text(module)}\n")
            started = time.perf_counter()

        try:
            self.pipeline = PassPipeline.parse_spec(
                self.available_passes, self.args.passes, between
            )
        except (ValueError, ArgSpecParseError) as error:
            fact = str(error).splitlines()[0]
            raise StepwellError(fact, help="stepwell opt --list-passes") from None


def check_module(module: ModuleOp, whole: bool = True) -> None:
    """Raise what is wrong with a module.

    Args:
        module: any module; one without methods may hold anything.
        whole: whether every op must belong to the module's level too. Between passes, and after
            some that do not reach the next level, ops of two levels stand side by side.
    """
    if found := list(find_problems(module, membership=whole)):
        raise VerificationError(found)


def opt(arguments: Sequence[str]) -> int:
    """Run the driver; returns the exit code.

    With `--verify-diagnostics` (`--parsing-diagnostics`) what the verifier (the parser) says is
    printed and counts as success; with `--split-input-file` each piece is a program of its own.
    """
    main = OptMain(args=arguments)
    if main.args.list_passes:
        for name, factory in sorted({**get_all_passes(), **all_passes()}.items()):
            print(_describe(name, factory()))
        return 0
    try:
        chunks, kind = main.prepare_input()
    except OSError as error:
        raise StepwellError(f"cannot read {error.filename}: {error.strerror}") from None
    except ValueError as error:
        raise StepwellError(str(error), help="opt reads .mlir text") from None
    pieces: list[str] = []
    failures: list[Problem] = []
    for stream, offset in chunks:
        try:
            module = main.parse_chunk(stream, kind, offset)
            assert module is not None
            main.apply_passes(module)
            pieces.append(main.output_resulting_program(module))
        except StepwellError as error:
            expected = (main.args.verify_diagnostics and isinstance(error, VerificationError)) or (
                main.args.parsing_diagnostics and isinstance(error, ParseFailure)
            )
            pieces.append(f"{error}\n" if expected else "")
            failures += () if expected else error.problems
    text = "// -----\n".join(pieces)
    if failures:
        if len(chunks) > 1:
            sys.stdout.write(text)
        raise StepwellError(failures)
    if main.args.output_file is None:
        sys.stdout.write(text)
    else:
        write_atomically(Path(main.args.output_file), text.encode())
    return 0


def _describe(name: str, cls: type[ModulePass]) -> str:
    options = ", ".join(f"{f.name}={_default(f)}" for f in dataclasses.fields(cls))
    lines = (cls.__doc__ or "").strip().splitlines()
    first = lines[0] if lines and not lines[0].startswith(cls.__name__ + "(") else ""
    return f"{name}{'{' + options + '}' if options else ''}\n    {first}"


def _default(field: dataclasses.Field[Any]) -> str:
    value = field.default
    return "…" if value is dataclasses.MISSING else str(value).lower()
