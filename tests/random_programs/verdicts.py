"""What becomes of a program on a target."""

from __future__ import annotations

import copy
import logging
import re
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree
from xdsl.ir import Attribute

import stepwell
from stepwell.backends.executorch.running.runner import PteSession, run_pte
from stepwell.dialects.quant.ops import dequantize, quantize
from stepwell.dialects.quant.ports import INPUT, OUTPUT, meanings
from stepwell.integrations.executorch.stock import stock_pte
from stepwell.ir.diagnostics import ArtifactError, InputMismatch, StepwellError, VerificationError
from stepwell.ir.rewriting.failures import StepFailure
from stepwell.ir.types import element

from .blocks import as_the_model_casts
from .blocks import expected as expected_of_blocks
from .drawing import Profile, draw
from .engines import follow_an_engine, run_on_engine
from .oracle import TOSA_COARSE, Expected
from .quantizing import quantized
from .source import FILE, Program
from .stepping import expected as expected_of_steps

REPAIRS = 4
"""How often what a target refuses is taken out, so that the rest of a program is tried."""

FLOATS = Profile()
TOSA = Profile(
    dtypes="f32 f32 f32 f32 f32 f32 f32 f16 i32 i8 i64 boolean", special=0.03, varying=0.05
)
WHOLE = Profile(
    dtypes="i32 i32 i32 i8 i8 i16 boolean i64 u8",
    families=dict(
        views=2,
        padding=1,
        arithmetic=1,
        compared=1,
        masked=1,
        whole=3,
        indexing=1,
        reductions=1,
        mutation=0.5,
        dtypes=0.3,
    ),
    varying=0.03,
)
QUANTIZED = Profile(
    families=dict(
        views=1.5,
        padding=0.7,
        pointwise=1,
        arithmetic=1,
        convolutions=3,
        pools=1.5,
        norms=1,
        products=1.5,
        attention=0.3,
        softmax=0.5,
        reductions=0.5,
        interpolation=0.3,
    ),
    ranks=(2, 3, 4, 4, 4, 4),
    special=0.0,
    varying=0.0,
    length=(1, 5),
    plain=True,
)
NO_SOFTMAX = replace(QUANTIZED, families=QUANTIZED.families | dict(softmax=0, attention=0))
"""For an Ethos-U, whose softmax is right within one unit."""
MX = Profile(
    dtypes="f32 f32 f32 f32 f32 f32 f32 f16 bf16",
    families=dict(
        products=6,
        attention=3,
        convolutions=2,
        views=2,
        pointwise=1,
        arithmetic=1,
        norms=0.7,
        softmax=0.5,
        reductions=0.5,
        pools=0.3,
    ),
    ranks=(1, 2, 2, 3, 3, 4),
    special=0.05,
    varying=0.0,
    payloads=("fp8e4m3", "fp8e5m2", "fp6e2m3", "fp6e3m2", "fp4e2m1", "mxint8"),
)


@dataclass(frozen=True)
class Lane:
    """A target, what its programs are drawn from, and how they come to it."""

    target: str
    profile: Profile
    quantizer: str | None = None


LANES = {
    "program": Lane("", FLOATS),
    "xnnpack": Lane("xnnpack", FLOATS),
    "tosa-1.0+fp": Lane("tosa-1.0+fp", TOSA),
    "tosa-1.1+fp": Lane("tosa-1.1+fp", TOSA),
    "tosa-1.0+int": Lane("tosa-1.0+int", WHOLE),
    "tosa-1.0+int, int8": Lane("tosa-1.0+int", QUANTIZED, "tosa"),
    "tosa-1.1+fp, mxfp": Lane(
        "tosa-1.1+fp+int64+mxfp+mxfp_conv+mx_common+mx_fp8e4m3+mx_fp8e5m2+mx_fp6e2m3+mx_fp6e3m2"
        "+mx_fp4e2m1+mx_int8",
        MX,
        "mxfp",
    ),
    "xnnpack, int8": Lane("xnnpack", QUANTIZED, "xnnpack"),
    "cortex-m4": Lane("cortex-m4", QUANTIZED, "cortex-m"),
    "cortex-m55": Lane("cortex-m55", QUANTIZED, "cortex-m"),
    "ethos-u55-128": Lane("ethos-u55-128", NO_SOFTMAX, "cortex-m"),
    "ethos-u85-256": Lane("ethos-u85-256", NO_SOFTMAX, "cortex-m"),
}

