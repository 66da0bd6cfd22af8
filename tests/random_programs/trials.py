"""A program's calls on a target, in every way that it runs them, compared with eager's."""

import copy
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

import stepwell
from stepwell.backends.executorch.running.runner import PteSession
from stepwell.backends.tosa.reference_model import ReferenceSession
from stepwell.dialects.quant.ops import dequantize, quantize
from stepwell.dialects.quant.ports import INPUT, OUTPUT, meanings
from stepwell.integrations.executorch.stock import stock_pte
from stepwell.ir.diagnostics import ArtifactError, InputMismatch, StepwellError
from stepwell.ir.rewriting.failures import StepFailure
from stepwell.ir.rewriting.rewrite import Bound
from stepwell.ir.syntax.text import structurally_equal
from stepwell.ir.types import element
from stepwell.validation.compare import differs

from .blocks import as_the_model_casts
from .blocks import expected as expected_of_blocks
from .engines import follow_an_engine, run_on_engine
from .oracle import RUNS, Expected, calls_of, ran, shaken, tensors
from .profiles import Lane
from .source import Program, called
from .stepping import Stepping
from .stepping import expected as expected_of_steps

NEAR = Bound(1e-6, 1e-7, "the interpreter calls the operators of the exported program")
COARSE = 0.03
"""How far a result may be, of the largest of its tensor, where scales are found at run time."""
NO_STOCK = "no stock"
"""Another class than eager's, and the stock flow refuses the program, fails or aborts."""
ANGLES = ("xnnpack.sine", "xnnpack.cosine")
UNDEFINED = re.compile(r"Integer \w+: \w+ overflow")
"""What the reference model says of a sum or product past 32 bits, which TOSA leaves undefined.

Whether a sum of two inputs fits is known of no program ahead: such an input is none to judge by.
"""


class WrongError(Exception):
    """A finding."""

    def __init__(self, kind: str, said: str) -> None:
        super().__init__(said)
        self.kind, self.said = kind, said


Run = Callable[[int, Sequence[Any]], Any]
"""From the number of a method and its nested inputs to its outputs."""


