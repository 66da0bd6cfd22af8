"""Measure how a program amplifies errors in the last bits of its floats.

Two float kernels agree to about 1e-6. Where a program quantizes their results, that difference
decides how some elements are rounded, and the outputs of a deep network then differ by far more.
The same happens where nearly equal numbers cancel. The effect is measured: the program is
interpreted with noise of that size in every float.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from xdsl.dialects.builtin import AnyFloat, TensorType
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue

from stepwell.ir.core import StateOp, WeightOp
from stepwell.ir.declared.interpretation import Interpreter
from stepwell.ir.diagnostics import op_name
from stepwell.ir.dtypes import bf16, f16
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import Bound
from stepwell.ir.types import element
from stepwell.ir.weights import WeightStore
from stepwell.validation.compare import deviation
from stepwell.validation.samples import Sample

NOISE = 1e-6
"""The possible difference of float kernels, relative to the largest number in a tensor; for halves,
a step.
"""
_MX = ("stepwell_mx.", "tosa_mxfp.", "tosa.cast_to_block_scaled")
"""Ops that round floats to a payload, whose type may be a float, too."""

TRIALS, MARGIN = 3, 4.0
"""The number of noises tried, and the factor by which an engine may exceed the worst of them."""


def rounds_floats(program: Program) -> bool:
    """Whether an op converts floats to integers (quantized ones, too), MX payloads or halves."""
    return any(
        op_name(op).startswith(_MX)
        or any(
            isinstance(r.type, TensorType) and element(r.type) in (f16, bf16) for r in op.results
        )
        or (
            _is_float(operand)
            and any(isinstance(r.type, TensorType) and not _is_float(r) for r in op.results)
        )
        for op in program.module.walk()
        if not op.regions
        for operand in op.operands
    )


def _is_float(value: SSAValue) -> bool:
    return isinstance(value.type, TensorType) and isinstance(element(value.type), AnyFloat)


@dataclass
class NoisyInterpreter(Interpreter):
    """An interpreter that adds noise to every float that an op computes.

    Attributes:
        noise: its size, relative to the largest number in a tensor; of a half, at least a step.
    """

    generator: torch.Generator = field(default_factory=torch.Generator)
    noise: float = NOISE

    def step(self, op: Operation, environment: dict[SSAValue, Any]) -> None:
        """Evaluate an op, then add noise to its float results."""
        super().step(op, environment)
        if isinstance(op, WeightOp | StateOp):
            return
        for result in op.results:
            value = environment[result]
            if isinstance(value, torch.Tensor) and _is_computed(value):
                noise = torch.rand(value.shape, generator=self.generator, dtype=value.dtype)
                environment[result] = value + (2.0 * noise - 1.0) * self.size_of(op, value)

    def size_of(self, op: Operation, value: torch.Tensor) -> Any:
        """Return the largest noise in the result of an op."""
        largest = value[value.isfinite()].abs().amax() if value.isfinite().any() else 0.0
        return max(self.noise, torch.finfo(value.dtype).eps) * largest


def _is_computed(value: torch.Tensor) -> bool:
    """Whether a tensor contains floats for arithmetic, not MX codes or scales."""
    return value.is_floating_point() and value.dtype.itemsize > 1 and value.numel() > 0


def sensitivity(
    func: FuncOp,
    weights: WeightStore,
    inputs: tuple[Any, ...],
    state: Mapping[str, torch.Tensor] | None = None,
    interpreter: type[NoisyInterpreter] = NoisyInterpreter,
) -> float:
    """Return how much float noise changes the outputs, relative to the largest number in each, with
    a margin.

    Args:
        func: the method.
        weights: the weights of its program.
        inputs: the inputs of the call.
        state: the values of mutable buffers; by default their initial values.
        interpreter: the interpreter that adds the noise.
    """
    held = dict(state or {})
    exact = Interpreter(weights, dict(held)).call(func, inputs).outputs
    worst = 0.0
    for seed in range(TRIALS):
        noisy = interpreter(weights, dict(held), generator=torch.Generator().manual_seed(seed))
        outputs = noisy.call(func, inputs).outputs
        moved = [deviation(a, b) for a, b in zip(exact, outputs, strict=True)]
        worst = max([worst, *moved])
    return MARGIN * worst


def with_noise(bound: Bound, program: Program, method: str, sample: Sample) -> Bound:
    """Return a bound that is widened by the effect of float noise on a sample.

    The effect is large where floats are rounded to integers, and where nearly equal numbers cancel,
    as in the instance norm of an image of one color.
    """
    func, state = program.method(method), dict(sample.state)
    moved = sensitivity(func, program.weights, sample.inputs, state)
    what = "decides roundings to integers" if rounds_floats(program) else "is amplified"
    reason = f"{bound.reason}; noise in floats {what}"
    return replace(bound, relative=bound.relative + moved, reason=reason)
