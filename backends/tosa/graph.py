"""A `.tosa` file as plain data: the contents of the flatbuffer schema, independent of the IR."""

from dataclasses import dataclass, field

AttributeValue = int | bool | str | bytes | tuple[int, ...]

VERSION = (1, 1, 0, True)
"""TOSA 1.1.0, draft: the version that tosa-tools 2026.8 reads and writes."""


@dataclass
class Tensor:
    """A tensor: its type as the schema's DType number; `data` if it is a constant."""

    name: str
    shape: tuple[int, ...]
    dtype: int
    data: bytes = b""
    is_unranked: bool = False
    variable: bool = False
    variable_name: str = ""
    scale_type: int = 0
    scale_data: bytes = b""
    block_shape: int = 0


@dataclass
class Shape:
    """A shape value: `data` contains one int64 per size if it is a constant."""

    name: str
    rank: int
    data: bytes = b""


@dataclass
class Operator:
    """An operator, by the schema's number, with its stored attributes."""

    code: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, AttributeValue] = field(default_factory=dict[str, AttributeValue])
    location: str = ""


@dataclass
class Region:
    """One graph: the main one, or a branch or loop body that an operator names."""

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    operators: list[Operator] = field(default_factory=list[Operator])
    tensors: list[Tensor] = field(default_factory=list[Tensor])
    shapes: list[Shape] = field(default_factory=list[Shape])


@dataclass
class Graph:
    """A whole file. `version` is major, minor, patch, draft."""

    regions: list[Region]
    version: tuple[int, int, int, bool] = VERSION