class Trial:
    """A program's calls, in every way that a lane runs them."""

    def __init__(self, program: Program, eps: Mapping[str, ExportedProgram], lane: Lane) -> None:
        self.program, self.eps, self.lane = program, eps, lane
        self.given = program.every_given()
        self.narrow = lane.target.startswith("tosa")
        """Whether the target holds 64-bit integers in 32 bits."""
        self.is_quantized = bool(program.quantized)

    def judge(self) -> None:
        """Raise where one way gives something else than eager."""
        if self.program.payload:
            self._judge_block_scaled()
            return
        if not self.lane.target:
            self._judge_source(self._expected())
            return
        lowered = self._lowered()
        _round_trip(lowered.program)
        assert lowered.artifact
        target, expected = self.lane.target, self._expected()
        if self.program.quantized == "static" and len(self.given) == 1:
            self._judge_integers(expected, lowered)
            return
        declared = None
        stock = None if self.narrow or self.is_quantized else partial(self._stock, lowered)
        try:
            none = None if stock is None else list[Sequence[Any]]
            run = _interpreted(self.program, lowered.program)
            self._compare("interpreter", expected, run, none)
        except WrongError as wrong:
            declared = wrong if wrong.kind == NO_STOCK else None
            if declared is None or not _folds_batch_norm(lowered):
                raise WrongError("mismatch", str(wrong)) if declared else wrong from None
        if (engine := self._engine(lowered)) is not None:
            self._compare(target, expected, engine, stock)
        if declared is not None:  # Of the form, and no more: what the engine gives is eager's.
            raise WrongError("as stock", str(declared))

    @property
    def _input(self) -> Any:
        return dict(self.eps) if len(self.eps) > 1 else self.eps["forward"]

    def _lowered(self) -> stepwell.Lowered:
        """The program lowered, which leaves its source as it was and gives the same bytes twice."""
        target, source = self.lane.target, stepwell.from_exported_program(self._input)
        before = str(source)
        lowered = stepwell.lower(source, target)
        if str(source) != before:
            raise WrongError("mismatch", "lower changed its argument")
        if target == "xnnpack" and stepwell.lower(source, target).artifact != lowered.artifact:
            raise WrongError("mismatch", "two lowerings differ")
        if self.lane.checked:
            result = stepwell.check(source, target, inputs=self.given[0])
            if not result.ok:
                raise WrongError("mismatch", f"check: {result}")
        return lowered

    def _expected(self) -> Expected:
        """What right results may be.

        Raises:
            WrongError: eager itself fails, or torch's export has other dtypes.
        """
        program, given, narrow = self.program, self.given, self.narrow
        try:
            if program.quantized == "static":
                twice = self.lane.quantizer == "cortex-m"
                return expected_of_steps(program, given, self.eps, twice, narrow)
            if program.quantized:  # Scales are found at run time, and the graph alone knows how.
                graph = calls_of(program, self.eps)
                moved = shaken(lambda _: copy.deepcopy(graph), given, self.lane.coarse)
                moved += [ran(graph, given, Stepping(seed)) for seed in range(RUNS)]
                return Expected(tensors([ran(graph, given), *moved], narrow))
            expected = Expected.of(program, given, self.eps, self.lane.coarse, narrow)
        except Exception as error:
            raise WrongError("no program", f"eager fails: {error}"[:300]) from error
        made = [value.dtype for value in expected.runs[0]]
        each = [_declared(self.eps[program.names[call.method]]) for call in program.calls]
        said = [dtype for dtypes in each for dtype in dtypes]
        pairs = zip(said, made, strict=True)
        if any(d is not None and dtype != _narrowed(d, narrow) for d, dtype in pairs):
            raise WrongError("no program", "torch's eager and its export give other dtypes")
        return expected

    def _judge_source(self, expected: Expected) -> None:
        """Import, text and back, the interpreter, and torch again."""
        source = stepwell.from_exported_program(self._input)
        source.verify()
        _round_trip(source)
        made = self._compare("interpreter", expected, _interpreted(self.program, source))
        if len(self.eps) == 1:
            pairs = zip(tensors([made])[0], expected.runs[1], strict=True)
            for index, (mine, other) in enumerate(pairs):
                if (difference := differs(other, mine, NEAR, against="tensor")) is not None:
                    raise WrongError("mismatch", f"interpreter, output {index}: {difference}")
            back = source.to_exported_program().module(check_guards=False)
            self._compare("torch again", expected, lambda _, inputs: back(*inputs))

    def _judge_integers(self, expected: Expected, lowered: stepwell.Lowered) -> None:
        """A quantized program of one call: artifact and interpreter give the same integers."""
        (given,) = self.given
        func, flat = lowered.program.method(), pytree.tree_leaves(given)
        stored = _stored(func, flat)
        inside = lowered.program.run(*stored)
        try:
            outside = run_on_engine(lowered, stored)
        except ArtifactError as error:
            raise WrongError("silent", str(error)) from error
        if self.lane.target != "xnnpack" and "+fp" not in self.lane.target:
            for index, (mine, other) in enumerate(zip(inside, outside, strict=True)):
                if mine.dtype == other.dtype and mine.is_floating_point():
                    same = torch.allclose(mine, other, 1e-4, 1e-5, equal_nan=True)
                else:
                    same = torch.equal(mine, other.to(mine.dtype))
                if not same:
                    said = f"output {index}: the artifact and the interpreter differ"
                    raise WrongError("mismatch", said)
        if said := expected.complaint(_real(func, outside)):
            is_right = self.lane.target == "xnnpack"
            is_right = is_right and expected.complaint(_real(func, inside)) is None
            of_stock = is_right and follow_an_engine(lowered, stored, outside)
            raise WrongError("as stock" if of_stock else "mismatch", f"{self.lane.target}: {said}")

    def _judge_block_scaled(self) -> None:
        """Products in MX, as PyTorch computes what `to_mxfp` made of them."""
        program, (ep,) = self.program, self.eps.values()
        try:
            converted = stepwell.to_mxfp(ep, program.payload, attention=True, convolutions=True)
        except StepFailure:
            raise
        except StepwellError as error:
            raise WrongError("no program", str(error)) from error
        lowered = stepwell.lower(converted, self.lane.target)
        assert lowered.artifact
        (given,) = self.given
        module = stepwell.Program.of(converted).to_exported_program().module(check_guards=False)
        expected = expected_of_blocks(module, given, self.lane.coarse)
        self._compare("interpreter", expected, _interpreted(program, lowered.program))
        if program.payload == "mxint8":
            with as_the_model_casts():
                expected = expected_of_blocks(module, given, self.lane.coarse)
        self._compare(self.lane.target, expected, lambda _, inputs: lowered.run(*inputs))

    def _engine(self, lowered: stepwell.Lowered) -> Run | None:
        """Calls of the artifact, in a session of its engine where there is state; None without."""
        program, func = self.program, lowered.program.method()
        if not program.has_state and len(program.methods) == 1:
            return lambda _, inputs: (
                _real(func, run_on_engine(lowered, _stored(func, pytree.tree_leaves(inputs))))
                if self.is_quantized
                else lowered.run(*inputs)
            )
        if self.lane.target == "xnnpack":
            session = PteSession.load(lowered.artifact)

            def run(method: int, inputs: Sequence[Any]) -> Any:
                flat, name = pytree.tree_leaves(inputs), program.names[method]
                return session.run(*session.laid_out(flat, name), method=name)

            return run
        if self.narrow and len(program.methods) == 1:
            model = ReferenceSession(lowered.artifact)
            return lambda _, inputs: _real(
                func, model.run(_stored(func, pytree.tree_leaves(inputs)))
            )
        return None

    def _compare(
        self,
        where: str,
        expected: Expected,
        run: Run,
        stock: Callable[[], Sequence[Sequence[Any]]] | None = None,
    ) -> Sequence[Any]:
        """Return the outputs of all calls; raise where they are not what they may be.

        Args:
            where: what runs them.
            expected: what they may be.
            run: runs one.
            stock: outputs of flows whose classes of results are right as well.
        """
        made: list[int] = []

        def counted(method: int, inputs: Sequence[Any]) -> Any:
            outputs = run(method, inputs)
            made.append(len(pytree.tree_leaves(outputs)))
            return outputs

        try:
            outputs = called(counted, self.program.calls, self.given)
        except (ArtifactError, InputMismatch) as error:
            if UNDEFINED.search(str(error)):
                raise WrongError("no program", f"undefined in TOSA: {error}") from error
            raise WrongError("silent", f"{where}, call {len(made)}: {error}") from error
        unit = None
        if self.program.quantized in ("dynamic", "8da4w"):
            unit = [_unit(value) for value in expected.runs[0]]
        if "int64" in self.lane.target and len(outputs) == len(expected.runs[0]):
            outputs = [_as_wanted(v, w) for v, w in zip(outputs, expected.runs[0], strict=True)]
        if said := expected.complaint(outputs, unit):
            at = int(found[1]) if (found := re.match(r"output (\d+)", said)) else 0
            call = next((i for i in range(len(made)) if sum(made[: i + 1]) > at), len(made) - 1)
            said = f"{where}, call {call}: {said}"
            of_class = stock is not None and expected.complaint(outputs, forgiven=outputs) is None
            witnesses = stock() if stock is not None and of_class else []
            if any(expected.complaint(outputs, forgiven=each) is None for each in witnesses):
                raise WrongError("as stock", said)
            is_open = of_class and not witnesses and len(self.program.methods) == 1
            raise WrongError(NO_STOCK if is_open else "mismatch", said)
        return outputs

    def _stock(self, lowered: stepwell.Lowered) -> list[Sequence[Any]]:
        """What ExecuTorch's own flow gives, if it takes the program: in a process that may abort.

        Where it does not: what was measured of sines and cosines, which are that flow's own nodes.
        """
        if len(self.eps) > 1:
            return []
        calls = self.program.calls
        try:
            pte = stock_pte(self.eps["forward"])
            session = PteSession.load(pte)

            def run(_: int, inputs: Any) -> Any:
                return run_apart(pte, session.laid_out(pytree.tree_leaves(inputs)))

            return [called(run, calls, self.given)]
        except Exception:  # Whatever it raises: it is no witness then.
            losing = lowered.report.engine_losses
            on = {e for node in losing if node.startswith(ANGLES) for e in losing[node]}
            return [
                called(lambda _, xs, e=e: lowered.program.run(*xs, engine=e), calls, self.given)
                for e in sorted(on)
            ]


