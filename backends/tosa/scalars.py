"""Restore tensors of rank 0 in a graph from SPIR-V, which represents them as `[1]`.

Rank 0 is known for a file's inputs and outputs. It follows for the ARGMAX of one axis, and for the
other operands and the result of an elementwise operator, whose ranks are equal. A tensor whose
rank is not determined this way stays `[1]`, and has the same elements.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace

from stepwell.backends.tosa.graph import Operator, Region, Shape, Tensor
from stepwell.dialects.tosa.axes import DATA, ELEMENTWISE
from stepwell.dialects.tosa.codes import class_of_code
from stepwell.dialects.tosa.generated import ArgMaxOp, ConstShapeOp, ReshapeOp
from stepwell.dialects.tosa.structural import ConstOp
from stepwell.ir.diagnostics import ParseFailure

_CONSTANTS = (ConstOp.CODE, ConstShapeOp.CODE)


def restore_scalars(region: Region, ports: Collection[str]) -> None:
    """Change the tensors of a region that have rank 0, and the constants that they need.

    Args:
        region: a region from a SPIR-V module, constants with their data.
        ports: inputs and outputs that have rank 0 in the file.

    Raises:
        ParseFailure: a tensor would have rank 0, but its shape is not `[1]`.
    """
    tensors = {tensor.name: tensor for tensor in region.tensors}
    constants = {op.outputs[0] for op in region.operators if op.code in _CONSTANTS}
    scalars = _scalars(region, tensors, constants, set(ports))
    for name in scalars:
        if tensors[name].shape != (1,):
            raise ParseFailure(f"{name!r} would be of rank 0, and is {list(tensors[name].shape)}")
        tensors[name].shape = ()
    twins: dict[str, str] = {}
    for at, operator in enumerate(region.operators):
        if not scalars.intersection(operator.outputs):
            continue
        data = operator.inputs[1:] if operator.code == ReshapeOp.CODE else _data(operator)
        for name in constants.intersection(data):
            twins[name] = f"{name}_of_a_scalar"
        inputs = tuple(twins.get(n, n) if n in data else n for n in operator.inputs)
        region.operators[at] = replace(operator, inputs=inputs)
    for name, twin in twins.items():
        if name in tensors:
            region.tensors.append(replace(tensors[name], name=twin, shape=()))
        else:
            region.shapes.append(Shape(twin, 0))
    region.operators = _with_constants(region, twins)


def _scalars(
    region: Region, tensors: Mapping[str, Tensor], constants: Collection[str], known: set[str]
) -> set[str]:
    """Return the names of the values of rank 0, without constants, by inference from known
    ranks.
    """
    linked: dict[str, list[list[str]]] = {}
    for operator in region.operators:
        cls = class_of_code(operator.code)
        if cls is ArgMaxOp and len(tensors[operator.inputs[0]].shape) == 1:
            known.update(operator.outputs)
        elif cls in ELEMENTWISE:
            names = [n for n in (*_data(operator), *operator.outputs) if n not in constants]
            for name in names:
                linked.setdefault(name, []).append(names)
    waiting = list(known)
    while waiting:
        for names in linked.pop(waiting.pop(), ()):
            waiting += [name for name in names if name not in known]
            known.update(names)
    return known


def _data(operator: Operator) -> tuple[str, ...]:
    """Return operands of an elementwise operator that have the rank of its result."""
    cls = class_of_code(operator.code)
    assert cls is not None
    return operator.inputs[: DATA.get(cls)] if cls in ELEMENTWISE else ()


def _with_constants(region: Region, twins: Mapping[str, str]) -> list[Operator]:
    """Return the operators with additional constants of rank 0, and without unused constants."""
    read = {name for operator in region.operators for name in operator.inputs}.union(region.outputs)
    kept: list[Operator] = []
    for operator in region.operators:
        is_constant = operator.code in _CONSTANTS
        if not is_constant or operator.outputs[0] in read:
            kept.append(operator)
        if is_constant and operator.outputs[0] in twins:
            kept.append(replace(operator, outputs=(twins[operator.outputs[0]],)))
    return kept
