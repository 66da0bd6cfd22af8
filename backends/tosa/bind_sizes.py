"""Replace the symbolic sizes of a flatbuffer by those of one call, for engines that need them.

The reference model refuses a size of -1 anywhere, though it runs the shape operators. The sizes
of each tensor come from a run of the interpreter on the same inputs. The operators do not change,
so that the engine computes the shapes again and compares them.
"""

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
    """Whether a tensor has a size that is known only in a call."""
    return any(UNKNOWN in tensor.shape for region in graph.regions for tensor in region.tensors)


def bind_sizes(graph: Graph, inputs: Sequence[torch.Tensor]) -> Graph:
    """Return the graph with static sizes, for inputs of these sizes.

    Raises:
        UnsupportedError: a branch or a loop contains a symbolic size.
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
