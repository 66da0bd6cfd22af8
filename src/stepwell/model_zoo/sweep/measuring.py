"""Measure one model for each target; each result is a row of the sweep.

The measurement runs in a child process that may crash, so each stage is reported before it starts,
and each row when it is complete.
"""

from __future__ import annotations

import copy
import inspect
import random
import re
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from stepwell.backends.executorch.running.runner import PteSession, run_pte
from stepwell.cost_model.budgets import measure as figures
from stepwell.cost_model.tuning import tune
from stepwell.dialects.aten.op import SchemaOp
from stepwell.integrations.executorch import stock as stock_flow
from stepwell.ir.compat.torch.torch_private import pytree
from stepwell.ir.diagnostics import StepwellError, UnsupportedError
from stepwell.ir.signature import get_signature
from stepwell.ir.work import operations
from stepwell.lowering import Lowered, lower
from stepwell.model_zoo.sweep.accuracy import distance
from stepwell.model_zoo.sweep.bookkeeping import counted
from stepwell.model_zoo.sweep.jobs import ENGINES, engine_hash, version_of
from stepwell.model_zoo.sweep.memory import peak
from stepwell.model_zoo.sweep.rows import Outcome, Row
from stepwell.pipelines.pass_pipeline.ports import given_back, taken
from stepwell.program import Program, from_exported_program
from stepwell.quantization.quantizers import find_quantizer
from stepwell.report.outcomes import fates
from stepwell.targets.table import find_target
from stepwell.translate import executorch_private
from stepwell.translate.importer.export_call import export
from stepwell.translate.mxfp import to_mxfp

if TYPE_CHECKING:
    from stepwell.model_zoo.catalogue.models import Made
    from stepwell.model_zoo.sweep.jobs import Job, Task, Variant

Tell = Callable[[str, Any], None]
"""Called with ("stage", the stage that starts) or ("row", a row)."""

SLOW_ENGINE = 100_000_000
"""Multiply-adds beyond which the TOSA reference model takes minutes: the interpreter runs then."""
ROUNDS = 50
"""Runs of which a latency is the tenth percentile."""
LINES = 12
"""Lines of a traceback that a row keeps."""


FULL = ("can't allocate memory", "bad_alloc", "Cannot allocate memory", "MemoryError")
"""Parts of the messages of allocations that fail."""


class NotExported(Exception):
    """Raised if torch cannot export the model; the message is torch's."""


@dataclass(frozen=True)
class Prepared:
    """An exported model, shared by all targets."""

    source: Program
    exported: Any
    inputs: tuple[Any, ...]
    expected: list[torch.Tensor] | None
    why_not: str
    seconds: float
    ranges: tuple[tuple[int, int] | None, ...] = ()


def measure(task: Task, tell: Tell) -> None:
    """Create and export a model, lower it to each target, run it and compare; return one row per
    job.
    """
    rows = [row_of(task, index) for index in range(len(task.jobs))]

    def all_end(outcome: Outcome, said: str) -> None:
        lines = said.splitlines()
        reason = first_line(said if outcome == "refused" else lines[-1] if lines else "")
        for row in rows:
            tell("row", replace(row, outcome=outcome, note=said, reasons=[(reason, 1)]))

    tell("stage", "making the model")
    seed()
    try:
        made = task.entry.make()
        made = varied(made, task.jobs[0].variant)
    except Exception as error:
        raise_if_full(error)
        return all_end("not made", fault(error))
    tell("stage", "export")
    try:
        prepared = prepare(made, task.jobs[0].variant)
    except NotExported as error:
        return all_end("not exported", str(error))
    except StepwellError as error:
        return all_end("refused", str(error))
    except Exception as error:
        raise_if_full(error)
        return all_end("fault", fault(error))
    for job, row in zip(task.jobs, rows, strict=True):
        tell("stage", f"lowering to {job.target}")
        with_figures = replace(
            row, export_seconds=prepared.seconds, ops=count_operators(prepared.source)
        )
        tell("row", lowered_row(job, prepared, with_figures, tell))
    return None


def row_of(task: Task, index: int) -> Row:
    """Return the row of a job, without results."""
    job, entry = task.jobs[index], task.entry
    named = (*ENGINES, *entry.distributions)
    versions = ", ".join(f"{name} {version_of(name)}" for name in dict.fromkeys(named))
    return Row(
        key=task.keys[index],
        model=job.model,
        target=job.target,
        source=entry.source,
        family=entry.family,
        kind=entry.kind,
        options=dict(job.options),
        variant=str(job.variant),
        versions=f"stepwell {engine_hash()[:12]}, {versions}",
    )