def run_apart(pte: bytes, inputs: Sequence[Any]) -> list[Any]:
    """The outputs of a program that runs in a process of its own, which it may abort."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "program.pte").write_bytes(pte)
        torch.save(list(inputs), folder / "inputs.pt")
        command = [sys.executable, "-c", _RUN, name]
        subprocess.run(command, capture_output=True, timeout=300, check=True)
        return torch.load(folder / "outputs.pt", weights_only=True)


_RUN = """
import sys, torch
from pathlib import Path
from stepwell.backends.executorch.running.runner import run_pte
folder = Path(sys.argv[1])
inputs = torch.load(folder / "inputs.pt", weights_only=True)
torch.save(list(run_pte(folder / "program.pte", inputs)), folder / "outputs.pt")
"""


def _declared(ep: ExportedProgram) -> list[torch.dtype | None]:
    """The dtypes of the outputs as an export states them; None where it states none."""
    (returned,) = next(n for n in ep.graph.nodes if n.op == "output").args
    given = returned[len(returned) - len(ep.graph_signature.user_outputs) :]
    metas = [node.meta.get("val") if hasattr(node, "meta") else None for node in given]
    return [meta.dtype if isinstance(meta, Tensor) else None for meta in metas]


def _narrowed(dtype: torch.dtype, narrow: bool) -> torch.dtype:
    return torch.int32 if narrow and dtype == torch.int64 else dtype


def _folds_batch_norm(lowered: stepwell.Lowered) -> bool:
    """Whether what another order of products makes overflow is declared (docs/semantics.md)."""
    return any(taken.rewrite == "fold-batch-norm" for taken in lowered.report.deviations)


def _round_trip(program: stepwell.Program) -> None:
    text = str(program)
    again = stepwell.parse(text, weights=program.weights)
    if str(again) != text or not structurally_equal(program.module, again.module):
        raise WrongError("mismatch", "the text of what was parsed is another")


def _interpreted(program: Program, ours: stepwell.Program) -> Run:
    """Calls in a session of the interpreter, whose inputs may be narrower or quantized."""
    session = ours.start()

    def run(method: int, inputs: Sequence[Any]) -> Any:
        name = program.names[method]
        func = ours.method(name)
        leaves, nesting = pytree.tree_flatten(tuple(inputs))
        types = func.function_type.inputs.data
        if len(types) == len(leaves):
            stored = _stored(func, leaves)
            narrow = [
                x.to(torch.int32) if x.dtype == torch.int64 and str(element(t)) == "i32" else x
                for x, t in zip(stored, types, strict=True)
            ]
            inputs = pytree.tree_unflatten(narrow, nesting)
        return _real(func, session.run(*inputs, method=name))

    return run


def _stored(func: Any, inputs: Sequence[Tensor]) -> list[Tensor]:
    taken = meanings(func, INPUT) or [None] * len(inputs)
    return [v if q is None else quantize(v, q) for v, q in zip(inputs, taken, strict=True)]


def _real(func: Any, outputs: Sequence[Tensor]) -> list[Tensor]:
    given = meanings(func, OUTPUT) or [None] * len(outputs)
    return [v if q is None else dequantize(v, q) for v, q in zip(outputs, given, strict=True)]


def _as_wanted(value: Any, wanted: Tensor) -> Any:
    """A 64-bit integer in 32, where that is what is compared."""
    is_wide = isinstance(value, Tensor) and value.dtype == torch.int64
    return value.to(torch.int32) if is_wide and wanted.dtype == torch.int32 else value


def _unit(value: Tensor) -> float:
    if not value.is_floating_point() or not value.numel():
        return 0.0
    return COARSE * float(value.abs().nan_to_num(0, 0, 0).amax())
