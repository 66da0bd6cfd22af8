"""Text of `linalg` on tensors, line by line; every exported op is written with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from xdsl.dialects.builtin import DenseIntOrFPElementsAttr, TensorType
from xdsl.ir import Attribute, SSAValue

from stepwell.ir.axes.maps import Along
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.diagnostics import UnsupportedError
from stepwell.ir.dtypes import element_type
from stepwell.ir.program import Program
from stepwell.ir.types import dims, element, tensor
from stepwell.translate.upstream.linalg_exporter.bodies import FLOATS, Body, BodyValue, constant

MOST_ELEMENTS = 1 << 20
"""The most elements of a weight in a text."""


class Text:
    """The lines of one method, and the name of each value.

    Attributes:
        program: the program, whose weights become constants.
        names: names of the values that were written.
        out: the lines so far.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.names: dict[SSAValue, str] = {}
        self.count = 0
        self.out: list[str] = []

    def fresh(self) -> str:
        """Return a name that no value has yet."""
        self.count += 1
        return f"%{self.count}"

    def line(self, text: str) -> str:
        """Write an op with one result, and return its name."""
        name = self.fresh()
        self.out.append(f"{name} = {text}")
        return name

    def literal(self, value: torch.Tensor) -> str:
        """Write a constant tensor."""
        if value.numel() > MOST_ELEMENTS or value.is_complex():
            raise UnsupportedError(
                f"a weight of {value.numel()} elements is too large to be written as text"
            )
        type_: Any = tensor(list(value.shape), element_type(value.dtype))
        spelled(type_)
        wide = value.detach().double() if value.is_floating_point() else value.detach()
        dense = DenseIntOrFPElementsAttr.from_list(type_, wide.reshape(-1).tolist())
        return self.line(f"arith.constant {dense}")

    def size(self, sizes: Mapping[int, tuple[SSAValue, int]], axis: int, known: Any) -> str | None:
        """Return the name of a dynamic size, read from an operand's axis; None for a static
        size.
        """
        if isinstance(known, int):
            return None
        if axis not in sizes:
            raise UnsupportedError("no operand has the dynamic size")
        value, at = sizes[axis]
        number = self.line(f"arith.constant {at} : index")
        return self.line(f"tensor.dim {self.names[value]}, {number} : {spelled(value.type)}")

    def empty(self, shape: Sequence[Any], dtype: Attribute, sizes: Mapping[int, Any]) -> str:
        """Write a `tensor.empty` for a result."""
        names = [self.size(sizes, at, size) for at, size in enumerate(shape)]
        given = ", ".join(name for name in names if name is not None)
        return self.line(f"tensor.empty({given}) : {tensor_type(shape, dtype)}")

    def filled(self, number: float, shape: Sequence[Any], dtype: Attribute, sizes: Any) -> str:
        """Write a tensor filled with one number."""
        name = self.line(f"arith.constant {constant(number, dtype)}")
        empty, type_ = self.empty(shape, dtype, sizes), tensor_type(shape, dtype)
        return self.line(f"linalg.fill ins({name} : {dtype}) outs({empty} : {type_}) -> {type_}")

    def generic(
        self,
        inputs: Sequence[tuple[str, str, str]],
        out: str,
        shape: Sequence[Any],
        body: Sequence[str],
        arguments: Sequence[BodyValue],
        given: BodyValue,
        reduced: int = 0,
    ) -> str:
        """Write a `linalg.generic`.

        Args:
            inputs: operands as (name, type, indices).
            out: the name of the output, which is indexed by all axes of the result.
            shape: the result's shape.
            body: the lines of the body.
            arguments: the body's arguments; the last one is the output's element.
            given: the name of the number that the body yields.
            reduced: the number of reduced axes, which follow the result's axes.
        """
        type_, rank = tensor_type(shape, given.type), len(shape)
        domain, kinds = all_axes(rank + reduced), ["parallel"] * rank + ["reduction"] * reduced
        indices = [*(indices for *_, indices in inputs), all_axes(rank)]
        maps = ", ".join(f"affine_map<({domain}) -> ({each})>" for each in indices)
        iterators = ", ".join(f'"{kind}"' for kind in kinds)
        ins = ""
        if inputs:
            names, types = (", ".join(one[at] for one in inputs) for at in (0, 1))
            ins = f" ins({names} : {types})"
        name = self.fresh()
        self.out += [
            f"{name} = linalg.generic {{indexing_maps = [{maps}], iterator_types = [{iterators}]}}"
            f"{ins} outs({out} : {type_}) {{",
            f"^bb0({', '.join(f'{value.name}: {value.type}' for value in arguments)}):",
            *(f"  {line}" for line in body),
            f"  linalg.yield {given.name} : {given.type}",
            f"}} -> {type_}",
        ]
        return name

    def slice(
        self,
        name: str,
        types: tuple[str, str],
        offsets: Sequence[Any],
        sizes: Sequence[Any],
        strides: Sequence[int] | None = None,
    ) -> str:
        """Write a slice of a tensor, from one type to another, with strides of 1 by default."""
        lists = (offsets, sizes, strides or [1] * len(offsets))
        places = " ".join(f"[{', '.join(map(str, values))}]" for values in lists)
        return self.line(f"tensor.extract_slice {name}{places} : {types[0]} to {types[1]}")

    def padded(
        self,
        name: str,
        shape: Sequence[int],
        dtype: Attribute,
        low: Sequence[int],
        high: Sequence[int],
        number: float,
    ) -> tuple[str, list[int]]:
        """Write a padded tensor, and return its shape too."""
        if not any((*low, *high)):
            return name, list(shape)
        made = [a + s + b for a, s, b in zip(low, shape, high, strict=True)]
        inside = ", ".join(f"%p{at}: index" for at in range(len(shape)))
        fill, padded = self.line(f"arith.constant {constant(number, dtype)}"), self.fresh()
        sides = " ".join(
            f"{word}[{', '.join(map(str, side))}]" for word, side in (("low", low), ("high", high))
        )
        self.out += [
            f"{padded} = tensor.pad {name} {sides} {{",
            f"^bb0({inside}):",
            f"  tensor.yield {fill} : {dtype}",
            f"}} : {tensor_type(shape, dtype)} to {tensor_type(made, dtype)}",
        ]
        return padded, made


