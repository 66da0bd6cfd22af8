"""Write recurrent layers as loops over their steps.

The products of all steps' inputs are one linear layer. A step of all directions is the body of a
`scan`, which holds the weights of the states once, however many steps there are. Sequences of
dynamic length have no other form; those of static length become loops where the copies of the
weights that unrolled steps need would be larger than `MOST_UNROLLED`.

Before:
    func.func @forward(%x: tensor<?x1x2xf32, #stepwell.shape<["s", 1, 2]>>, %h: tensor<1x1x2xf32>) -> (tensor<?x1x2xf32, #stepwell.shape<["s", 1, 2]>>, tensor<1x1x2xf32>) {
      %w = stepwell.weight <"w"> "parameter" : tensor<2x2xf32>
      %u = stepwell.weight <"u"> "parameter" : tensor<2x2xf32>
      %y, %e = aten.rnn_relu.input(%x, %h, [%w, %u], false, 1, 0.0, false, false, false) : (tensor<?x1x2xf32, #stepwell.shape<["s", 1, 2]>>, tensor<1x1x2xf32>, tensor<2x2xf32>, tensor<2x2xf32>) -> (tensor<?x1x2xf32, #stepwell.shape<["s", 1, 2]>>, tensor<1x1x2xf32>)
      func.return %y, %e : tensor<?x1x2xf32, #stepwell.shape<["s", 1, 2]>>, tensor<1x1x2xf32>
    }
After:
    func.func @forward(%x: tensor<?x1x2xf32, #stepwell.shape<["s", 1, 2]>>, %h: tensor<1x1x2xf32>) -> (tensor<?x1x2xf32, #stepwell.shape<["s", 1, 2]>>, tensor<1x1x2xf32>) {
      %w = stepwell.weight <"w"> "parameter" : tensor<2x2xf32>
      %u = stepwell.weight <"u"> "parameter" : tensor<2x2xf32>
      %0 = aten.select.int(%h, 0, 0) : (tensor<1x1x2xf32>) -> tensor<1x2xf32>
      %1 = aten.linear.default(%x, %w) : (tensor<?x1x2xf32, #stepwell.shape<["s", 1, 2]>>, tensor<2x2xf32>) -> tensor<?x1x2xf32, #stepwell.shape<["s", 1, 2]>>
      %2, %y = control.scan(%0) over(%1) with(%u) : (tensor<1x2xf32>), (tensor<?x1x2xf32, #stepwell.shape<["s", 1, 2]>>), (tensor<2x2xf32>) -> (tensor<1x2xf32>, tensor<?x1x2xf32, #stepwell.shape<["s", 1, 2]>>) {
      ^bb0(%3: tensor<1x2xf32>, %4: tensor<1x2xf32>, %5: tensor<2x2xf32>):
        %6 = aten.t.default(%5) : (tensor<2x2xf32>) -> tensor<2x2xf32>
        %7 = aten.mm.default(%3, %6) : (tensor<1x2xf32>, tensor<2x2xf32>) -> tensor<1x2xf32>
        %8 = aten.add.Tensor(%4, %7) : (tensor<1x2xf32>, tensor<1x2xf32>) -> tensor<1x2xf32>
        %9 = aten.relu.default(%8) : (tensor<1x2xf32>) -> tensor<1x2xf32>
        control.yield %9, %9 : tensor<1x2xf32>, tensor<1x2xf32>
      }
      %e = aten.stack.default([%2]) : (tensor<1x2xf32>) -> tensor<1x1x2xf32>
      func.return %y, %e : tensor<?x1x2xf32, #stepwell.shape<["s", 1, 2]>>, tensor<1x1x2xf32>
    }
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, ClassVar

from torch import Tensor
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.aten.registry import torch_overload
from stepwell.dialects.control import MapRowsOp, ScanOp, YieldOp
from stepwell.ir.core import WeightOp, weight_key
from stepwell.ir.declared.bounds import roundings
from stepwell.ir.dtypes import element_bytes
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import Bound, Refusal, Rewrite, Rewriter
from stepwell.ir.signature import get_signature, method_of, ranges_around, set_signature
from stepwell.ir.sizes.size import Size
from stepwell.ir.sizes.size_ranges import interval
from stepwell.ir.types import dims, element, tensor
from stepwell.translate.decompositions.traced.recurrences import CELL_OF, sorted_weights
from stepwell.translate.rewrites.building import cat, emit, permute, static_dims, view
from stepwell.translate.rewrites.calls.traced_calls import Trace, trace_function

MOST_UNROLLED = 4 << 20
"""The most bytes of state weights, packed once for each step, of an unrolled layer."""
MOST_PRODUCTS = 1 << 20
"""The most bytes of all steps' input products that are computed at once."""
BLOCK = 64
"""The rows of such products that are otherwise computed together, when a step needs the first."""


