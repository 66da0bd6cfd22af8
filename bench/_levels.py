"""What `bench/levels.py` asks of one model and target; a sentence each that says how it went."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch.export import ExportedProgram, export
from torch.utils._pytree import tree_leaves
from xdsl.dialects.func import FuncOp

import stepwell
from stepwell.cli.terminal.sources import random_values
from stepwell.integrations.executorch.stock import stock_pte
from stepwell.ir.dtypes import i32, torch_dtype
from stepwell.ir.syntax.text import structurally_equal
from stepwell.ir.types import element, is_static
from stepwell.model_zoo.catalogue.models import find
from stepwell.pipelines.pass_pipeline.ports import given_back, taken
from stepwell.pipelines.pass_pipeline.stages import stages_of

EQUAL = "equal"
OTHER_WAYS = {
    "xnnpack": ("xnnpack", "tosa-1.0+fp"),
    "tosa-1.0+fp": ("tosa-1.0+fp", "xnnpack"),
    "tosa-1.0+fp+int": ("tosa-1.0+fp+int", "xnnpack"),
    "tosa-1.0+int": ("tosa-1.0+int", "xnnpack"),
    "cortex-m55": ("cortex-m55", "xnnpack"),
    "vgf": ("vgf", "xnnpack"),
}
"""Whose artifacts are raised, and to which targets they are lowered from there."""
TOSA_DELEGATE = "ethosu.delegate"
FLOATS, STEPS = 1e-4, 2.0
"""How much further from the model than the artifact a raised program may be: in parts of the
largest number; and as a factor."""


@dataclass
class Model:
    """A model of the zoo, exported when it is first asked for."""

    name: str
    direct: tuple[str, stepwell.Lowered, bytes] | None = None

    @cached_property
    def exported(self) -> ExportedProgram:
        """The torch program."""
        made = find(self.name).make()
        if made.program is not None:
            return made.program
        return export(made.module, made.inputs, dynamic_shapes=made.dynamic)

    @cached_property
    def source(self) -> stepwell.Program:
        """The imported program."""
        return stepwell.from_exported_program(self.exported)

    @cached_property
    def inputs(self) -> Sequence[Any]:
        """Inputs drawn from a seed."""
        return random_values(self.source, "forward", 0)

    @cached_property
    def wanted(self) -> list[torch.Tensor]:
        """What the model gives for them."""
        return _tensors(self.source.run(*self.inputs))

    def emitted(self, target: str) -> tuple[stepwell.Lowered, bytes]:
        """The direct way and its bytes; those of one target are kept."""
        if self.direct is None or self.direct[0] != target:
            try:
                lowered = stepwell.lower(self.source, target)
                self.direct = target, lowered, lowered.emit()
            except stepwell.StepwellError as error:
                raise NotTaken(str(error).splitlines()[0]) from error
        return self.direct[1:]


class NotTaken(Exception):
    """The target has no way down for the model: nothing can be asked."""


def stages(model: Model, target: str) -> str:
    """The text of each stage leads to the next, and that of the last to the direct way's bytes."""
    direct, wanted = model.emitted(target)
    names = list(stages_of(direct.target.pipeline, target))
    program = model.source
    with tempfile.TemporaryDirectory() as folder:
        for stage in names:
            program = stepwell.lower(program, target, stop=stage).program
            program = _read_again(program, folder)
        if stepwell.emit(program, target) == wanted:
            return f"{EQUAL}: {len(names)} stages"
        for stage in names:
            one = _read_again(stepwell.lower(model.source, target, stop=stage).program, folder)
            if stepwell.emit(one, target) != wanted:
                return f"differs at {stage}"
    return "differs where stages follow each other"


def _read_again(program: stepwell.Program, folder: str) -> stepwell.Program:
    path = Path(folder) / "stage.mlir"
    program.save(path)
    return stepwell.load(path)


def artifact(model: Model, target: str) -> str:
    """Our artifact, read and written again."""
    lowered, data = model.emitted(target)
    with suppress(stepwell.StepwellError):
        if stepwell.emit(stepwell.load(data), target) == data:
            return EQUAL
    held, inputs = _read(data, model)
    again = stepwell.emit(held, target)
    if again == data:
        return EQUAL
    if inputs is not model.inputs:
        if any(op.name == TOSA_DELEGATE for op in held.module.walk()):  # Only the interpreter's.
            ran = [lowered.program.run(*inputs), stepwell.load(again).run(*inputs)]
        else:
            ran = [stepwell.run_pte(each, inputs) for each in (data, again)]
        alike = all(map(torch.equal, *map(_tensors, ran)))
        return f"{'named' if alike else 'differs'}: which axes vary it does not say; at its largest"
    same = structurally_equal(stepwell.load(again).module, held.module)
    return "named: its values are numbered otherwise" if same else "differs: another program"


