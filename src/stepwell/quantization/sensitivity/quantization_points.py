"""Quantization points of a program: ops that read quantized operands, and the float operands.

A quantization point is an op that reads the result of a dequantize op, or an MX product. A point is
*freed* if it reads unquantized operands: an activation before its quantize op, and the float
model's weight and bias. Layers of the quantized and the float program are paired in program order,
by their shapes.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Operation, SSAValue

from stepwell.ir.core import WeightOp, weight_key
from stepwell.ir.diagnostics import StepwellError, module_path, node_name, op_name
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import run_rewrites
from stepwell.translate.mxfp.conversion import prepared
from stepwell.translate.rewrites.layers import fold_batch_norm
from stepwell.translate.rewrites.mxfp.choose_mxfp import MxConv2dOp, MxLinearOp, MxMatmulOp

MX = (MxLinearOp, MxConv2dOp, MxMatmulOp)
DEQUANTIZES = ("quantized_decomposed.dequantize_", "torchao.dequantize_affine")
QUANTIZES = ("quantized_decomposed.quantize_", "torchao.quantize_affine")
LAYERS = ("aten.linear", "aten.conv", "aten.addmm", "aten.embedding", "stepwell_mx.linear")
"""Prefixes of the names of ops with weights of their own."""


@dataclass(frozen=True, eq=False)
class Site:
    """An op that reads quantized operands.

    Attributes:
        name: the name of the op's module, followed by that of the node if the module computes
            several (`blocks.0 (add_1)`); the name of a node without a module.
        op: the op in the quantized program.
        weight: the index of the weight operand, or None.
        floats: the float model's weight and bias, by operand index.
    """

    name: str
    op: Operation
    weight: int | None = None
    floats: Mapping[int, Tensor] = field(default_factory=dict[int, Tensor])

    @property
    def module(self) -> str:
        """Return the prefix of the name that points of one module share."""
        return self.name.partition(" (")[0]

    @property
    def is_mx(self) -> bool:
        """Whether the op is an MX product."""
        return isinstance(self.op, MX)

    @property
    def elements(self) -> int:
        """Return the number of elements of the op's weight; 0 without a weight."""
        return 0 if self.weight is None else _elements(self.op.operands[self.weight])