def seed(number: int = 0) -> None:
    """Seed the random generators, so that weights and inputs are the same in every process."""
    torch.manual_seed(number)
    random.seed(number)


def varied(made: Made, variant: Variant) -> Made:
    """Prepare the model and its inputs as in the variant."""
    module, inputs, dynamic = made.module, made.inputs, made.dynamic
    if module is None:
        return made
    if variant.payload is not None:
        module = to_mxfp(module, variant.payload)
    if variant.dtype is not None:
        dtype = getattr(torch, variant.dtype)
        module = module.to(dtype)
        inputs = of_tensors(inputs, lambda v: v.to(dtype) if v.is_floating_point() else v)
    if not variant.symbolic:
        return replace(made, module=module, inputs=inputs, dynamic=None)
    if dynamic is None:
        batch = torch.export.Dim("batch", min=2, max=8)
        inputs = of_tensors(inputs, lambda v: torch.cat([v, v]))
        dynamic = of_tensors(inputs, lambda _: {0: batch})
        if takes_any_number(module):
            dynamic = (dynamic,)
    return replace(made, module=module, inputs=inputs, dynamic=dynamic)


def of_tensors(values: Any, change: Callable[[torch.Tensor], Any]) -> Any:
    """Return nested values with each tensor changed by a function."""
    return pytree.tree_map_only(torch.Tensor, change, values)


def takes_any_number(module: torch.nn.Module) -> bool:
    """Whether a module takes `*inputs`, which torch counts as one argument."""
    taken = inspect.signature(module.forward).parameters.values()
    return any(one.kind is one.VAR_POSITIONAL for one in taken)


@torch.no_grad()
def prepare(made: Made, variant: Variant) -> Prepared:
    """Export a model and compute its results in eager PyTorch.

    Raises:
        NotExported: torch cannot export the model.
    """
    module: Any = made.module
    inputs = made.inputs
    started = time.process_time()
    try:
        if made.program is not None:
            exported = made.program
            inputs = inputs or exported.example_inputs[0]
        elif variant.quantize is not None:
            converted = find_quantizer(variant.quantize)(module, inputs)
            exported = export(converted, inputs, dynamic_shapes=made.dynamic)
        else:
            exported = export(module, inputs, dynamic_shapes=made.dynamic)
    except Exception as error:  # Whatever torch fails with is its answer.
        raise_if_full(error)
        raise NotExported(f"{type(error).__name__}: {first_line(str(error))}") from error
    seconds = time.process_time() - started
    source = from_exported_program(exported)
    reference = (
        exported.module(check_guards=False) if variant.quantize or module is None else module
    )
    expected, why_not = eager(reference, inputs)
    return Prepared(source, exported, inputs, expected, why_not, seconds, made.ranges)


def eager(module: Any, inputs: tuple[Any, ...]) -> tuple[list[torch.Tensor] | None, str]:
    """Return the results of eager PyTorch; or None, and why they cannot be compared."""
    tensors: list[list[torch.Tensor]] = []
    for number in range(2):
        seed(number)
        try:
            outputs = copy.deepcopy(module)(*copy.deepcopy(inputs))
        except Exception as error:
            return None, f"eager PyTorch fails: {type(error).__name__}: {first_line(str(error))}"
        tensors.append([leaf for leaf in pytree.tree_leaves(outputs) if torch.is_tensor(leaf)])
    same = all(map(same_numbers, *tensors))
    return (tensors[0], "") if same else (None, DRAWS)


DRAWS = "the model draws random numbers"


def draws(lowered: Program) -> bool:
    """Whether the program has a random kernel, even if PyTorch's test sets a seed."""
    kernels = ("aten.rand.", "aten.randn.", "aten.native_dropout.")
    return any(
        isinstance(op, SchemaOp) and op.name.startswith(kernels) and op.present().get("train", True)
        for op in lowered.module.walk()
    )