def spelled(type_: Attribute) -> str:
    """Return a tensor's type in MLIR's syntax.

    Raises:
        UnsupportedError: the type is not a tensor of floats or signless integers.
    """
    if not isinstance(type_, TensorType):
        raise UnsupportedError(f"the type {type_} is not a tensor type")
    return tensor_type(dims(type_), element(type_))


def tensor_type(shape: Sequence[Any], dtype: Attribute) -> str:
    """Return the type of a shape and an element type.

    Raises:
        UnsupportedError: the elements are neither floats nor signless integers.
    """
    text = str(dtype)
    if dtype not in FLOATS and not text.startswith("i"):
        raise UnsupportedError(f"arith does not compute with {text}")
    sizes = "".join(f"{size if isinstance(size, int) else '?'}x" for size in shape)
    return f"tensor<{sizes}{text}>"


def is_tensor(value: SSAValue) -> bool:
    """Whether a value is a tensor."""
    return isinstance(value.type, TensorType)


def all_axes(rank: int) -> str:
    """Return the indices of an identity map."""
    return ", ".join(f"d{at}" for at in range(rank))


def affine(link: Along, variable: str) -> str:
    """Return the index expression with which an axis is read, from the result's index."""
    scaled = variable if link.stride == 1 else f"{variable} * {link.stride}"
    return f"{scaled} + {link.offset}" if link.offset else scaled


def lists(**values: Sequence[int]) -> str:
    """Return attributes that are lists of numbers."""
    return ", ".join(
        f"{name} = dense<[{', '.join(map(str, of))}]> : tensor<{len(of)}xi64>"
        for name, of in values.items()
    )


def divided(method: Text, name: str, made: Any, dtype: Attribute, count: int) -> str:
    """Write a tensor divided by a number."""
    body = Body(dtype, method.fresh, {})
    x = BodyValue(method.fresh(), dtype)
    part = body.of_two("divide", x, body.number(float(count), dtype))
    return method.generic([], name, made, body.lines, [x], part)


def combined(
    method: Text, word: str, name: str, made: Any, dtype: Attribute, other: tuple[str, str, str]
) -> str:
    """Write the sum of a tensor and another one, (name, type, indices), or the quotient."""
    body = Body(dtype, method.fresh, {})
    x, y = (BodyValue(method.fresh(), dtype) for _ in range(2))
    return method.generic([other], name, made, body.lines, [x, y], body.of_two(word, y, x))
