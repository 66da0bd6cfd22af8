"""Give a flatbuffer of symbolic sizes the sizes of one call, for engines that take no others.

The reference model refuses a size of -1 wherever it stands, though it runs the shape operators.
The interpreter's run of the same inputs says what each tensor's sizes are in this call; the
operators stay as they are, so that the engine computes the shapes again and compares them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from xdsl.ir import Operation

from stepwell.backends.tosa.graph import Graph
from stepwell.backends.tosa.read import names_of
from stepwell.dialects.tosa.meaning.values import BlockScaled
from stepwell.ir.declared.interpretation import Interpreter, Value
from stepwell.ir.diagnostics import UnsupportedError

UNKNOWN = -1


def has_symbolic_sizes(graph: Graph) -> bool:
    """Whether a tensor has a size that only a call gives."""
    return any(UNKNOWN in tensor.shape for region in graph.regions for tensor in region.tensors)


def bind_sizes(graph: Graph, inputs: Sequence[torch.Tensor]) -> Graph:
    """The graph with every size known, for inputs of these sizes.

    Raises:
        UnsupportedError: a branch or a loop holds such a size.
    """
    main, *inner = graph.regions
    if any(UNKNOWN in tensor.shape for region in inner for tensor in region.tensors):
        raise UnsupportedError("a branch or loop with symbolic sizes cannot be bound to a call")
    program, names = names_of(graph)
    found = {name: tuple(given.shape) for name, given in zip(main.inputs, inputs, strict=True)}

    def note(op: Operation, results: Sequence[Value]) -> None:
        for result, value in zip(op.results, results, strict=True):
            codes = value.codes if isinstance(value, BlockScaled) else value
            if isinstance(codes, torch.Tensor) and result in names:
                found[names[result]] = tuple(codes.shape)

    Interpreter(program.weights, observe=note).call(program.method(), list(inputs))
    tensors = [replace(t, shape=found.get(t.name, t.shape)) for t in main.tensors]
    return Graph([replace(main, tensors=tensors), *inner], graph.version)
