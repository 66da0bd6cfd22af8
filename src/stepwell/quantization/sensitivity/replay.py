"""Replay of a method on one batch, with some quantization points quantized and others freed.

The first run stores every value. For another choice of quantization points, or another weight, only
ops that depend on the change run again. MX products are computed as products of rounded operands;
the order of summation is not the artifact's.
"""

from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor
from xdsl.dialects.func import ReturnOp
from xdsl.ir import Operation, SSAValue

from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.calls.calling import bind_inputs
from stepwell.ir.core import MutateInputOp, UpdateOp, WeightOp
from stepwell.ir.declared.interpretation import Interpreter
from stepwell.quantization.sensitivity.grids import rounded
from stepwell.quantization.sensitivity.metrics import Batch, Tally, judged
from stepwell.quantization.sensitivity.quantization_points import MX, Quantized, Site
from stepwell.translate.rewrites.mxfp.choose_mxfp import (
    MxConv2dOp,
    MxLinearOp,
    MxMatmulOp,
    block_axis,
    payload_fields,
)

T = TypeVar("T")
Given = Mapping[Site, Mapping[int, Tensor]]
"""Operands that quantization points read in place of their own, by point and operand number."""
Adjust = Callable[[SSAValue, Any], Any]
"""A function of a quantization point's result."""