@dataclass(frozen=True)
class Quantized:
    """A quantized program, and the float program from which it was quantized.

    Attributes:
        program: the program with quantize and dequantize ops, or MX products, at level `aten`.
        original: the program in floats.
    """

    program: Program
    original: Program

    @cached_property
    def func(self) -> FuncOp:
        """Return the method that is measured."""
        return self.program.method()

    @cached_property
    def ahead(self) -> dict[SSAValue, SSAValue]:
        """Return a dequantized activation's value before its quantize op."""
        values: dict[SSAValue, SSAValue] = {}
        for op in self.func.body.block.ops:
            if op_name(op).startswith(DEQUANTIZES):
                source = op.operands[0].owner
                if isinstance(source, Operation) and op_name(source).startswith(QUANTIZES):
                    values[op.results[0]] = source.operands[0]
        return values

    @cached_property
    def sites(self) -> tuple[Site, ...]:
        """Return all quantization points, in program order.

        Raises:
            StepwellError: nothing of the program is quantized.
        """
        pairs = self.layers
        found = [
            self._site(op, pairs.get(op))
            for op in self.func.body.block.ops
            if isinstance(op, MX) or any(map(is_dequantized, op.operands))
        ]
        if not found:
            raise StepwellError(
                "no op of the program is quantized, so quantization loses nothing",
                help='set quantize="int8", "8da4w" or "mx:fp4e2m1" (--quantize)',
            )
        shared = {name for name, n in Counter(site.name for site in found).items() if n > 1}
        unique: dict[str, Site] = {}
        for site in found:
            name, node = site.name, node_name(site.op.location)
            if name in shared and node not in (None, name):
                name = f"{name} ({node})"  # The module computes several.
            parts = 1  # An attention has two products.
            while name in unique:
                parts += 1
                name = f"{site.name} ({node or op_name(site.op)}, part {parts})"
            unique[name] = Site(name, site.op, site.weight, site.floats)
        return tuple(unique.values())

    def _site(self, op: Operation, other: Operation | None) -> Site:
        if isinstance(op, ReturnOp):
            return Site("output", op)
        named = op if other is None else other
        name = module_path(named.location) or node_name(named.location) or op_name(op)
        weight = next((at for at in range(len(op.operands)) if is_weight(op.operands[at])), None)
        floats: dict[int, Tensor] = {}
        for at, value in enumerate(op.operands if other is not None else ()):
            if constant_key(value) is not None and at < len(other.operands if other else ()):
                key = weight_key(other.operands[at]) if other is not None else None
                held = None if key is None else self.original.weights.get(key)
                if held is not None and held.numel() == _elements(value):
                    floats[at] = held.reshape(_shape(value))
        return Site(name, op, weight, floats)

    @cached_property
    def layers(self) -> dict[Operation, Operation]:
        """Pair the quantized program's layers with the float program's; none if they differ.

        The quantized program may have additional layers, into which its quantizer decomposed a
        norm. Layers are then paired by their modules.
        """
        ours = [op for op in self.func.body.block.ops if _is_layer(op)]
        theirs = [op for op in self.original.method().body.block.ops if _is_layer(op)]
        if [*map(_size, ours)] == [*map(_size, theirs)]:
            return dict(zip(ours, theirs, strict=True))
        rest = iter(ours)
        pairs = [
            (next((op for op in rest if _is_named_like(op, one)), None), one) for one in theirs
        ]
        found = {op: one for op, one in pairs if op is not None}
        return found if len(found) == len(theirs) else {}


def paired(program: Program, original: Program) -> Quantized:
    """Pair a quantized program with the float one, in canonical forms whose layers correspond.

    PT2E quantizers fold batch norms into weights; if they did, the float program is folded too.
    """
    simple = prepared(original, False)
    if not any("batch_norm" in op_name(op) for op in program.method().walk()):
        run_rewrites(simple, [rule() for rule in fold_batch_norm.RULES])
    return Quantized(program, simple)


def is_dequantized(value: SSAValue) -> bool:
    """Whether a value is the result of a dequantize op."""
    return isinstance(value.owner, Operation) and op_name(value.owner).startswith(DEQUANTIZES)


def constant_key(value: SSAValue) -> str | None:
    """Return the key of a weight, or of the integers from which it is dequantized."""
    owner = value.owner
    return weight_key(owner.operands[0] if isinstance(owner, Operation) and is_dequantized(value)
                      else value)  # fmt: skip


def is_weight(value: SSAValue) -> bool:
    """Whether a value is a constant of rank 2 or more."""
    return constant_key(value) is not None and len(_shape(value)) > 1


def _weights(op: Operation) -> Iterator[SSAValue]:
    return (value for value in op.operands if is_weight(value))


def _is_layer(op: Operation) -> bool:
    is_named = op_name(op).startswith((*LAYERS, MxConv2dOp.name))
    return is_named and not isinstance(op, WeightOp) and any(_weights(op))


def _size(op: Operation) -> int:
    """Return the number of elements of a layer's weights."""
    return sum(map(_elements, _weights(op)))


def _is_named_like(op: Operation, other: Operation) -> bool:
    """Whether two layers belong to the same module and have the same size."""
    module, theirs = module_path(op.location), module_path(other.location)
    return module == theirs and _size(op) == _size(other)


def _shape(value: SSAValue) -> Sequence[Any]:
    shape = getattr(value.type, "get_shape", None)
    return () if shape is None else shape()


def _elements(value: SSAValue) -> int:
    return torch.Size(_shape(value)).numel()