def stock(model: Model, target: str) -> str:
    """The stock flow's `.pte`, read, written again and compared with it in a run."""
    try:
        data = stock_pte(model.exported)
    except Exception as error:  # The stock flow has no way down.
        raise NotTaken(f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}") from error
    held, inputs = _read(data, model)
    again = stepwell.emit(held, target)
    if again == data:
        return EQUAL
    pairs = zip(*(_tensors(stepwell.run_pte(each, inputs)) for each in (data, again)), strict=True)
    alike = all(torch.equal(one, other) for one, other in pairs)
    return f"{EQUAL} in what it computes" if alike else "differs in what it computes"


def raised(model: Model, target: str) -> str:
    """An artifact raised to torch, run there, and lowered again: to its target and to another."""
    direct, data = model.emitted(target)
    port = direct.program.method("forward")
    held, given = _read(data, model)
    wanted = model.wanted if given is model.inputs else _tensors(model.source.run(*given))
    inputs = taken(port, given)
    up = held.raise_to("aten")
    up.verify()
    limit = STEPS * _distance(_run(held, inputs, port), wanted) + FLOATS
    found = {"torch": given_back(port, _tensors(_in_torch(up, inputs)))}
    for other in OTHER_WAYS[target]:
        try:
            lowered = stepwell.lower(up, other).program
        except stepwell.StepwellError:
            if _takes(model, other):
                raise
            continue
        found[other] = _run(lowered, inputs, port)
    far = {way: _distance(got, wanted) for way, got in found.items()}
    outside = [f"{way} {by:.1e} > {limit:.1e}" for way, by in far.items() if not by <= limit]
    return f"differs: {', '.join(outside)}" if outside else f"{EQUAL}: {max(far.values()):.1e}"


def _takes(model: Model, target: str) -> bool:
    """Whether a target takes the model itself."""
    try:
        stepwell.lower(model.source, target)
    except stepwell.StepwellError:
        return False
    return True


def _read(data: bytes, model: Model) -> tuple[stepwell.Program, Sequence[Any]]:
    """An artifact as a program, and inputs for it.

    One whose sizes vary says the largest alone: it is read at these, and takes other inputs.
    """
    try:
        held = stepwell.load(data)
        if all(map(is_static, held.method("forward").function_type.inputs)):
            return held, model.inputs
    except stepwell.StepwellError as error:
        if "largest" not in str(error):
            raise
    held = stepwell.read_pte(data, largest=True)
    return held, random_values(held, "forward", 0)


def _run(program: stepwell.Program, inputs: Sequence[Any], port: FuncOp) -> list[torch.Tensor]:
    """What a program gives, as the model gives it, whose way down ended in `port`."""
    (name,) = program.methods
    func = program.method(name)
    held = [
        value.to(torch_dtype(element(type_))) if _is_wide(value, type_) else value
        for value, type_ in zip(taken(func, inputs), func.function_type.inputs, strict=True)
    ]
    found = given_back(func, program.run(*held, method=name))
    return found if any(x.is_floating_point() for x in found) else given_back(port, found)


def _in_torch(program: stepwell.Program, inputs: Sequence[Any]) -> Any:
    """What a program gives in torch."""
    (name,) = program.methods
    held = [
        value.to(torch.int32) if _is_wide(value, type_) else value
        for value, type_ in zip(inputs, program.method(name).function_type.inputs, strict=True)
    ]
    return program.to_exported_program(name).module()(*held)


def _is_wide(value: Any, type_: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype == torch.int64 and element(type_) == i32


def _tensors(values: Any) -> list[torch.Tensor]:
    return [value for value in tree_leaves(values) if isinstance(value, torch.Tensor)]


def _distance(found: Any, wanted: Sequence[torch.Tensor]) -> float:
    """The largest difference, in parts of the largest number of that result."""
    pairs = zip(_tensors(found), wanted, strict=True)
    return max((_apart(one.double(), other.double()) for one, other in pairs), default=0.0)


def _apart(one: torch.Tensor, other: torch.Tensor) -> float:
    if not other.numel():
        return 0.0
    same = (one == other) | (one.isnan() & other.isnan())
    most = float(other.nan_to_num(0, 0, 0).abs().max()) or 1.0
    with torch.no_grad():
        return float(torch.where(same, 0, (one - other).abs()).max()) / most


ASKED = {"stages": stages, "artifact": artifact, "stock": stock, "raised": raised}


def is_asked(question: str, target: str) -> bool:
    """Whether a question is one of a target."""
    if question == "raised":
        return target in OTHER_WAYS
    if question == "stock":
        return target == "xnnpack"
    return True