@dataclass
class Playback:
    """The recorded values of a run on one batch, from which other runs start.

    Attributes:
        quantized: the program.
        inputs: the inputs of the method, flat.
        free: whether quantization points are freed in the stored run.
        grad: whether to record the graph for gradients.
    """

    quantized: Quantized
    inputs: Sequence[Any]
    free: bool
    grad: bool = False
    adjust: Adjust | None = None
    given: Given = field(default_factory=dict[Site, Mapping[int, Tensor]])
    parameters: Mapping[str, Tensor] = field(default_factory=dict[str, Tensor])
    """Weights by key, in place of those of the store."""
    values: dict[SSAValue, Any] = field(init=False)
    outputs: tuple[Any, ...] = field(init=False)

    def __post_init__(self) -> None:
        func = self.quantized.func
        self._of_op = {site.op: site for site in self.quantized.sites}
        self._runs = Interpreter(self.quantized.program.weights)
        inputs = bind_inputs(func, list(self.inputs))
        self.values = dict(zip(func.body.block.args, inputs, strict=True))
        free = set(self._of_op) if self.free else set[Operation]()
        with torch.set_grad_enabled(self.grad):
            self.outputs = self._play(self.values, None, free, self.given)

    def flipped(self, *sites: Site) -> tuple[Any, ...]:
        """Return the outputs with these points switched between quantized and freed."""
        return self.again(sites, {})

    def quantizing(self, quantized: Set[SSAValue]) -> tuple[Any, ...]:
        """Return the outputs with all quantization points freed but for these operands."""
        readers = {op for op in self._of_op if not quantized.isdisjoint(op.operands)}
        with torch.set_grad_enabled(self.grad):
            return self._play(
                ChainMap({}, self.values), readers, set(self._of_op), self.given, quantized
            )

    def again(self, flip: Sequence[Site], given: Given) -> tuple[Any, ...]:
        """Return the outputs with switched quantization points and with other operands."""
        flipped = {site.op for site in flip}
        free = (set(self._of_op) - flipped) if self.free else flipped
        changed = {*flipped, *(site.op for site in given)}
        with torch.set_grad_enabled(self.grad):
            return self._play(ChainMap({}, self.values), changed, free, {**self.given, **given})

    def operands(self, site: Site, free: bool) -> list[Any]:
        """Return the operands of a quantization point in the stored run, quantized or not."""
        return self._operands(site.op, self.values, free, {})

    def evaluated(self, site: Site, operands: Sequence[Any], free: bool) -> Sequence[Any]:
        """Compute the results of a site's op from operands; an MX product first rounds them to its
        MX formats, unless `free`.
        """
        return self._evaluate(site.op, operands, free, self.values)

    def _play(
        self,
        values: Any,
        changed: set[Operation] | None,
        free: set[Operation],
        given: Given,
        quantized: Set[SSAValue] = frozenset(),
    ) -> tuple[Any, ...]:
        """Run the ops that depend on a change; all ops if `changed` is None."""
        dirty: set[SSAValue] = set()
        for op in self.quantized.func.body.block.ops:
            if isinstance(op, UpdateOp | MutateInputOp):
                continue
            is_free = op in free
            if changed is not None and op not in changed and dirty.isdisjoint(op.operands):
                ahead = self.quantized.ahead if is_free else {}
                if dirty.isdisjoint(ahead.get(value, value) for value in op.operands):
                    continue
            operands = self._operands(op, values, is_free, given, quantized)
            if isinstance(op, ReturnOp):
                return tuple(operands)
            results = self._results(op, operands, is_free, values)
            if changed is not None:
                dirty.update(op.results)
            values.update(zip(op.results, results, strict=True))
        return self.outputs

    def _results(
        self, op: Operation, operands: Sequence[Any], free: bool, values: Any
    ) -> Sequence[Any]:
        if isinstance(op, WeightOp) and op.key.data in self.parameters:
            results = (self.parameters[op.key.data],)
        else:
            results = self._evaluate(op, operands, free, values)
        if self.grad and op.results and (ahead := self.quantized.ahead.get(op.results[0])):
            x = values[ahead]  # Gradients pass a rounding as if it were none.
            results = (x + (results[0] - x).detach(),)
        if self.adjust is not None and op in self._of_op:
            results = tuple(map(self.adjust, op.results, results))
        return results

    def _operands(
        self,
        op: Operation,
        values: Any,
        free: bool,
        given: Given,
        quantized: Set[SSAValue] = frozenset(),
    ) -> list[Any]:
        site = self._of_op.get(op)
        if site is None:
            return [values[value] for value in op.operands]
        own = given.get(site, {}) if not free else {}
        ahead = self.quantized.ahead if free else {}
        found = [
            values[value if value in quantized else ahead.get(value, value)]
            for value in op.operands
        ]
        for at, tensor in {**(site.floats if free else {}), **own}.items():
            found[at] = tensor
        return found

    def _evaluate(
        self, op: Operation, operands: Sequence[Any], free: bool, values: Any
    ) -> Sequence[Any]:
        if not isinstance(op, MX):
            bound: dict[SSAValue, Any] = dict(zip(op.operands, operands, strict=True))
            for region in op.regions:  # Values that a region captures.
                for inner in region.walk():
                    bound.update((v, values[v]) for v in inner.operands if v in values)
            self._runs.step(op, bound)
            return [bound[result] for result in op.results]
        assert isinstance(op, SchemaOp)
        x, other = operands[0], operands[1]
        bias = operands[2] if len(operands) > 2 else None
        if not free:
            axis, (first, second) = block_axis(op), payload_fields(op)
            groups: int = op.arg("groups") if isinstance(op, MxConv2dOp) else 1
            x = rounded(x, op.arg(first), axis, groups)
            other = rounded(other, op.arg(second), axis)
        if isinstance(op, MxLinearOp):
            return (F.linear(x, other, bias),)
        if isinstance(op, MxMatmulOp):
            return (torch.matmul(x, other.transpose(1, 2)),)
        names = ("stride", "padding", "dilation")
        stride, padding, dilation = (list[int](op.arg(name)) for name in names)
        return (F.conv2d(x, other, bias, stride, padding, dilation, op.arg("groups")),)


def divergences(
    pair: Quantized, batches: Sequence[Batch], ways: Mapping[T, Callable[[Playback], Sequence[Any]]]
) -> dict[T, float]:
    """Return the mean divergence from the float model for each function that computes outputs."""
    lost = {way: Tally() for way in ways}
    for inputs, labels in batches:
        floats = Playback(pair, inputs, free=True)
        for way, outputs in ways.items():
            lost[way].add(judged(outputs(floats), labels, floats.outputs).divergence)
    return {way: tally.mean for way, tally in lost.items()}
