"""Valid graphs with one thing changed: refused with a reason, or the reference model runs them."""

import math
import random
from copy import deepcopy
from dataclasses import replace

import pytest
import torch

from stepwell.backends.tosa.emit import to_tosa
from stepwell.backends.tosa.flatbuffer import read_graph
from stepwell.backends.tosa.graph import Graph, Region, Tensor
from stepwell.backends.tosa.read import program_of
from stepwell.backends.tosa.reference_model import run_reference_model
from stepwell.backends.tosa.storage import from_bytes, stored_size
from stepwell.dialects.tosa.codes import element_of_code
from stepwell.dialects.tosa.meaning.values import is_integer
from stepwell.ir.diagnostics import StepwellError

from .graphs import conformance

MUTANTS = 60
"""A seed's mutants; the reference model is called for the few that verify."""

BY_VALUE = ("arithmetic_right_shift", "logical", "cond_if", "while_loop", "gather", "scatter")
"""Operators that the model refuses for some values of their inputs, and those that hold them."""

SOURCES = [
    name
    for name, files in conformance("positive").items()
    if "out0" in files and not name.startswith((*BY_VALUE, "row_gather")) and "_dyn" not in name
]


def mutate(graph: Graph, source: random.Random) -> Graph:
    """A copy with a size, rank, element type, constant, attribute or operand changed."""
    graph = deepcopy(graph)
    region = source.choice(graph.regions)
    match source.choice(["size", "rank", "type", "constant", "attribute", "operand", "fewer"]):
        case "size" | "rank" | "type" | "constant" as kind:
            index = source.randrange(len(region.tensors))
            region.tensors[index] = other_tensor(region.tensors[index], kind, source)
        case kind:
            change_operator(region, kind, source)
    return graph


def other_tensor(tensor: Tensor, kind: str, source: random.Random) -> Tensor:
    shape = list(tensor.shape)
    if kind == "size" and shape:
        at = source.randrange(len(shape))
        shape[at] = max(1, shape[at] + source.choice([-1, 1, 2, shape[at]]))
        return replace(tensor, shape=tuple(shape))
    if kind == "rank":
        return replace(tensor, shape=source.choice([tensor.shape[1:], (1, *tensor.shape)]))
    if kind == "type":
        return replace(tensor, dtype=source.randrange(1, 20))
    data = bytearray(tensor.data)
    if data:
        data[source.randrange(len(data))] = source.randrange(256)
    return replace(tensor, data=bytes(data))


def change_operator(region: Region, kind: str, source: random.Random) -> None:
    index = source.randrange(len(region.operators))
    operator = region.operators[index]
    if kind == "attribute" and operator.attributes:
        name = source.choice(list(operator.attributes))
        value = operator.attributes[name]
        if isinstance(value, bool):
            value = not value
        elif isinstance(value, int):
            value += source.choice([-1, 1, 5])
        elif isinstance(value, tuple) and value:
            at = source.randrange(len(value))
            moved = value[at] + source.choice([-1, 1, 3, 100])
            value = (*value[:at], moved, *value[at + 1 :])
        operator = replace(operator, attributes={**operator.attributes, name: value})
    elif operator.inputs:
        inputs = list(operator.inputs)
        if kind == "fewer":
            inputs.pop()
        else:
            other = source.choice(region.tensors).name
            inputs[source.randrange(len(inputs))] = other
        operator = replace(operator, inputs=tuple(inputs))
    region.operators[index] = operator


def some_input(tensor: Tensor, source: random.Random) -> torch.Tensor:
    """Small numbers of any element type."""
    element = element_of_code(tensor.dtype)
    assert element is not None
    size = stored_size(math.prod(tensor.shape), element)
    step = size // max(math.prod(tensor.shape), 1) if is_integer(element) else 1
    data = bytes(source.randrange(60) if at % max(step, 1) == 0 else 0 for at in range(size))
    return from_bytes(data, tensor.shape, element)


@pytest.mark.parametrize("seed", range(2))
def test_what_verifies_runs_and_what_does_not_has_a_reason(seed: int) -> None:
    source = random.Random(seed)
    refused = 0
    for _ in range(MUTANTS):
        name = source.choice(SOURCES)
        mutant = mutate(read_graph(conformance("positive")[name]["test.tosa"]), source)
        try:
            program = program_of(mutant)
            program.verify()
            data = to_tosa(program)
        except StepwellError as error:
            assert error.problems[0].fact
            refused += 1
            continue
        main = mutant.regions[0]
        tensors = {tensor.name: tensor for tensor in main.tensors}
        run_reference_model(data, [some_input(tensors[port], source) for port in main.inputs])
    assert refused > MUTANTS // 4
