"""Engines of quantized programs: special values of kernels, and delegates for an NPU."""

import itertools
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from xdsl.ir import Operation, SSAValue

import stepwell
from stepwell.backends.ethos_u.emit import tosa_of
from stepwell.backends.tosa.reference_model import run_reference_model
from stepwell.dialects.ethosu import DelegateOp
from stepwell.ir.calls.calling import bind, with_frozen
from stepwell.ir.declared.interpretation import Interpreter, Value


class QuantizingNaN(TorchDispatchMode):
    """Quantize NaN like another number: C leaves its conversion to an integer undefined."""

    def __init__(self, number: float) -> None:
        super().__init__()
        self.number = number

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        if func._schema.name.startswith("quantized_decomposed::quantize_per"):
            args = (torch.where(args[0].isnan(), self.number, args[0]), *args[1:])
        return func(*args, **(kwargs or {}))


def follow_an_engine(
    lowered: stepwell.Lowered, given: Sequence[Tensor], outputs: Sequence[Tensor]
) -> bool:
    """Whether outputs are what the nodes compute by one engine's measured special values.

    A NaN that a kernel makes of a number (`report.engine_losses`) may be quantized: it is then the
    least integer, as x86 converts it, or zero, as Arm does.
    """
    engines = {engine for losing in lowered.report.engine_losses.values() for engine in losing}
    for engine, number in itertools.product(sorted(engines), (-math.inf, 0.0)):
        with QuantizingNaN(number):
            wanted = lowered.program.run(*given, engine=engine)
        pairs = zip(wanted, outputs, strict=True)
        if all(torch.allclose(a, b, 1e-4, 1e-5, equal_nan=True) for a, b in pairs):
            return True
    return False


class OnReferenceModel(Interpreter):
    """Delegates for an NPU run on the TOSA reference model; the interpreter runs the rest."""

    def step(self, op: Operation, environment: dict[SSAValue, Value]) -> None:
        if isinstance(op, DelegateOp):
            given = [environment[value] for value in op.operands]
            made = run_reference_model(tosa_of(op, self.weights), given)
            environment.update(zip(op.results, made, strict=True))
        else:
            super().step(op, environment)


def run_on_engine(lowered: stepwell.Lowered, given: Sequence[Tensor]) -> tuple[Any, ...]:
    """Run the artifact; of a program for an Ethos-U, the TOSA that Vela compiled."""
    if lowered.program.level != "ethosu":
        return lowered.run(*given)
    func = lowered.program.method()
    values = bind(func, given).values
    outcome = OnReferenceModel(lowered.program.weights, {}).call(func, values)
    return with_frozen(func, outcome.outputs)