@dataclass(frozen=True)
class Loop:
    """A recurrent layer.

    Attributes:
        op: the layer.
        states: its states before the first step, each `[layers * directions, batch, features]`.
        params: the weights of each layer and direction: of inputs and state, biases, projection.
        step: the calls of one step, on the product of its input, its states and its weights.
    """

    op: SchemaOp
    states: tuple[SSAValue, ...]
    params: tuple[tuple[SSAValue | None, ...], ...]
    step: Trace


@dataclass(frozen=True)
class LoopRecurrence(Rewrite[Loop]):
    """Replace a recurrent layer by linear layers and a `scan` for each of its layers."""

    name: ClassVar[str] = "loop-recurrence"
    anchors: ClassVar[tuple[type[Operation], ...]] = (
        aten.LstmInput,
        aten.GruInput,
        aten.RnnTanhInput,
        aten.RnnReluInput,
    )
    bound: ClassVar[Bound] = roundings("the products of all inputs are one product")
    takes_empty: ClassVar[bool] = False

    def match(self, op: SchemaOp, program: Program) -> Loop | Refusal | None:
        """Match layers in inference of dynamic length, or with large weights."""
        x, begin = op.operands[0], op.arg("hx")
        states = tuple(begin) if isinstance(begin, list) else (begin,)
        sizes, params = dims(x.type), op.arg("params")
        if any(len(dims(value.type)) != 3 for value in (x, *states)):
            return Refusal("the input is not a batch of sequences")
        if len({element(value.type) for value in op.operands}) > 1:
            return Refusal("weights and input have different element types")
        if op.arg("train") and op.arg("dropout"):
            return Refusal("dropout of training draws numbers")
        length = sizes[int(op.arg("batch_first"))]
        ways = 1 + op.arg("bidirectional")
        each = len(params) // (op.arg("num_layers") * ways)
        groups = tuple(
            sorted_weights(params[at : at + each], op.arg("has_biases"))
            for at in range(0, len(params), each)
        )
        dtype = element(x.type)
        if isinstance(length, int):
            held = (
                length
                * sum(prod(static_dims(group[1]) or ()) for group in groups)
                * element_bytes(dtype)
            )
            if held <= MOST_UNROLLED:
                return None
        batch = sizes[1 - op.arg("batch_first")]
        if any(dims(state.type)[1] != batch for state in states):
            return Refusal("the states' batch is not the input's")
        gates = dims(groups[0][1].type)[0]
        types = [tensor([batch, n], dtype) for n in (gates, *(dims(s.type)[-1] for s in states))]
        used = [value for value in groups[0][1:] if value is not None]
        cell = CELL_OF[torch_overload(type(op))]

        def step(given: Tensor, *rest: Tensor) -> Sequence[Tensor]:
            state, held = rest[: len(states)], iter(rest[len(states) :])
            weights = [None, *(None if of is None else next(held) for of in groups[0][1:])]
            return cell(given, state, weights)

        traced = trace_function(step, [*types, *(value.type for value in used)], ranges_around(op))
        return traced if isinstance(traced, Refusal) else Loop(op, states, groups, traced)

    def build(self, match: Loop, rw: Rewriter) -> None:
        """Build the loops of the layers, one after the other."""
        op, states = match.op, match.states
        x, ways = op.operands[0], 1 + op.arg("bidirectional")
        if op.arg("batch_first"):
            x = _turned(rw, x)
        ends: list[list[SSAValue]] = [[] for _ in states]
        for at in range(0, len(match.params), ways):
            begin = [_picked(rw, s, at + way) for way in range(ways) for s in states]
            x, last = _layer(match.step, x, begin, match.params[at : at + ways], rw)
            for index, value in enumerate(last):
                ends[index % len(states)].append(value)
        if op.arg("batch_first"):
            x = _turned(rw, x)
        rw.replace(
            op, [x, *(_stacked(rw, v, r.type) for v, r in zip(ends, op.results[1:], strict=True))]
        )