def same_numbers(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors are equal, including NaNs."""
    if one.is_complex():
        one, other = (
            torch.view_as_real(v.to(torch.complex64).resolve_conj()) for v in (one, other)
        )
    return torch.equal(one.nan_to_num(), other.nan_to_num())


def lowered_row(job: Job, prepared: Prepared, row: Row, tell: Tell) -> Row:
    """Lower a model to the target of a job, run the artifact, and return the row of results."""
    clock: list[float] = []

    def work() -> Lowered:
        clock.append(time.process_time())
        found = lower(prepared.source, job.target, **options_of(job, prepared))
        clock.append(time.process_time())
        assert found.artifact
        clock.append(time.process_time())
        return found

    try:
        lowered, most = peak(work)
    except StepwellError as error:
        raise_if_full(error)
        reasons = Counter(problem.fact for problem in error.problems)
        return replace(
            row, outcome="refused", reasons=reasons.most_common(), note=str(error)[:2000]
        )
    except Exception as error:
        raise_if_full(error)
        return faulty(row, "lowering", error)
    row = replace(
        row,
        lower_seconds=clock[1] - clock[0],
        emit_seconds=clock[2] - clock[1],
        peak_bytes=most,
        delegates=lowered.report.stages,
        outside=dict(sorted(lowered.report.outside.items())),
        floats_outside=floats_outside(lowered),
        reasons=reasons_outside(prepared.source, lowered),
        size=len(lowered.artifact),
        arena=figures(lowered).arena,
    )
    tell("stage", f"running on {job.target}")
    row = compared(prepared, lowered, row)
    if job.latency and row.outcome in ("right", "wrong"):
        tell("stage", f"timing on {job.target}")
        row = replace(row, latency_ms=latency(lowered.artifact, prepared.inputs))
    if job.tune and row.outcome in ("right", "not compared"):
        tell("stage", f"timing on {job.target}")
        leaves = pytree.tree_leaves(prepared.inputs)
        found = tune(prepared.source, leaves, **dict(job.options))
        row = replace(row, latency_ms=found.untuned_ms, tuned=asdict(found))
    if job.stock:
        tell("stage", "ExecuTorch's own flow")
        row = replace(row, stock=stock(prepared, job.latency))
    return row


def options_of(job: Job, prepared: Prepared) -> dict[str, Any]:
    """Return the job's options, with the inputs' ranges if the target has such an option."""
    options = dict(job.options)
    asked = {option.name for option in find_target(job.target).options}
    ports = get_signature(prepared.source.method()).inputs
    held = {port.name: ends for port, ends in zip(ports, prepared.ranges, strict=False) if ends}
    return {"ranges": held, **options} if held and "ranges" in asked else options


def faulty(row: Row, stage: str, error: Exception) -> Row:
    """Return the row of an unexpected exception."""
    reason = f"{type(error).__name__}: {first_line(str(error))}"
    return replace(row, outcome="fault", stage=stage, note=fault(error), reasons=[(reason, 1)])


def count_operators(source: Program) -> int:
    """Count the operators of a program, without weights and structural ops."""
    return sum(op.name.startswith(("aten", "quant")) for op in source.module.walk())


def reasons_outside(source: Program, lowered: Lowered) -> list[tuple[str, int]]:
    """Return why ops are left to the runtime's kernels: each sentence with the number of ops."""
    if not lowered.report.outside:
        return []
    said: Counter[str] = Counter()
    for fate in fates(source, lowered.program, lowered.target, lowered.report):
        if fate.where in ("kernel", "split"):
            said.update({f"{fate.op}: {why}" for why in fate.why})
    return said.most_common()


def floats_outside(lowered: Lowered) -> int | None:
    """Count the ops outside delegates that read activations and are neither bookkeeping nor
    look-ups.
    """
    if lowered.target.name != "xnnpack":
        return None
    return len(counted(lowered.program))


def compared(prepared: Prepared, lowered: Lowered, row: Row) -> Row:
    """Add the results of running the artifact to the row."""
    engine, run = engine_of(lowered, prepared.source)
    row = replace(row, engine=engine)
    func = lowered.program.method()
    try:
        outputs = run(*taken(func, prepared.inputs))
    except UnsupportedError as error:
        return replace(row, outcome="not compared", note=error.problems[0].fact)
    except StepwellError as error:
        raise_if_full(error)
        return replace(row, outcome="wrong", stage="running", note=str(error)[:2000],
                       reasons=[(error.problems[0].fact, 1)])  # fmt: skip
    except Exception as error:
        raise_if_full(error)
        return faulty(row, "running", error)
    given = given_back(func, [value for value in outputs if isinstance(value, torch.Tensor)])
    if prepared.expected is None or draws(lowered.program):
        note = prepared.why_not or DRAWS
        return replace(row, outcome="not compared", note=note)
    leaves = [v for v in pytree.tree_leaves(prepared.inputs) if v is not None]
    found = distance(prepared.source, leaves, prepared.expected, given)
    if found.what and is_exports_own(prepared, leaves, given):
        note = "what torch.export gives computes other numbers than the model; these are its own"
        return replace(row, outcome="not compared", error=found.error, note=note)
    excused = lost_classes(lowered) if found.what else ""
    if excused:
        known = where_finite(prepared.expected, given)
        if not distance(prepared.source, leaves, prepared.expected, known).what:
            return replace(row, outcome="not compared", error=found.error, note=excused)
    return replace(
        row,
        outcome="wrong" if found.what else "right",
        error=found.error,
        bound=found.bound,
        note=found.what,
    )


def is_exports_own(prepared: Prepared, leaves: list[Any], tensors: Sequence[torch.Tensor]) -> bool:
    """Whether wrong results of an artifact are the fault of `torch.export`: the exported program
    computes the same results, and the model does not.
    """
    own, _ = eager(prepared.exported.module(check_guards=False), prepared.inputs)
    assert prepared.expected is not None
    if own is None or not distance(prepared.source, leaves, prepared.expected, own).what:
        return False
    return not distance(prepared.source, leaves, own, tensors).what


def where_finite(expected: Sequence[torch.Tensor], given: Sequence[Any]) -> list[Any]:
    """Return the results where eager's are finite, and eager's results elsewhere."""
    if len(expected) != len(given):
        return list(given)
    return [
        torch.where(one.isfinite(), other, one) if one.shape == other.shape else other
        for one, other in zip(expected, given, strict=True)
    ]


def lost_classes(lowered: Lowered) -> str:
    """Describe classes of numbers that the lowering does not preserve (`docs/semantics.md`)."""
    said = dict.fromkeys(taken.loses for taken in lowered.report.deviations)
    return f"right where eager is finite; elsewhere {'; '.join(said)}" if said else ""


def engine_of(lowered: Lowered, source: Program) -> tuple[str, Callable[..., Sequence[Any]]]:
    """Return the artifact's engine: its real one, or the interpreter if the real one takes
    minutes.
    """
    name = lowered.target.name
    if name.startswith("tosa"):
        work = sum(operations(op) for func in source.methods.values() for op in func.body.block.ops)
        if work <= SLOW_ENGINE:
            return "TOSA reference model", lowered.run
        return "interpreter", lowered.program.run
    if name.startswith("ethos"):
        return "interpreter", lowered.program.run
    return ("ExecuTorch" if name == "xnnpack" else "interpreter"), lowered.run


def latency(artifact: bytes, inputs: tuple[Any, ...]) -> float:
    """Return the tenth percentile of a `.pte`'s run time, in milliseconds of one thread's CPU
    time.
    """
    session = PteSession.load(artifact)
    given = session.laid_out(pytree.tree_leaves(inputs), "forward")
    times: list[float] = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        session.run(*given)
        times.append(time.perf_counter() - started)
    return sorted(times)[len(times) // 10] * 1e3


def stock(prepared: Prepared, timed: bool) -> dict[str, Any]:
    """Measure ExecuTorch's own flow on the same program, or return its failure."""
    exported = copy.deepcopy(prepared.exported)
    started, what = time.process_time(), "lowering"
    try:
        pte = stock_flow.stock_pte(exported)
        figures: dict[str, Any] = {"seconds": time.process_time() - started, "size": len(pte)}
        figures |= stock_flow.counted(pte)
        what = "running"
        given = [v for v in run_pte(pte, pytree.tree_leaves(prepared.inputs)) if torch.is_tensor(v)]
        if prepared.expected is not None:
            found = distance(prepared.source, prepared.inputs, prepared.expected, given)
            figures |= {"error": found.error, "right": not found.what}
        if timed:
            figures["latency_ms"] = latency(pte, prepared.inputs)
    except Exception as error:  # Whatever stock fails with is a result here.
        return {"fails": f"{what}: {type(error).__name__}: {first_line(str(error))}"}
    return figures


def one_thread() -> None:
    """Run the kernels of torch and XNNPACK in one thread; call before the first delegate is
    loaded.
    """
    torch.set_num_threads(1)
    executorch_private.reset_threadpool(1)


def raise_if_full(error: BaseException) -> None:
    """End the process after a failed allocation, whose error is not a result of the model."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, MemoryError) or any(word in str(cause) for word in FULL):
            raise MemoryError from error
        cause = cause.__cause__ or cause.__context__


def first_line(said: str) -> str:
    """Return the first non-empty line of a text, cut to 300 characters."""
    lines = [re.sub(r"\s+", " ", line).strip() for line in said.splitlines()]
    return next((line for line in lines if line), "")[:300]


def fault(error: BaseException) -> str:
    """Return the last lines of a traceback."""
    return "\n".join("".join(traceback.format_exception(error)).splitlines()[-LINES:])
