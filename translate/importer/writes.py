"""A call that writes in place becomes ops that give what is there then, and so for all views."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch.fx import Node
from xdsl.dialects.builtin import TensorType
from xdsl.ir import SSAValue

from stepwell.dialects.aten.registry import of_overload, op_class
from stepwell.ir.declared.inference import infer
from stepwell.ir.types import dims, element, is_static
from stepwell.translate.importer.aliases import arguments
from stepwell.translate.importer.functionalized import written_call
from stepwell.translate.importer.interface import Importer
from stepwell.translate.importer.mutation import Write, functional_overload, is_written
from stepwell.translate.importer.view_inverses import Appends, is_reshape, put_back


def import_write(importer: Importer, node: Node, writes: tuple[Write, ...]) -> None:
    """A call that writes, as planned. What was read before it keeps its value.

    Raises:
        StepwellError: the operator has no form in the IR.
    """
    given = arguments(node)
    if not writes:
        importer.values[node] = importer.value(given["self"])
        return
    if not is_written(node.target):
        after = _with_statistics(importer, node, given)
    elif functional_overload(node.target) is None:
        after = _custom(importer, node, given)
    else:
        after = _functional(importer, node)
    for write, value in zip(writes, after, strict=False):
        _renew(importer, node, write, value)


def _writer(importer: Importer, at: Node) -> Appends:
    """Appends ops by their names, at the line of a node; nodes among arguments are their values."""

    def value(item: Any) -> Any:
        if isinstance(item, list | tuple):
            return [value(part) for part in cast(Sequence[Any], item)]
        return importer.value(item) if isinstance(item, Node) else item

    def append(name: str, *args: Any, **kwargs: Any) -> SSAValue:
        values = {key: value(item) for key, item in kwargs.items()}
        op = op_class(f"aten.{name}").make(*map(value, args), **values)
        op.location = importer.shared.locations.of(at)
        importer.block.add_op(op)
        return op.results[0]

    return append


def _renew(importer: Importer, node: Node, write: Write, value: SSAValue) -> None:
    """What a tensor is after a write, for its own nodes and for all that share its memory."""
    for member in write.same:
        importer.values[member] = value
    write_op = _writer(importer, node)
    for renewal in write.renewals:
        base, piece = importer.value(renewal.view.base), renewal.piece
        if renewal.is_base:
            value = put_back(write_op, renewal.view, base, importer.value(piece))
        elif is_reshape(renewal.view) and is_static(of := importer.value(piece).type):
            value = write_op("view.default", base, list(dims(of)))
        else:
            importer.call(renewal.view.node)
            if piece is not renewal.view.node:
                importer.call(piece)
            value = importer.value(piece)
        for member in renewal.nodes:
            importer.values[member] = value


def _functional(importer: Importer, node: Node) -> list[SSAValue]:
    """The functional overload, whose result stands for the tensor that was written.

    What it wrote keeps the tensor's dtype, to which the functional overload need not promote.
    """
    op = importer.operator_call(node, functional_overload(node.target))
    if op is None:
        return []
    stated = op.results[0].type
    kinds = {element(v.type) for v in op.operands if isinstance(v.type, TensorType)}
    inferred = infer(op) if kinds != {element(stated)} else None
    if inferred is not None and inferred[0] != stated:
        promoted = type(op).create(
            operands=op.operands,
            result_types=inferred,
            properties=op.properties,
            attributes=op.attributes,
        )
        op.erase()
        importer.append(promoted, node)
        cast = of_overload(torch.ops.aten._to_copy.default)
        op = cast.make(promoted.results[0], dtype=element(stated), result_types=[stated])
    importer.append(op, node)
    return [op.results[0]]


def _with_statistics(importer: Importer, node: Node, given: dict[str, Any]) -> list[SSAValue]:
    """A batch norm in training, which gives its running statistics anew."""
    names = "input weight bias running_mean running_var".split()
    tensors = {n: importer.value(given[n]) for n in names if given.get(n) is not None}
    numbers = {n: given[n] for n in ("training", "momentum", "eps")}
    op = op_class("aten._native_batch_norm_legit_functional.default").make(**tensors, **numbers)
    op.location = importer.shared.locations.of(node)
    importer.block.add_op(op)
    importer.values[node] = op.results[0]
    return [*op.results[3:]]


def _custom(importer: Importer, node: Node, given: dict[str, Any]) -> list[SSAValue]:
    """A user's operator, which gives what it has written behind what it returns."""
    returns = node.meta["val"]
    op = written_call(importer, node.target, given, {}, () if returns is None else returns)
    written: list[SSAValue] = [*op.results[len(op.results) - len(op.SCHEMA.written) :]]
    op.location = importer.shared.locations.of(node)
    importer.block.add_op(op)
    returned = list(op.results[: len(op.results) - len(written)])
    is_one = len(returned) == 1 and not isinstance(returns, list | tuple)
    importer.values[node] = returned[0] if is_one else list(returned)
    return written