NO_STOCK = "no stock"
"""Another class than eager's, and the stock flow refuses the program, fails or aborts."""

ANGLES = ("xnnpack.sine", "xnnpack.cosine")

UNDEFINED = re.compile(r"Integer \w+: \w+ overflow")
"""What the reference model says of a sum or product past 32 bits, which TOSA leaves undefined.

Whether a sum of two inputs fits is known of no program ahead: such an input is none to judge by.
"""

BAD = ("mismatch", "abort", "traceback", "silent", "hang")
TAKEN = ("equal", "as stock", *BAD)
"""Verdicts on programs that a target took."""


@dataclass
class Verdict:
    """`equal`, `as stock`, `refused`, one of BAD, or `no program` where torch itself fails.

    `as stock` is a result that differs from eager's in the class of some elements (NaN, infinity)
    and nowhere else, and is of the class there that ExecuTorch's own flow gives: what the default
    of `numerics` promises (docs/semantics.md).
    """

    kind: str
    said: str = ""
    refusals: list[str] = field(default_factory=list[str])
    """What was taken out, or refused at last."""
    statements: int = 0
    program: dict[str, Any] | None = None
    text: str = ""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


class WrongError(Exception):
    """A finding."""

    def __init__(self, kind: str, said: str) -> None:
        super().__init__(said)
        self.kind, self.said = kind, said


def exported(program: Program) -> ExportedProgram:
    """The program as torch exports it."""
    logging.disable(logging.WARNING)
    module, given, shapes = program.module(), program.given(), program.dynamic_shapes()
    return torch.export.export(module, given, dynamic_shapes=shapes, strict=False)


def judge(program: Program, lane: str, exported_it: Callable[[], None] | None = None) -> Verdict:
    """What becomes of a program; what is refused is taken out and the rest tried again.

    Args:
        program: the program.
        lane: one of LANES.
        exported_it: called when torch is done and stepwell's turn begins.
    """
    refusals: list[str] = []
    for _ in range(REPAIRS + 1):
        verdict, lines = judge_whole(program, lane, exported_it)
        verdict.refusals = refusals = refusals + verdict.refusals
        verdict.program, verdict.text = program.as_json(), program.text
        verdict.statements = len(program.statements)
        if verdict.kind == NO_STOCK:
            return replace(verdict, kind=_one_by_one(program, lane))
        if verdict.kind != "refused":
            return verdict
        dropped = {at for line in lines if (at := program.line_of(line)) is not None}
        rest = program.without(sorted(dropped))
        made = [n for s in rest.statements for n in re.findall(r"^v\d+", s)]
        if not dropped or not made:
            return verdict
        if not rest.outputs:
            rest = replace(rest, outputs=(made[-1],))
        program = rest.tidy()
    return verdict


def _one_by_one(program: Program, lane: str) -> str:
    """`as stock` where each output alone, of which the stock flow runs more, is no finding."""
    if len(program.outputs) == 1:
        return "mismatch"
    alone = [replace(program, outputs=(output,)).tidy() for output in program.outputs]
    kinds = {judge_whole(each, lane)[0].kind for each in alone}
    return "as stock" if kinds <= {"equal", "as stock"} else "mismatch"


