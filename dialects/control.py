"""The `control` dialect: PyTorch's higher-order operators, with their graphs as regions.

A region is isolated: it uses only its block arguments (weights are passed as operands), and it ends
in `control.yield`.

    %y = control.cond %p (%x, %w) ({
    ^bb0(%a: tensor<2xf32>, %b: tensor<2xf32>):
      ...
      control.yield %r : tensor<2xf32>
    }, {...}) : (tensor<i1>, tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>

Semantics: `torch.cond`, `torch.while_loop`, `torch._higher_order_ops.map` and `scan` (PyTorch,
torch/_higher_order_ops).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from xdsl.ir import Attribute, Dialect, Region, SSAValue
from xdsl.irdl import (
    AttrSizedOperandSegments,
    IRDLOperation,
    irdl_op_definition,
    operand_def,
    region_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from xdsl.traits import IsolatedFromAbove, IsTerminator, RecursiveMemoryEffect
from xdsl.utils.exceptions import VerifyException

from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.declared.inference import infers
from stepwell.ir.declared.interpretation import Interpreter, interprets
from stepwell.ir.dtypes import torch_dtype
from stepwell.ir.sizes.size import Dim
from stepwell.ir.types import dims, element, tensor

_ISOLATED = traits_def(IsolatedFromAbove(), RecursiveMemoryEffect())


@irdl_op_definition
class YieldOp(IRDLOperation):
    """The terminator of a region; its operands are the region's results."""

    name = "control.yield"
    values = var_operand_def()
    traits = traits_def(IsTerminator())
    assembly_format: ClassVar[str] = "($values^ `:` type($values))? attr-dict"

    def __init__(self, *values: SSAValue) -> None:
        super().__init__(operands=[values])


def yielded(region: Region) -> list[Attribute]:
    """Return the types of a region's results."""
    last = region.block.last_op
    if not isinstance(last, YieldOp):
        raise VerifyException("a region does not end in control.yield")
    return [value.type for value in last.values]


def _check_arguments(region: Region, wanted: Sequence[Attribute], what: str) -> None:
    taken = [arg.type for arg in region.block.args]
    if taken != list(wanted):
        raise VerifyException(f"{what} takes ({_list(taken)}), but is passed ({_list(wanted)})")


def _check_yield(region: Region, wanted: Sequence[Attribute], what: str) -> None:
    given = yielded(region)
    if given != list(wanted):
        raise VerifyException(f"{what} yields ({_list(given)}), but must yield ({_list(wanted)})")


def _list(types: Sequence[Attribute]) -> str:
    return ", ".join(str(t) for t in types)


def _types(values: Sequence[SSAValue]) -> list[Attribute]:
    return [value.type for value in values]


@irdl_op_definition
class CondOp(IRDLOperation):
    """`torch.cond`: one of two regions, selected by a bool or by a tensor with one element."""

    name = "control.cond"
    predicate = operand_def()
    inputs = var_operand_def()
    if_true = region_def()
    if_false = region_def()
    outputs = var_result_def()
    traits = _ISOLATED
    assembly_format: ClassVar[str] = (
        "$predicate `(` $inputs `)` attr-dict `:` "
        "functional-type(operands, $outputs) $if_true `else` $if_false"
    )

    def verify_(self) -> None:
        """Check that both regions take the inputs and yield the results."""
        for region, what in (
            (self.if_true, "the true branch"),
            (self.if_false, "the false branch"),
        ):
            _check_arguments(region, _types(self.inputs), what)
            _check_yield(region, _types(self.outputs), what)


@irdl_op_definition
class WhileLoopOp(IRDLOperation):
    """`while_loop`: repeat with the results of `body` as `carried` while `condition`
    yields true.
    """

    name = "control.while_loop"
    carried = var_operand_def()
    additional = var_operand_def()
    condition = region_def()
    body = region_def()
    outputs = var_result_def()
    irdl_options = (AttrSizedOperandSegments(as_property=True),)
    traits = _ISOLATED
    assembly_format: ClassVar[str] = (
        "`(` $carried `)` `with` `(` $additional `)` attr-dict `:` `(` type($carried) `)` `,` "
        "`(` type($additional) `)` `->` `(` type($outputs) `)` $condition `do` $body"
    )

    def verify_(self) -> None:
        """Check that both regions take carried and additional values, and the body yields carried
        ones.
        """
        taken = [*_types(self.carried), *_types(self.additional)]
        _check_arguments(self.condition, taken, "the condition")
        _check_arguments(self.body, taken, "the body")
        _check_yield(self.body, _types(self.outputs), "the body")
        if len(yielded(self.condition)) != 1:
            raise VerifyException("the condition must yield one bool")


@irdl_op_definition
class MapOp(IRDLOperation):
    """`map`: apply the body to slices of the first axis of `sequences` and stack its results."""

    name = "control.map"
    sequences = var_operand_def()
    additional = var_operand_def()
    body = region_def()
    outputs = var_result_def()
    irdl_options = (AttrSizedOperandSegments(as_property=True),)
    traits = _ISOLATED
    assembly_format: ClassVar[str] = (
        "`(` $sequences `)` `with` `(` $additional `)` attr-dict `:` `(` type($sequences) `)` `,` "
        "`(` type($additional) `)` `->` `(` type($outputs) `)` $body"
    )

    def verify_(self) -> None:
        """Check that the body takes one slice of each sequence, and the additional values."""
        wanted = [*(_slice(t) for t in _types(self.sequences)), *_types(self.additional)]
        _check_arguments(self.body, wanted, "the body")


