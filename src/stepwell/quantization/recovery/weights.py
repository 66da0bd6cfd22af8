"""Weights of a quantized program that recovery methods may change, and writing them back."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor
from xdsl.dialects.builtin import TensorType
from xdsl.ir import Operation, SSAValue

from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.compat.xdsl.xdsl_private import set_type
from stepwell.ir.core import WeightOp, weight_key
from stepwell.ir.declared.interpretation import Interpreter
from stepwell.ir.program import Program
from stepwell.ir.types import WeightAttr
from stepwell.quantization.sensitivity.quantization_points import (
    Quantized,
    Site,
    constant_key,
    is_dequantized,
)
from stepwell.quantization.sensitivity.replay import Given, Playback


@dataclass(frozen=True)
class Steps:
    """The quantization grid of a weight: `(q - zero) * scale`, all of the weight's shape.

    Attributes:
        key: the key of the integers in the weight store.
        scale, zero: for each element.
        low, high: the smallest and the largest integer.
        dtype: the dtype of the stored integers.
    """

    key: str
    scale: Tensor
    zero: Tensor
    low: int
    high: int
    dtype: torch.dtype

    def integers(self, weight: Tensor) -> Tensor:
        """Return the integers of the grid that are nearest to a weight."""
        return (weight / self.scale + self.zero).round().clamp(self.low, self.high)

    def rounded(self, weight: Tensor) -> Tensor:
        """Round a weight to the grid; gradients pass unchanged unless a number is clipped."""
        with torch.no_grad():
            held = (self.integers(weight) - self.zero) * self.scale
        low, high = (self.low - self.zero) * self.scale, (self.high - self.zero) * self.scale
        inside = torch.minimum(torch.maximum(weight, low), high)
        return inside + (held - inside).detach()


def steps_of(pair: Quantized, value: SSAValue) -> Steps | None:
    """Return the grid of a dequantized weight; None if the value is not a constant of this kind."""
    op = value.owner
    if not isinstance(op, SchemaOp) or not is_dequantized(value):
        return None
    key = constant_key(value)
    if key is None:
        return None
    weight = pair.program.weights.get(key)
    runs = Interpreter(pair.program.weights)

    def dequantized(integer: int) -> Tensor:
        bound: dict[SSAValue, Any] = {}
        for operand in op.operands:
            if isinstance(operand.owner, Operation):
                runs.step(operand.owner, bound)
        bound[op.operands[0]] = torch.full_like(weight, integer)
        runs.step(op, bound)
        return bound[op.results[0]].float()

    scale = dequantized(1) - dequantized(0)
    if not bool((scale > 0).all()):
        return None
    low, high = cast(int, op.arg("quant_min")), cast(int, op.arg("quant_max"))
    high = min(high, (1 << 31) - 128)  # The largest int32 that is a float32.
    return Steps(key, scale, -dequantized(0) / scale, low, high, weight.dtype)


@dataclass
class Weights:
    """The weights of a quantized program before rounding, which a recovery method chooses.

    Attributes:
        pair: the quantized program of these weights, and its float program.
        plain: float parameters, and parameters that MX products round, by key.
        stepped: integer weights and biases, by quantization point and operand, with their grids.
    """

    pair: Quantized
    plain: dict[str, Tensor]
    stepped: dict[tuple[Site, int], tuple[Tensor, Steps]]

    @classmethod
    def of(cls, pair: Quantized) -> Weights:
        """Return the weights of the float model."""
        plain: dict[str, Tensor] = {}
        for op in pair.func.body.block.ops:
            if not isinstance(op, WeightOp) or op.kind.data != "parameter":
                continue
            if any(result.uses for result in op.results):
                weight = pair.program.weights.get(op.key.data)
                if weight.dtype == torch.float32:
                    plain[op.key.data] = weight.clone()
        stepped: dict[tuple[Site, int], tuple[Tensor, Steps]] = {}
        read = Counter(constant_key(value) for site in pair.sites for value in site.op.operands)
        for site in pair.sites:
            own = [] if site.weight is None else range(site.weight, len(site.op.operands))
            for at in own:
                steps = steps_of(pair, site.op.operands[at])
                if steps is None or read[steps.key] > 1:
                    continue  # Two layers share it: it is not chosen for one of them.
                now = pair.program.weights.get(steps.key).float()
                numbers = site.floats.get(at, (now - steps.zero) * steps.scale)
                stepped[site, at] = numbers.float().clone(), steps
        return cls(pair, plain, stepped)

    def numbers(self, op: Operation, at: int) -> Tensor | None:
        """Return an operand before rounding, if a recovery method chooses it; else None."""
        own = next((site for site in self.pair.sites if site.op is op), None)
        if own is not None and (own, at) in self.stepped:
            return self.stepped[own, at][0]
        return self.plain.get(weight_key(op.operands[at]) or "")

    def tensors(self) -> list[Tensor]:
        """Return all tensors that a recovery method chooses."""
        return [*self.plain.values(), *(numbers for numbers, _ in self.stepped.values())]

    def given(self) -> Given:
        """Return the tensors that quantization points read in place of the program's weights."""
        tensors: dict[Site, dict[int, Tensor]] = {}
        for (site, at), (numbers, steps) in self.stepped.items():
            tensors.setdefault(site, {})[at] = steps.rounded(numbers)
        return tensors

    def run(self, inputs: Any, grad: bool = False) -> Playback:
        """Run the program on a batch with these weights."""
        return Playback(
            self.pair, inputs, free=False, grad=grad, given=self.given(), parameters=self.plain
        )

    def moved(self, pair: Quantized) -> Weights:
        """Return the same numbers for another program with the same quantization points, on that
        program's grids.
        """
        named = {site.name: site for site in pair.sites}
        stepped: dict[tuple[Site, int], tuple[Tensor, Steps]] = {}
        for (site, at), (numbers, _) in self.stepped.items():
            own = named[site.name]
            steps = steps_of(pair, own.op.operands[at])
            assert steps is not None
            stepped[own, at] = numbers, steps
        return Weights(pair, self.plain, stepped)

    def copy(self) -> Weights:
        """Return a copy with separate tensors."""
        stepped = {k: (w.detach().clone(), s) for k, (w, s) in self.stepped.items()}
        return Weights(self.pair, {k: w.detach().clone() for k, w in self.plain.items()}, stepped)

    def program(self) -> Program:
        """Return a program with these weights."""
        result = self.pair.program.clone()
        integers = {
            steps.key: steps.integers(numbers.detach()).to(steps.dtype)
            for numbers, steps in self.stepped.values()
        }
        renamed: dict[str, str] = {}
        for key, tensor in {**self.plain, **integers}.items():
            renamed[key] = result.weights.constant(tensor.detach().contiguous(), f"{key}.cured")
        for op in result.method().walk():
            if isinstance(op, WeightOp) and op.key.data in renamed:
                op.properties["key"] = WeightAttr(renamed[op.key.data])
        return result


BALANCED = "balanced"
"""Marker in the keys of float constants whose channels were scaled."""


def renew(
    program: Program, op: Operation, at: int, tensor: torch.Tensor, why: str = "cured"
) -> None:
    """Replace a constant operand of an op; other users of the old constant keep it."""
    old = op.operands[at].owner
    assert isinstance(old, WeightOp)
    new = old.clone()
    key = program.weights.constant(tensor.contiguous(), f"{old.key.data}.{why}")
    new.properties["key"] = WeightAttr(key)
    set_type(new.result, TensorType(old.result.type.element_type, tensor.shape))
    block = old.parent
    assert block is not None
    block.insert_op_after(new, old)
    op.operands[at] = new.results[0]