def judge_whole(
    program: Program, lane: str, exported_it: Callable[[], None] | None = None
) -> tuple[Verdict, list[int]]:
    """What becomes of a program as it is, and the lines of the text that were refused."""
    way = LANES[lane]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            ep = exported(program)
            if way.quantizer and not program.payload:
                ep = quantized(program, ep, way.quantizer)
        except Exception as error:
            return Verdict("no program", f"{type(error).__name__}: {error}"[:300]), []
        if exported_it is not None:
            exported_it()
        try:
            if not way.target:
                _round_trips(program, ep)
            elif program.payload:
                _block_scaled(program, ep, way)
            else:
                _target(program, ep, way)
        except WrongError as wrong:
            return Verdict(wrong.kind, wrong.said), []
        except (StepFailure, VerificationError, ArtifactError, InputMismatch) as error:
            return Verdict("traceback", trace(error)), []
        except StepwellError as error:
            lines = [int(n) for n in re.findall(rf"{re.escape(FILE)}:(\d+)", str(error))]
            facts = [problem.fact for problem in error.problems]
            return Verdict("refused", "", facts), lines
        except Exception as error:
            return Verdict("traceback", trace(error)), []
    return Verdict("equal"), []


def trace(error: BaseException) -> str:
    """What was raised, and the last places that are not of the tests."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "/tests/" not in f.filename]
    last = [f"{'/'.join(f.filename.split('/')[-2:])}:{f.lineno}" for f in frames[-4:]]
    return f"{type(error).__name__}: {str(error)[:600]} [{' < '.join(reversed(last))}]"


def _others(program: Program, ep: ExportedProgram) -> list[Any]:
    """Inputs of other sizes, where the export really let them vary, and eager takes them."""
    if not program.sizes or not ep.range_constraints:
        return []
    found: list[Any] = []
    for sizes in program.others:
        try:
            given = program.given(sizes)
            with torch.no_grad():
                program.module()(*given)
                copy.deepcopy(ep).module()(*given)
        except Exception:
            continue
        found.append(given)
    return found


def _expected(
    program: Program,
    ep: ExportedProgram,
    given: Any,
    coarse: Mapping[str, float] | None = None,
    narrow: bool = False,
) -> Expected:
    try:
        expected = Expected.of(program, given, ep, coarse, narrow)
    except Exception as error:
        raise WrongError("no program", f"eager fails: {error}"[:300]) from error
    made = [value.dtype for value in expected.runs[0]]
    said = _declared(ep, made)
    if made != [torch.int32 if narrow and dtype == torch.int64 else dtype for dtype in said]:
        raise WrongError("no program", "torch's eager and its export give other dtypes")
    return expected


def _declared(ep: ExportedProgram, made: Sequence[torch.dtype]) -> list[torch.dtype]:
    """The dtypes that an export says it gives; as made where it says nothing."""
    (returned,) = next(n for n in ep.graph.nodes if n.op == "output").args
    given = returned[len(returned) - len(made) :]
    metas = [node.meta.get("val") if hasattr(node, "meta") else None for node in given]
    pairs = zip(metas, made, strict=True)
    return [m.dtype if isinstance(m, Tensor) else dtype for m, dtype in pairs]


def _compare(
    expected: Expected,
    where: str,
    run: Callable[[], Sequence[Any]],
    stock: Callable[[], Sequence[Sequence[Any]]] | None = None,
) -> None:
    try:
        outputs = run()
    except ArtifactError as error:
        if UNDEFINED.search(str(error)):
            raise WrongError("no program", f"undefined in TOSA: {error}") from error
        raise WrongError("silent", f"{where}: {error}") from error
    if said := expected.complaint(outputs):
        of_class = stock is not None and expected.complaint(outputs, forgiven=outputs) is None
        witnesses = stock() if stock is not None and of_class else []
        if any(expected.complaint(outputs, forgiven=given) is None for given in witnesses):
            raise WrongError("as stock", f"{where}: {said}")
        kind = NO_STOCK if of_class and not witnesses else "mismatch"
        raise WrongError(kind, f"{where}: {said}")


def _stock(ep: ExportedProgram, given: Any, lowered: stepwell.Lowered) -> list[Sequence[Any]]:
    """What ExecuTorch's own flow gives, if it takes the program: in a process that may abort.

    Where it does not: what was measured of sines and cosines, which are that flow's own nodes.
    """
    try:
        pte = stock_pte(ep)
        flat = PteSession.load(pte).laid_out(pytree.tree_leaves(given))
        return [run_pte(pte, flat, in_child=True)]
    except Exception:  # Whatever it raises: it is no witness then.
        losing = lowered.report.engine_losses
        on = {e for node in losing if node.startswith(ANGLES) for e in losing[node]}
        return [lowered.program.run(*given, engine=engine) for engine in sorted(on)]


def _round_trips(program: Program, ep: ExportedProgram) -> None:
    """Import, text and back, the interpreter, and torch again."""
    imported = stepwell.from_exported_program(ep)
    imported.verify()
    text = str(imported)
    parsed = stepwell.parse(text, weights=imported.weights)
    if str(parsed) != text:
        raise WrongError("mismatch", "the text of what was parsed is another")
    back = imported.to_exported_program()
    for given in [program.given(), *_others(program, ep)]:
        expected = _expected(program, ep, given)
        _compare(expected, "interpreter", lambda given=given: imported.run(*given))
        again = copy.deepcopy(back).module(check_guards=False)  # Whose buffers nothing wrote to.
        _compare(
            expected,
            "torch again",
            lambda given=given, again=again: pytree.tree_leaves(again(*given)),
        )


def _target(program: Program, ep: ExportedProgram, way: Lane) -> None:
    lowered = stepwell.lower(ep, way.target)
    text = str(lowered.program)
    if str(stepwell.parse(text, weights=lowered.program.weights)) != text:
        raise WrongError("mismatch", "the text of what was parsed is another")
    assert lowered.artifact
    if way.quantizer:
        _compare_quantized(program, ep, lowered, way)
        return
    is_tosa = way.target.startswith("tosa")
    for given in [program.given(), *_others(program, ep)]:
        expected = _expected(program, ep, given, TOSA_COARSE if is_tosa else None, is_tosa)
        declared = None
        try:
            none = None if is_tosa else list[Sequence[Any]]
            _compare(expected, "interpreter", partial(_interpreted, lowered, given), none)
        except WrongError as wrong:
            declared = wrong if wrong.kind == NO_STOCK else None
            if declared is None or not _folds_batch_norm(lowered):
                raise WrongError("mismatch", str(wrong)) if declared else wrong from None
        stock = None if is_tosa else partial(_stock, ep, given, lowered)
        _compare(expected, way.target, lambda given=given: lowered.run(*given), stock)
        if declared is not None:  # Of the form, and no more: what the engine gives is eager's.
            raise WrongError("as stock", str(declared))
    if way.target == "xnnpack" and re.search(r"self\.c\d+\.\w+_\(", program.text):
        _twice(program, lowered)


def _folds_batch_norm(lowered: stepwell.Lowered) -> bool:
    """Whether what another order of products makes overflow is declared (docs/semantics.md)."""
    return any(taken.rewrite == "fold-batch-norm" for taken in lowered.report.deviations)


def _interpreted(lowered: stepwell.Lowered, given: Any) -> Sequence[Any]:
    """The outputs at the target's level, whose inputs may be narrower integers than the model's."""
    types = lowered.program.method().function_type.inputs.data
    leaves, nesting = pytree.tree_flatten(given)
    if len(types) == len(leaves):
        narrow = [
            value.to(torch.int32) if _is_narrowed(value, t) else value
            for value, t in zip(leaves, types, strict=True)
        ]
        given = pytree.tree_unflatten(narrow, nesting)
    return lowered.program.run(*given)


def _is_narrowed(value: Tensor, type_: Attribute) -> bool:
    return value.dtype == torch.int64 and str(element(type_)) == "i32"


def _block_scaled(program: Program, ep: ExportedProgram, way: Lane) -> None:
    """Products in MX, as PyTorch computes what `to_mxfp` made of them."""
    try:
        converted = stepwell.to_mxfp(ep, program.payload, attention=True, convolutions=True)
    except StepFailure:
        raise
    except StepwellError as error:
        raise WrongError("no program", str(error)) from error
    lowered = stepwell.lower(converted, way.target)
    assert lowered.artifact
    given = program.given()
    module = stepwell.Program.of(converted).to_exported_program().module(check_guards=False)
    expected = expected_of_blocks(module, given, TOSA_COARSE)
    _compare(expected, "interpreter", partial(_interpreted, lowered, given))
    if program.payload == "mxint8":
        with as_the_model_casts():
            expected = expected_of_blocks(module, given, TOSA_COARSE)
    _compare(expected, way.target, lambda: lowered.run(*given))


def _twice(program: Program, lowered: stepwell.Lowered) -> None:
    """The second call, which sees what the first one wrote."""
    given = program.given()
    module = program.module()
    with torch.no_grad():
        try:
            module(*program.given())
            wanted = pytree.tree_leaves(module(*program.given()))
        except RuntimeError:
            return
    session = PteSession.load(lowered.artifact)
    flat = session.laid_out(pytree.tree_leaves(given))
    try:
        session.run(*flat)
        outputs = session.run(*flat)
    except ArtifactError as error:
        raise WrongError("silent", f"second call: {error}") from error
    for mine, other in zip(outputs, wanted, strict=True):
        if not torch.allclose(mine.double(), other.double(), 0.05, 0.05, equal_nan=True):
            shown = f"{mine.reshape(-1)[:4]} for {other.reshape(-1)[:4]}"
            raise WrongError("mismatch", f"second call: {shown}")


def _compare_quantized(
    program: Program, ep: ExportedProgram, lowered: stepwell.Lowered, way: Lane
) -> None:
    given = program.given()
    try:
        expected = expected_of_steps(given, ep, way.quantizer == "cortex-m")
    except Exception as error:
        raise WrongError("no program", f"the quantized graph fails: {error}"[:300]) from error
    flat = pytree.tree_leaves(given)
    func = lowered.program.method()
    taken = meanings(func, INPUT) or [None] * len(flat)
    stored = [v if held is None else quantize(v, held) for v, held in zip(flat, taken, strict=True)]
    inside = lowered.program.run(*stored)
    try:
        outside = run_on_engine(lowered, stored)
    except ArtifactError as error:
        raise WrongError("silent", str(error)) from error
    if way.target != "xnnpack":
        for index, (mine, other) in enumerate(zip(inside, outside, strict=True)):
            if mine.dtype == other.dtype and mine.is_floating_point():
                same = torch.allclose(mine, other, 1e-4, 1e-5, equal_nan=True)
            else:
                same = torch.equal(mine, other.to(mine.dtype))
            if not same:
                raise WrongError(
                    "mismatch", f"output {index}: the artifact and the interpreter differ"
                )
    given_back = meanings(func, OUTPUT) or [None] * len(outside)
    real, right = (
        [v if held is None else dequantize(v, held) for v, held in zip(of, given_back, strict=True)]
        for of in (outside, inside)
    )
    if said := expected.complaint(real):
        is_right = way.target == "xnnpack" and expected.complaint(right) is None
        of_stock = is_right and follow_an_engine(lowered, stored, outside)
        raise WrongError("as stock" if of_stock else "mismatch", f"{way.target}: {said}")


def judge_seed(seed: int, lane: str) -> Verdict:
    """Draw a program and judge it."""
    return judge(draw(seed, LANES[lane].profile), lane)