@irdl_op_definition
class ScanOp(IRDLOperation):
    """`scan`: carry `initial` through the body along axis 0 and stack its other results."""

    name = "control.scan"
    initial = var_operand_def()
    sequences = var_operand_def()
    additional = var_operand_def()
    body = region_def()
    outputs = var_result_def()
    irdl_options = (AttrSizedOperandSegments(as_property=True),)
    traits = _ISOLATED
    assembly_format: ClassVar[str] = (
        "`(` $initial `)` `over` `(` $sequences `)` `with` `(` $additional `)` attr-dict "
        "`:` `(` type($initial) `)` `,` `(` type($sequences) `)` `,` `(` type($additional) `)` "
        "`->` `(` type($outputs) `)` $body"
    )

    def verify_(self) -> None:
        """Check that the body takes carried values, a slice of each sequence, and additional
        values.
        """
        sliced = [_slice(t) for t in _types(self.sequences)]
        wanted = [*_types(self.initial), *sliced, *_types(self.additional)]
        _check_arguments(self.body, wanted, "the body")


@irdl_op_definition
class MapRowsOp(IRDLOperation):
    """Apply a body to blocks of rows of axis 0, and concatenate its results.

    A row of a result depends on the same row of the operand alone. The size of a block is the
    symbol of the body's argument, and the symbol's range has its largest number of rows. A `scan`
    over the results calls the body when it reaches a block, so that no more rows are in memory.
    """

    name = "control.map_rows"
    sequence = operand_def()
    body = region_def()
    outputs = var_result_def()
    traits = _ISOLATED
    assembly_format: ClassVar[str] = (
        "$sequence attr-dict `:` functional-type(operands, $outputs) $body"
    )

    def verify_(self) -> None:
        """Check that the body takes rows of the operand, and yields as many."""
        [block] = [*_types(self.body.block.args)] or [None]
        if block is None or _slice(block) != _slice(self.sequence.type):
            raise VerifyException("the body must take rows of the operand")
        if any(dims(type_)[0] != dims(block)[0] for type_ in yielded(self.body)):
            raise VerifyException("the body must yield as many rows as it takes")


def _slice(type_: Attribute) -> Attribute:
    return tensor(dims(type_)[1:], element(type_))


def _stacked(length: Dim, types: Sequence[Attribute]) -> list[Attribute]:
    return [tensor([length, *dims(t)], element(t)) for t in types]


@infers(CondOp)
def _infer_cond(op: CondOp) -> Sequence[Attribute]:
    return yielded(op.if_true)


@infers(WhileLoopOp)
def _infer_while(op: WhileLoopOp) -> Sequence[Attribute]:
    return yielded(op.body)


@infers(MapOp)
def _infer_map(op: MapOp) -> Sequence[Attribute]:
    return _stacked(dims(op.sequences[0].type)[0], yielded(op.body))


@infers(MapRowsOp)
def _infer_map_rows(op: MapRowsOp) -> Sequence[Attribute]:
    return _stacked(dims(op.sequence.type)[0], [_slice(t) for t in yielded(op.body)])


@infers(ScanOp)
def _infer_scan(op: ScanOp) -> Sequence[Attribute]:
    given, carried = yielded(op.body), len(op.initial)
    length = dims(op.sequences[0].type)[0]
    return [*given[:carried], *_stacked(length, given[carried:])]


def _is_true(value: Any) -> bool:
    return bool(value.item()) if isinstance(value, torch.Tensor) else bool(value)


@interprets(CondOp)
def _run_cond(op: CondOp, args: Sequence[Any], ctx: Interpreter) -> Sequence[Any]:
    return ctx.run_region(op.if_true if _is_true(args[0]) else op.if_false, args[1:])


@interprets(WhileLoopOp)
def _run_while(op: WhileLoopOp, args: Sequence[Any], ctx: Interpreter) -> Sequence[Any]:
    carried, additional = list(args[: len(op.carried)]), list(args[len(op.carried) :])
    while _is_true(ctx.run_region(op.condition, [*carried, *additional])[0]):
        carried = list(ctx.run_region(op.body, [*carried, *additional]))
    return carried


@interprets(MapOp)
def _run_map(op: MapOp, args: Sequence[Any], ctx: Interpreter) -> Sequence[Any]:
    sequences, additional = args[: len(op.sequences)], args[len(op.sequences) :]
    steps = [
        ctx.run_region(op.body, [*(s[i] for s in sequences), *additional])
        for i in range(sequences[0].shape[0])
    ]
    return _stack(op.outputs, steps)


@interprets(MapRowsOp)
def _run_map_rows(op: MapRowsOp, args: Sequence[Any], ctx: Interpreter) -> Sequence[Any]:
    return ctx.run_region(op.body, args)


@interprets(ScanOp)
def _run_scan(op: ScanOp, args: Sequence[Any], ctx: Interpreter) -> Sequence[Any]:
    first, second = len(op.initial), len(op.initial) + len(op.sequences)
    carried, sequences, additional = list(args[:first]), args[first:second], args[second:]
    steps: list[tuple[Any, ...]] = []
    for index in range(sequences[0].shape[0]):
        step = [sequence[index] for sequence in sequences]
        region = ctx.run_region(op.body, [*carried, *step, *additional])
        carried = list(region[:first])
        steps.append(region[first:])
    return [*carried, *_stack(op.outputs[first:], steps)]


def _stack(outputs: Sequence[SSAValue], steps: list[tuple[Any, ...]]) -> list[Any]:
    if not steps:
        return [
            torch.empty(
                [d for d in dims(v.type) if isinstance(d, int)], dtype=torch_dtype(element(v.type))
            )
            for v in outputs
        ]
    return [torch.stack(list(column)) for column in zip(*steps, strict=True)]


Control = Dialect("control", [YieldOp, CondOp, WhileLoopOp, MapOp, MapRowsOp, ScanOp])
