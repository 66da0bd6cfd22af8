"""Read delegates of a `.pte` of any producer: Vela's commands, and TOSA operators."""

from collections.abc import Sequence
from typing import cast

import torch
from xdsl.dialects.builtin import StringAttr
from xdsl.dialects.func import ReturnOp
from xdsl.ir import Attribute, Operation, SSAValue

from stepwell.backends.ethos_u.configuration import stated_config
from stepwell.backends.ethos_u.vela import read_stream
from stepwell.backends.executorch.container import Delegate
from stepwell.backends.executorch.reading.readers import ReadContext
from stepwell.backends.tosa.bind_sizes import bind_sizes, has_symbolic_sizes
from stepwell.backends.tosa.graph import Graph
from stepwell.backends.tosa.read import program_of, read_graph
from stepwell.dialects.cmsis.ops.base import to_attribute
from stepwell.dialects.ethosu import BinaryOp, DelegateOp, YieldOp
from stepwell.ir.diagnostics import ParseFailure, UnsupportedError
from stepwell.ir.dtypes import torch_dtype
from stepwell.ir.types import WeightAttr, dims, element, is_static


class EthosuReader:
    """Reads a delegate's payload as an `ethosu.binary`."""

    def input_count(self, delegate: Delegate, context: ReadContext) -> int:
        """Return the number of inputs that the payload's block of inputs states."""
        return len(read_stream(bytes(delegate.payload)).inputs)

    def read(
        self,
        delegate: Delegate,
        inputs: Sequence[SSAValue],
        results: Sequence[Attribute],
        context: ReadContext,
    ) -> Operation:
        """Return the delegate as an op whose payload is a weight.

        Raises:
            ParseFailure: the payload does not consist of Vela's blocks.
        """
        payload = bytes(delegate.payload)
        stream = read_stream(payload)
        held = torch.frombuffer(bytearray(payload), dtype=torch.uint8)
        key = context.weights.add(f"{context.prefix}.payload", held)
        target = dict(delegate.options).get("target", b"ethos-u")
        properties = {
            "accelerator": StringAttr(bytes(target).decode("latin-1")),
            "payload": WeightAttr(key),
            "command_bytes": to_attribute(len(stream.commands)),
            "weight_bytes": to_attribute(len(stream.weights)),
            "scratch_bytes": to_attribute(stream.scratch),
        }
        op = BinaryOp.create(
            operands=list(inputs), result_types=list(results), properties=properties
        )
        if (config := stated_config(dict(delegate.options))) is not None:
            config.attach(op)
        return op


class TosaReader:
    """Reads a delegate's flatbuffer as an `ethosu.delegate`."""

    def input_count(self, delegate: Delegate, context: ReadContext) -> int:
        """Return the number of inputs of the flatbuffer's first region."""
        return len(read_graph(bytes(delegate.payload)).regions[0].inputs)

    def read(
        self,
        delegate: Delegate,
        inputs: Sequence[SSAValue],
        results: Sequence[Attribute],
        context: ReadContext,
    ) -> Operation:
        """Return the delegate as an op that contains its operators.

        Raises:
            ParseFailure: the payload is not a TOSA flatbuffer, or does not match the call.
        """
        program = program_of(_bound(read_graph(bytes(delegate.payload)), inputs))
        (func,) = program.methods.values()
        block = func.body.block
        last = block.last_op
        assert isinstance(last, ReturnOp)
        _check([a.type for a in block.args], [v.type for v in inputs], "input")
        _check([v.type for v in last.operands], results, "output")
        stated = dict(delegate.options).get("tosa_spec", b"")
        returned = list(last.operands)
        last.detach()
        last.erase()
        for key in program.weights:  # Keys are content hashes.
            if key not in context.weights:
                context.weights.add(key, program.weights.get(key))
        block.add_op(YieldOp.create(operands=returned))
        func.body.detach_block(block)
        return DelegateOp.make(bytes(stated).decode("latin-1").lower(), inputs, results, block)


def _bound(graph: Graph, inputs: Sequence[SSAValue]) -> Graph:
    """Bind a graph to the sizes of its call, because a `.pte` does not state which sizes are
    dynamic.
    """
    if not has_symbolic_sizes(graph):
        return graph
    if not all(is_static(value.type) for value in inputs):
        raise UnsupportedError(
            "a TOSA delegate has dynamic sizes, but the file does not state which axes",
            help="read it at its largest sizes: read_pte(data, largest=True), show --largest",
        )
    given = [
        torch.zeros(cast("tuple[int, ...]", dims(v.type)), dtype=torch_dtype(element(v.type)))
        for v in inputs
    ]
    return bind_sizes(graph, given)


def _check(stated: Sequence[Attribute], called: Sequence[Attribute], what: str) -> None:
    if len(stated) != len(called):
        raise ParseFailure(f"TOSA payload: {len(stated)} {what}s, the call has {len(called)}")
    for at, (one, other) in enumerate(zip(stated, called, strict=True)):
        if one != other:
            raise ParseFailure(f"TOSA payload: {what} {at} is {one}, the call has {other}")
