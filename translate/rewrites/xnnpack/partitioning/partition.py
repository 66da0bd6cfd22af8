"""Partitioning: form as few XNNPACK delegates as the data flow and the memory of loading allow.

Every op gets a stage. An xnnpack op is at least in the stage of its xnnpack operands, and one stage
after its other operands. Any other op is in the latest stage of its operands. All xnnpack ops of
one stage can form one delegate: an edge never goes back a stage, and goes through an op outside
only to a later stage, so no cycle can form. The number of delegates is the longest chain of
alternations, which is a lower bound for every partition. With `optimize="memory"` a stage with many
weights becomes several delegates, because packing their weights then takes less memory
(`PartitionXnnpack`).

Nodes whose results kernels read become kernels if they only reshape or slice kernels' results, or
multiply one by a constant vector, because the call of a delegate costs more.

Outside delegates a quantized value is represented by its stored integers. The casts that state its
quantized type (`quant.scast`) are inside the delegates that read or produce it, and nowhere else.

Packed weights move into the delegate. A constant that XNNPACK does not copy stays outside and is
passed as an input, because runtimes free constant data to which XNNPACK only points.

Before:
    func.func @forward(%x: tensor<1x4xf32>) -> tensor<1x4xf32> {
      %a = xnnpack.abs(%x) : (tensor<1x4xf32>) -> tensor<1x4xf32>
      %b = aten.erf.default(%a) : (tensor<1x4xf32>) -> tensor<1x4xf32>
      %c = xnnpack.negate(%b) : (tensor<1x4xf32>) -> tensor<1x4xf32>
      func.return %c : tensor<1x4xf32>
    }
After: two delegates with `aten.erf.default` between them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, cast

from xdsl.dialects.func import ReturnOp
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.traits import IsTerminator

from stepwell.dialects.delegate import NamedDelegateOp
from stepwell.dialects.quant.ops import StorageCast
from stepwell.dialects.quant.types import quantization, storage_element
from stepwell.dialects.xnnpack import DelegateOp, DynamicInt8Type, XnnpackOp, YieldOp
from stepwell.ir.compat.xdsl.xdsl_private import operands_of
from stepwell.ir.core import MutateInputOp, StateOp, UpdateOp, WeightOp
from stepwell.ir.levels import set_level
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import History, Pass
from stepwell.ir.traversal import walk
from stepwell.ir.types import AnyTensor, element, with_element
from stepwell.ir.weight_bytes import dense_size
from stepwell.translate.memory import MEMORY
from stepwell.translate.rewrites.xnnpack.partitioning.small_stages import leave_to_kernels

_ALWAYS_FIRST = (WeightOp, StateOp)
_ALWAYS_LAST = (UpdateOp, MutateInputOp, ReturnOp)


def _stands_last(op: Operation) -> bool:
    return isinstance(op, _ALWAYS_LAST) or op.has_trait(IsTerminator)


SPARES = 2 << 20
"""Bytes that each further delegate must save where memory counts."""
BEFORE = 48
"""How many nodes before its weight limit a delegate may end, where fewer values are live."""


@dataclass(frozen=True)
class PartitionXnnpack(Pass):
    """Group the xnnpack ops of each stage into delegates; the module is then at the delegate level.

    While the runtime loads a delegate, the file's copy of all its weights is in memory next to the
    packed weights. The runtime releases the file's pages once the delegate is loaded. With one
    delegate, the peak of memory is therefore twice the weights W. Delegates are loaded one after
    another. If the first delegate has half of the weights, the second half of the rest and so on,
    the peak with n delegates is W · 2ⁿ / (2ⁿ - 1).

    Attributes:
        spares: the bytes by which one more delegate must lower the peak. None means one delegate
            per stage, except in a lowering with `optimize="memory"`, where it means 2 MiB.
    """

    name: ClassVar[str] = "partition-xnnpack"
    spares: int | None = None

    def apply(self, program: Program, history: History) -> int:
        """Return the number of created delegates."""
        spares = self.spares
        if spares is None and program.context.option("optimize") == MEMORY:
            spares = SPARES
        made = sum(partition(func.body.block, spares) for func in program.methods.values())
        set_level(program.module, "xnnpack")
        ops = walk(program.module)  # Each node is in a delegate now.
        program.report("delegates", sum(isinstance(op, DelegateOp) for op in ops))
        program.report("nodes in delegates", sum(isinstance(op, XnnpackOp) for op in ops))
        return made


def partition(block: Block, spares: int | None = None) -> int:
    """Partition a block and the regions in it; return the number of delegates.

    Existing delegates do not change.
    """
    inner = sum(
        partition(b, spares)
        for op in block.ops
        if not isinstance(op, DelegateOp | NamedDelegateOp)
        for region in op.regions
        for b in region.blocks
    )
    wanted = _take_casts_away(block)
    stages, members = _members(block, wanted)
    while any(map(leave_to_kernels, members.values())):
        stages, members = _members(block, wanted)
    first = [op for op in block.ops if isinstance(op, _ALWAYS_FIRST)]
    last = [op for op in block.ops if _stands_last(op)]
    middle = [op for op in block.ops if op in stages]
    memory = _Memory.of([members[stage] for stage in sorted(members)], spares)
    delegates = {
        stage: [_delegate(part, wanted) for part in _parts(members[stage], memory)]
        for stage in sorted(members)
    }
    ordered: list[Operation] = []
    for stage in sorted(set(stages.values())):
        ordered += delegates.get(stage, [])
        ordered += [op for op in middle if stages[op] == stage and not isinstance(op, XnnpackOp)]
    for op in [*first, *middle, *last]:
        if op.parent is block:
            op.detach()
    block.add_ops([*first, *ordered, *last])
    return inner + sum(map(len, delegates.values()))


def _members(
    block: Block, wanted: Wanted
) -> tuple[dict[Operation, int], dict[int, list[Operation]]]:
    """Return the stage of each op of a block, and the nodes of each stage.

    A stage is merged into the next one if no kernel of its own stage reads it.
    """
    stages = _stages(block, wanted)
    members: dict[int, list[Operation]] = {}
    for op, stage in stages.items():
        if isinstance(op, XnnpackOp):
            members.setdefault(stage, []).append(op)
    for stage in sorted(members)[:-1]:
        if not any(_must_stay(op, stages, wanted) for op in members[stage]):
            moved = members.pop(stage)
            stages.update(dict.fromkeys(moved, stage + 1))
            members[stage + 1] = [*moved, *members[stage + 1]]
    return stages, members


def _must_stay(op: Operation, stages: Mapping[Operation, int], wanted: Wanted) -> bool:
    """Whether a kernel of its stage, or a node that needs another quantization, reads a node."""
    uses = [use for result in op.results for use in result.uses]
    return any(
        wanted[use.operation][use.index] != use.operation.operands[use.index].type
        if isinstance(use.operation, XnnpackOp)
        else stages.get(use.operation) == stages[op]
        for use in uses
    )


@dataclass
class _Memory:
    """The memory in use while delegates are loaded one after another, in bytes.

    Attributes:
        most: the weight bytes, packed or not, that should be in memory at once; None for no limit.
        least: the smallest share of all weights for which a delegate is ended.
        spares: the bytes by which one more delegate must lower the peak.
        packed: the weight bytes of the delegates loaded so far.
    """

    most: float | None = None
    least: float = 0.0
    spares: int = 0
    packed: int = 0

    @staticmethod
    def of(stages: Sequence[list[Operation]], spares: int | None) -> _Memory:
        """Return the memory budget for loading these stages in order; a peak below the memory used
        at run time is allowed.
        """
        weights = [_weights(ops) for ops in stages]
        total, packed, peak = sum(weights), 0, 0
        for weight in weights:
            packed += weight
            peak = max(peak, packed + weight)
        if spares is None or peak - total < spares:
            return _Memory()
        running = total + max(size or 0 for ops in stages for size in _alive(ops))

        def reached(parts: int) -> float:
            return max(total * 2**parts / (2**parts - 1), running)

        parts = 1
        while reached(parts) - reached(parts + 1) >= max(spares, 1):
            parts += 1
        if peak - reached(parts) < max(spares, 1):
            return _Memory()
        return _Memory(reached(parts), total / (2**parts - 1), max(spares, 1))

    def share(self, rest: int) -> float:
        """Return the weight bytes that the next delegate may have; they are in memory twice."""
        assert self.most is not None
        if self.packed + 2 * rest < self.most + self.spares:
            return rest
        return max(self.least, (self.most - self.packed) / 2)


def _parts(ops: list[Operation], memory: _Memory) -> list[list[Operation]]:
    """Split a stage's ops, in order, so that the weights fit and few values are live in between."""
    if memory.most is None:
        return [ops]
    alive = _alive(ops)
    parts: list[list[Operation]] = []
    start = 0
    while (end := _end(ops, start, memory.share(_weights(ops[start:])), alive)) is not None:
        parts.append(ops[start:end])
        memory.packed += _weights(parts[-1])
        start = end
    memory.packed += _weights(ops[start:])
    return [*parts, ops[start:]]


