"""Compare an artifact's results with eager PyTorch, by the bound of `stepwell check`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from stepwell.ir.diagnostics import op_name
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import Bound
from stepwell.validation.compare import deviation, differs
from stepwell.validation.engine import FLOAT_KERNELS
from stepwell.validation.rounding import NoisyInterpreter, sensitivity

QUANTIZES = "quantized_decomposed.quantize"
"""Prefixes of the names of ops that round floats to quantization steps."""
STEP = 1
"""Integer kernels round a product once where quantize and dequantize round it twice."""


@dataclass(frozen=True)
class Distance:
    """The difference of results from those of eager PyTorch.

    Attributes:
        error, bound: the error and its bound, relative to eager's largest number.
        what: the reason why they differ, or "".
    """

    error: float
    bound: float
    what: str = ""


class SteppingInterpreter(NoisyInterpreter):
    """An interpreter that perturbs some quantized values by one step, as integer kernels may."""

    def step(self, op: Any, environment: dict[Any, Any]) -> None:
        """Evaluate an op, then perturb its quantized results by up to one step."""
        super().step(op, environment)
        if not op_name(op).startswith(QUANTIZES):
            return
        for result in op.results:
            value = environment[result]
            if isinstance(value, torch.Tensor) and value.dtype.itemsize < 4:
                info = torch.iinfo(value.dtype)
                moved = torch.randint(-STEP, STEP + 1, value.shape, generator=self.generator)
                low, high = max(info.min, int(value.min())), min(info.max, int(value.max()))
                environment[result] = (value.int() + moved).clamp(low, high).to(value.dtype)


def distance(
    source: Program, inputs: Sequence[Any], expected: Sequence[Any], given: Sequence[Any]
) -> Distance:
    """Return the difference of results from eager's, and its bound.

    Args:
        source: the imported program. If results differ by more than float kernels do, the bound is
            the effect of noise in the values on the outputs (`validation.rounding`).
        inputs: the inputs of the call.
        expected, given: the tensors to compare, in order.
    """
    if len(expected) != len(given):
        return Distance(0.0, 0.0, f"{len(given)} tensors come out, {len(expected)} should")
    error = max((deviation(a, b) for a, b in zip(expected, given, strict=True)), default=0.0)
    what = _difference(expected, given, FLOAT_KERNELS)
    if not what:
        return Distance(error, FLOAT_KERNELS.relative)
    func = source.method("forward")
    moved = sensitivity(func, source.weights, tuple(inputs))
    if any(op_name(op).startswith(QUANTIZES) for op in func.walk()):
        stepped = sensitivity(func, source.weights, tuple(inputs), None, SteppingInterpreter)
        moved = max(moved, stepped)
    allowed = Bound(FLOAT_KERNELS.relative + moved, FLOAT_KERNELS.absolute, "noise")
    return Distance(error, allowed.relative, _difference(expected, given, allowed))


def _difference(expected: Sequence[Any], given: Sequence[Any], allowed: Bound) -> str:
    for index, (one, other) in enumerate(zip(expected, given, strict=True)):
        found = differs(one, other, allowed, against="tensor")
        if found is not None:
            return f"output {index}: {found}"
    return ""
