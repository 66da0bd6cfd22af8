"""Compute how the lowered program's values differ from eager PyTorch's, by node of the model.

Rewrites change the value of a node's op (a scale is folded into the next layer, a mean is removed
from a residual stream). A value is therefore compared only if it is the same quantity: both
programs run once more with every float widened to 64 bits, in which algebraically equal values
agree up to the last few digits.
"""

from collections.abc import Sequence
from typing import Any

import torch
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue

from stepwell.ir.core import WeightOp
from stepwell.ir.diagnostics import StepwellError, first_line, node_name
from stepwell.ir.program import Program
from stepwell.validation.compare import deviation
from stepwell.validation.recording import RecordingInterpreter, as_real

SAME = 1e-4
"""The relative difference up to which two 64-bit values are the same quantity: folded weights still
have 32 bits.
"""


class _Widened(RecordingInterpreter):
    """An interpreter that computes floats in 64 bits, regardless of their types."""

    def step(self, op: Operation, environment: dict[SSAValue, Any]) -> None:
        super().step(op, environment)
        for result in op.results:
            environment[result] = self.values[result] = _wide(environment[result])


def _wide(value: Any) -> Any:
    is_float = isinstance(value, torch.Tensor) and value.dtype == torch.float32
    return value.double() if is_float else value


def differences(
    program: Program, lowered: Program, inputs: Sequence[Any], method: str = "forward"
) -> dict[str, float]:
    """Return, for each node of the model, the largest |lowered − eager| divided by the largest
    |eager|.

    Both programs run op by op: the model's ops by eager PyTorch's kernels, the lowered program in
    the interpreter of its level (a device may round differently; `stepwell check` compares
    artifacts with a bound). Nodes without a value of the same quantity are omitted. Images may be
    channels last. Quantized integers are compared as reals.

    Args:
        inputs: the flat inputs of the method.

    Raises:
        StepwellError: the lowered program has an op that does not run with 64 bits.
    """
    eager = _values(program, method, inputs, RecordingInterpreter)
    now = _values(lowered, method, inputs, RecordingInterpreter)
    wide = tuple(_wide(value) for value in inputs)
    try:
        exact, exact_now = (_values(one, method, wide, _Widened) for one in (program, lowered))
    except (RuntimeError, TypeError, ValueError) as error:
        fact = f"the program does not run in float64, the reference: {first_line(error)}"
        raise StepwellError(fact, help="leave out --difference") from error
    found: dict[str, float] = {}
    for node, values in eager.items():
        for value, held in zip(now.get(node, ()), exact_now.get(node, ()), strict=True):
            was, same = (_laid_like(one[-1], held) for one in (values, exact[node]))
            is_same = held.shape == same.shape and deviation(same, held) <= SAME
            if is_same and was.is_floating_point() and value.is_floating_point():
                found[node] = deviation(was, value)
    return found


def _laid_like(value: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Return an image in channels-last order, if that order matches the other image's sizes."""
    last = value.permute(0, 2, 3, 1) if value.dim() == other.dim() == 4 else value
    return last if last.shape == other.shape != value.shape else value


def _values(
    program: Program, method: str, inputs: Sequence[Any], kind: type[RecordingInterpreter]
) -> dict[str, list[torch.Tensor]]:
    """Return a mapping from each node to the results of its ops, in order."""
    func: FuncOp = program.method(method)
    interpreter = kind(program.weights, {})
    interpreter.call(func, tuple(inputs))
    tensors: dict[str, list[torch.Tensor]] = {}
    for value, number in interpreter.values.items():
        owner = value.owner
        if not isinstance(owner, Operation) or isinstance(owner, WeightOp) or owner.regions:
            continue
        node = node_name(owner.location)
        if node is not None and isinstance(number, torch.Tensor):
            tensors.setdefault(node, []).append(as_real(value, number))
    return tensors