def _end(ops: list[Operation], start: int, share: float, alive: Sequence[int | None]) -> int | None:
    """Return the end of a delegate that begins at `start`; None if it is the end of its stage."""
    full, held = _filled(ops, start, share)
    if full is None:
        return None
    enough = held[full - start - 1] * 3 / 4
    ends = [
        end
        for end in range(max(start + 1, full - BEFORE), full + 1)
        if held[end - start - 1] >= enough and alive[end] is not None
    ]
    ends = ends or [end for end in range(full, len(ops)) if alive[end] is not None][:1]
    return min(ends, key=lambda end: (alive[end] or 0, -end), default=None)


def _filled(ops: list[Operation], start: int, share: float) -> tuple[int | None, list[int]]:
    """Return where ops from `start` on have read a share of the weights; None if all weights fit.

    Also return the weights that are read up to and including each op.
    """
    seen: set[SSAValue] = set()
    held: list[int] = []
    for at in range(start, len(ops)):
        more = [
            operand
            for index, operand in enumerate(ops[at].operands)
            if _is_packed(ops[at], index) and operand not in seen
        ]
        seen.update(more)
        before = held[-1] if held else 0
        taken = before + sum(_bytes(value.type) for value in dict.fromkeys(more))
        if before and taken > share:
            return at, held
        held.append(taken)
    return None, held


