"""Read Ethos-U delegates of a `.pte`, ours and the stock flow's: Vela's commands."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Attribute, Operation, SSAValue

from stepwell.backends.ethos_u.vela import read_stream
from stepwell.backends.executorch.container import Delegate
from stepwell.backends.executorch.reading.lift import ReadContext
from stepwell.dialects.cmsis.ops.base import to_attribute
from stepwell.dialects.ethosu import BinaryOp
from stepwell.ir.types import WeightAttr


class EthosuReader:
    """Reads a delegate's payload as an `ethosu.binary`."""

    def input_count(self, delegate: Delegate, context: ReadContext) -> int:
        """The number of inputs that Vela's own block states."""
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
        return BinaryOp.create(
            operands=list(inputs), result_types=list(results), properties=properties
        )
