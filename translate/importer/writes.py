"""Import of calls that write in place, as ops that return new values, also for all views."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch.fx import Node
from xdsl.dialects.builtin import TensorType
from xdsl.ir import SSAValue

from stepwell.dialects.aten.registry import of_overload, op_class
from stepwell.ir.declared.inference import infer
from stepwell.ir.types import dims, element, is_static
from stepwell.translate.importer.aliases import arguments
from stepwell.translate.importer.context import Importer
from stepwell.translate.importer.functionalized import written_call
from stepwell.translate.importer.mutation import Write, functional_form, is_written
from stepwell.translate.importer.view_inverses import is_reshape, put_back


def import_write(importer: Importer, node: Node, writes: tuple[Write, ...]) -> None:
    """Import a call that writes, as planned; earlier users keep the old value.

    Raises:
        StepwellError: the IR has no equivalent of the operator.
    """
    given = arguments(node)
    if not writes:
        importer.values[node] = importer.value(given["self"])
        return
    if not is_written(node.target):
        after = _with_statistics(importer, node, given)
    elif functional_form(node.target) is None:
        after = _custom(importer, node, given)
    else:
        after = _functional(importer, node)
    for write, value in zip(writes, after, strict=False):
        _renew(importer, node, write, value)


def _renew(importer: Importer, node: Node, write: Write, value: SSAValue) -> None:
    """Set the new value of a tensor after a write, for all nodes that share its memory."""
    for member in write.same:
        importer.values[member] = value
    emit = partial(importer.emit, node)
    for renewal in write.renewals:
        base, piece = importer.value(renewal.view.base), renewal.piece
        if renewal.is_base:
            value = put_back(emit, renewal.view, base, importer.value(piece))
        elif is_reshape(renewal.view) and is_static(of := importer.value(piece).type):
            value = emit("view.default", base, list(dims(of)))
        else:
            importer.call(renewal.view.node)
            if piece is not renewal.view.node:
                importer.call(piece)
            value = importer.value(piece)
        for member in renewal.nodes:
            importer.values[member] = value


def _functional(importer: Importer, node: Node) -> list[SSAValue]:
    """Return the results of the functional overload, which replace the written tensor.

    They are cast to the tensor's dtype, since the functional overload may promote.
    """
    op = importer.operator_call(node, functional_form(node.target))
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
    """Import a batch norm in training, which returns its new running statistics."""
    names = "input weight bias running_mean running_var".split()
    tensors = {n: importer.value(given[n]) for n in names if given.get(n) is not None}
    numbers = {n: given[n] for n in ("training", "momentum", "eps")}
    op = op_class("aten._native_batch_norm_legit_functional.default").make(**tensors, **numbers)
    importer.insert(op, node)
    importer.values[node] = op.results[0]
    return [*op.results[3:]]


def _custom(importer: Importer, node: Node, given: dict[str, Any]) -> list[SSAValue]:
    """Import a custom operator, which returns the written values after its results."""
    returns = node.meta["val"]
    op = written_call(importer, node.target, given, {}, () if returns is None else returns)
    written: list[SSAValue] = [*op.results[len(op.results) - len(op.SCHEMA.written) :]]
    importer.insert(op, node)
    returned = list(op.results[: len(op.results) - len(written)])
    is_one = len(returned) == 1 and not isinstance(returns, list | tuple)
    importer.values[node] = returned[0] if is_one else list(returned)
    return written