def _weights(ops: Iterable[Operation]) -> int:
    """Return the size in bytes of the weights that XNNPACK packs for these ops."""
    read = {
        operand for op in ops for index, operand in enumerate(op.operands) if _is_packed(op, index)
    }
    return sum(_bytes(value.type) for value in read)


def _bytes(type_: Attribute) -> int:
    """Return the size of a tensor in bytes; symbolic sizes count as 1."""
    return dense_size(cast(AnyTensor, type_))


def bytes_in_memory(value: SSAValue) -> int:
    """Return the bytes of a value between delegates; None for rows with one scale each."""
    is_dynamic = isinstance(element(value.type), DynamicInt8Type)
    return 0 if is_dynamic else _bytes(_stored(value.type))


def _alive(ops: list[Operation]) -> list[int | None]:
    """Return the bytes that pass each index from earlier to later ops; None if a cut is not
    allowed.

    Dynamically quantized rows stay in their delegate: their scales have no type outside.
    """
    place = {op: index for index, op in enumerate(ops)}
    crossing: list[int] = [0] * (len(ops) + 1)
    closed = [False] * (len(ops) + 1)
    for index, op in enumerate(ops):
        for result in op.results:
            last = max((place.get(use.operation, index) for use in result.uses), default=index)
            is_dynamic = isinstance(element(result.type), DynamicInt8Type)
            size = bytes_in_memory(result)
            for between in range(index + 1, last + 1):
                crossing[between] += size
                closed[between] |= is_dynamic
    return [None if shut else size for shut, size in zip(closed, crossing, strict=True)]


Wanted = dict[Operation, list[Attribute]]
"""The types in which nodes read their operands; the operands may be the storage of those types."""


def _take_casts_away(block: Block) -> Wanted:
    """Make every op read the value before storage casts; return the types that the nodes require.

    The casts of this block are removed: each delegate that needs a cast creates its own.
    """
    wanted: Wanted = {}
    for op in block.ops:
        if isinstance(op, StorageCast):
            continue
        if isinstance(op, XnnpackOp):
            wanted[op] = [operand.type for operand in operands_of(op)]
        is_open = op.regions and not isinstance(op, DelegateOp)
        for reader in op.walk() if is_open else (op,):
            for index, operand in enumerate(operands_of(reader)):
                if type(operand.owner) is StorageCast:
                    reader.operands[index] = _storage_root(operand)
    for op in reversed(list(block.ops)):
        if isinstance(op, StorageCast):
            op.detach()
            op.erase()
    return wanted