def _layer(
    step: Trace,
    x: SSAValue,
    begin: Sequence[SSAValue],
    params: Sequence[Sequence[SSAValue | None]],
    rw: Rewriter,
) -> tuple[SSAValue, list[SSAValue]]:
    """Build the loop of one layer in all directions; return its rows, and its states at the end."""
    length, dtype, ways = dims(x.type)[0], element(x.type), len(params)
    given = [
        _products(rw, _flipped(rw, x) if way else x, weights[0], weights[2])
        for way, weights in enumerate(params)
    ]
    used = [[v for v in weights[1:] if v is not None] for weights in params]
    rows = [tensor(dims(value.type)[1:], dtype) for value in given]
    types = [value.type for value in (*begin, *(v for group in used for v in group))]
    count = len(begin)
    block = Block(arg_types=[*types[:count], *rows, *types[count:]])
    args = list(block.args)
    rest = iter(args[count + ways :])

    def insert(op: Operation) -> Operation:
        op.location = rw.root.location
        block.add_op(op)
        return op

    found: list[SSAValue] = []
    for way, group in enumerate(used):
        state = args[way * count // ways : (way + 1) * count // ways]
        found += step.put([args[count + way], *state, *(next(rest) for _ in group)], insert)
    hidden = found[:: count // ways]
    block.add_op(YieldOp(*found, *hidden))
    outputs = [tensor([length, *dims(value.type)], dtype) for value in hidden]
    scan = ScanOp.build(
        operands=[list(begin), given, [v for group in used for v in group]],
        regions=[Region(block)],
        result_types=[[*(value.type for value in found), *outputs]],
    )
    (*results,) = rw.insert(scan).results
    lines = [_flipped(rw, line) if way else line for way, line in enumerate(results[count:])]
    return cat(rw, lines, 2), list(results[:count])


def _turned(rw: Rewriter, x: SSAValue) -> SSAValue:
    """Exchange time and batch, by a view if the batch is one sequence."""
    first, second, features = dims(x.type)
    if 1 in (first, second):
        return view(rw, x, (second, first, features))
    return permute(rw, x, (1, 0, 2))


def _products(rw: Rewriter, x: SSAValue, weight: Any, bias: SSAValue | None) -> SSAValue:
    """Build the products of all inputs: at once, or `BLOCK` rows at a time if they are large."""
    made = dims(weight.type)[0]
    type_ = tensor([*dims(x.type)[:-1], made], element(x.type))
    sizes = [interval(Size.of(size), ranges_around(rw.root))[1] for size in dims(type_)]
    most = prod(size or 0 for size in sizes) * element_bytes(element(x.type))  # None: no bound.
    is_computed = any(of is not None and weight_key(of) is None for of in (weight, bias))
    if most <= MOST_PRODUCTS or is_computed:
        op = aten.LinearDefault.make(x, weight, bias, result_types=[type_])
        return emit(rw, op)
    rows = Size.symbol(_block_size(rw.root))
    block = Block(arg_types=[tensor([rows, *dims(x.type)[1:]], element(x.type))])
    held = [None if of is None else _held(block, of, rw) for of in (weight, bias)]
    types: list[Attribute] = [tensor([rows, *dims(type_)[1:]], element(x.type))]
    linear = aten.LinearDefault.make(block.args[0], *held, result_types=types)
    linear.location = rw.root.location
    block.add_ops([linear, YieldOp(linear.results[0])])
    op = MapRowsOp.build(operands=[x], regions=[Region(block)], result_types=[[type_]])
    return rw.insert(op).results[0]


def _held(block: Block, weight: SSAValue, rw: Rewriter) -> SSAValue:
    """Add a weight to the body of a loop."""
    assert isinstance(weight.owner, WeightOp)
    op = WeightOp(weight.owner.key.data, weight.type, weight.owner.kind.data)
    op.location = rw.root.location
    block.add_op(op)
    return op.result


def _block_size(op: Operation) -> str:
    """Declare the size of a block as a symbol of the method, and return its name."""
    func = method_of(op)
    assert func is not None
    signature, name = get_signature(func), f"rows{BLOCK}"
    if name not in signature.ranges:
        ranges = {**signature.ranges, name: (1, BLOCK)}
        set_signature(func, replace(signature, ranges=ranges))
    return name


def _flipped(rw: Rewriter, x: SSAValue) -> SSAValue:
    return emit(rw, aten.FlipDefault.make(x, [0], result_types=[x.type]))


def _picked(rw: Rewriter, state: SSAValue, at: int) -> SSAValue:
    types: list[Attribute] = [tensor(dims(state.type)[1:], element(state.type))]
    return emit(rw, aten.SelectInt.make(state, 0, at, result_types=types))


def _stacked(rw: Rewriter, values: Sequence[SSAValue], type_: Attribute) -> SSAValue:
    return emit(rw, aten.StackDefault.make(list(values), result_types=[type_]))