def _storage_root(value: SSAValue) -> SSAValue:
    """Return the value at the start of a chain of storage casts, which has the same integers."""
    while isinstance(value.owner, StorageCast):
        value = value.owner.input
    return value


def _stored(type_: Attribute) -> Attribute:
    """Return the type of a value outside delegates."""
    type_quantization = quantization(type_)
    return (
        type_
        if type_quantization is None
        else with_element(type_, storage_element(type_quantization))
    )


def _stages(block: Block, wanted: Wanted) -> dict[Operation, int]:
    stages: dict[Operation, int] = {}
    for op in block.ops:
        if isinstance(op, _ALWAYS_FIRST) or _stands_last(op):
            continue
        inside = isinstance(op, XnnpackOp)
        stage = 1 if inside else 0
        for index, operand in enumerate(_reads(op)):
            owner = operand.owner
            if owner in stages:
                assert isinstance(owner, Operation)
                is_edge = isinstance(owner, XnnpackOp) and (
                    not inside or operand.type == wanted[op][index]
                )
                stage = max(stage, stages[owner] + (1 if inside and not is_edge else 0))
        stages[op] = stage
    return stages


def _reads(op: Operation) -> Sequence[SSAValue]:
    """Return the operands of an op and of all ops in its regions."""
    if not op.regions:
        return operands_of(op)
    return [operand for inner in op.walk() for operand in inner.operands]


def _delegate(ops: list[Operation], wanted: Wanted) -> DelegateOp:
    """Move `ops` into a new delegate op; outside uses read its results."""
    members = set(ops)
    inputs: dict[tuple[SSAValue, Attribute], int] = {}
    packed: dict[tuple[SSAValue, Attribute], None] = {}
    for op in ops:
        for index, operand in enumerate(op.operands):
            if operand.owner in members:
                continue
            key = operand, wanted[op][index]
            if _is_packed(op, index):
                packed.setdefault(key)
            else:
                inputs.setdefault(key, len(inputs))
    outputs = [
        result
        for op in ops
        for result in op.results
        if any(use.operation not in members for use in result.uses)
    ]
    body = Block(arg_types=[_stored(type_) for _, type_ in inputs])
    inside: dict[tuple[SSAValue, Attribute], SSAValue] = {}
    weights: dict[tuple[SSAValue, Attribute], SSAValue] = {}
    for (value, type_), index in inputs.items():
        body.args[index].name_hint = value.name_hint
        inside[value, type_] = _named(body, body.args[index], type_)
    copies: dict[SSAValue, SSAValue] = {}
    for value, type_ in packed:
        if value not in copies:
            assert isinstance(value.owner, WeightOp)
            copied = value.owner.clone()
            body.add_op(copied)
            copied.result.name_hint = value.name_hint
            copies[value] = copied.result
        weights[value, type_] = _named(body, copies[value], type_)
    for op in ops:
        op.detach()
        for index, operand in enumerate(op.operands):
            if operand.owner in members:
                continue
            key = operand, wanted[op][index]
            op.operands[index] = weights[key] if _is_packed(op, index) else inside[key]
        body.add_op(op)
    delegate = DelegateOp.create(
        operands=[value for value, _ in inputs],
        result_types=[_stored(output.type) for output in outputs],
        regions=[Region(body)],
    )
    for output, result in zip(outputs, delegate.results, strict=True):
        result.name_hint = output.name_hint
        output.replace_uses_with_if(result, lambda use: use.operation not in members)
    body.add_op(YieldOp.create(operands=[_named(body, o, _stored(o.type)) for o in outputs]))
    if ops:
        delegate.location = ops[-1].location
    return delegate


def _is_packed(op: Operation, index: int) -> bool:
    """Whether an operand is a constant that XNNPACK copies."""
    is_weight = type(operands_of(op)[index].owner) is WeightOp
    return is_weight and isinstance(op, XnnpackOp) and op.packs(index)


def _named(body: Block, value: SSAValue, type_: Attribute) -> SSAValue:
    """Give a value another type with the same storage, at the end of a block."""
    if value.type == type_:
        return value
    cast = StorageCast(value, type_)
    body.add_op(cast)
    cast.result.name_hint = value.name_hint
    return cast.result
