"""The `stepwell` dialect: how weights and state enter and leave a method.

A method is a `func.func`. Its arguments are the user's inputs. `stepwell.weight` reads parameters,
immutable buffers and constants, and `stepwell.state` reads mutable buffers. `stepwell.update`
defines the value of a buffer after the call, and `stepwell.mutate_input` that of a user's input.
Reads return the value at entry and writes take effect at exit, so that everything in between is
plain SSA.

    func.func @forward(%x: tensor<1x8xf32>) -> tensor<1x8xf32> {
      %w = stepwell.weight <"fc.weight"> "parameter" : tensor<8x8xf32>
      %seen = stepwell.state <"calls"> : tensor<i64>
      ...
      stepwell.update <"calls">, %seen_1 : tensor<i64>
      func.return %y : tensor<1x8xf32>
    }
"""

from __future__ import annotations

from typing import ClassVar

from xdsl.dialects.builtin import (
    BoolAttr,
    DenseIntOrFPElementsAttr,
    IntegerAttr,
    StringAttr,
    TensorType,
    i64,
)
from xdsl.ir import Attribute, Dialect, SSAValue
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    result_def,
    traits_def,
)
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from stepwell.ir.compat.xdsl.xdsl_private import begin, operands_of
from stepwell.ir.types import (
    AnyTensor,
    BoolType,
    FloatType,
    IntType,
    NoneType,
    ShapeAttr,
    WeightAttr,
)

KINDS = ("parameter", "buffer", "constant")


@irdl_op_definition
class WeightOp(IRDLOperation):
    """An immutable tensor of the weight store: a parameter, a buffer or a lifted constant."""

    name = "stepwell.weight"
    key = prop_def(WeightAttr)
    kind = prop_def(StringAttr)
    persistent = opt_prop_def(BoolAttr)
    value = opt_prop_def(DenseIntOrFPElementsAttr)
    """The elements, in a text with inline weights; a program keeps them in its store."""
    result = result_def(TensorType)
    traits = traits_def(Pure())
    assembly_format: ClassVar[str] = (
        "$key $kind (`persistent` $persistent^)? (`=` $value^)? attr-dict `:` type($result)"
    )

    def __init__(
        self,
        key: str,
        type_: Attribute,
        kind: str = "constant",
        persistent: bool | None = None,
    ) -> None:
        properties: dict[str, Attribute] = {"key": WeightAttr(key), "kind": StringAttr(kind)}
        if persistent is not None:
            properties["persistent"] = BoolAttr.from_bool(persistent)
        # IRDL's general constructor has nothing to do here, and a program has many weights.
        begin(self, (), (type_,), properties)

    @property
    def is_as_made(self) -> bool:
        """Whether the op has exactly the parts that `__init__` creates, and a known kind, so that
        it is valid.
        """
        properties = self.properties
        return (
            len(properties) == 2
            and type(properties.get("key")) is WeightAttr
            and type(kind := properties.get("kind")) is StringAttr
            and kind.data in KINDS
            and type(self.result.type) is TensorType
            and not (self.attributes or self.regions or operands_of(self))
        )

    def verify_(self) -> None:
        if self.kind.data not in KINDS:
            raise VerifyException(f"kind is {self.kind.data!r}, not one of {', '.join(KINDS)}")


@irdl_op_definition
class StateOp(IRDLOperation):
    """The value of a mutable buffer at entry to the method."""

    name = "stepwell.state"
    key = prop_def(WeightAttr)
    persistent = opt_prop_def(BoolAttr)
    value = opt_prop_def(DenseIntOrFPElementsAttr)
    """The elements, in a text with inline weights; a program keeps them in its store."""
    result = result_def(TensorType)
    traits = traits_def(Pure())
    assembly_format: ClassVar[str] = (
        "$key (`persistent` $persistent^)? (`=` $value^)? attr-dict `:` type($result)"
    )

    def __init__(self, key: str, type_: Attribute, persistent: bool | None = None) -> None:
        properties: dict[str, Attribute] = {"key": WeightAttr(key)}
        if persistent is not None:
            properties["persistent"] = BoolAttr.from_bool(persistent)
        super().__init__(result_types=[type_], properties=properties)


@irdl_op_definition
class UpdateOp(IRDLOperation):
    """Define the value of a mutable buffer after the method."""

    name = "stepwell.update"
    key = prop_def(WeightAttr)
    value = operand_def(TensorType)
    assembly_format: ClassVar[str] = "$key `,` $value attr-dict `:` type($value)"

    def __init__(self, key: str, value: SSAValue) -> None:
        super().__init__(operands=[value], properties={"key": WeightAttr(key)})


@irdl_op_definition
class MutateInputOp(IRDLOperation):
    """Define the value of a user input after the method; the caller sees the tensor change."""

    name = "stepwell.mutate_input"
    index = prop_def(IntegerAttr)
    value = operand_def(TensorType)
    assembly_format: ClassVar[str] = "$index `,` $value attr-dict `:` type($value)"

    def __init__(self, index: int, value: SSAValue) -> None:
        super().__init__(operands=[value], properties={"index": IntegerAttr(index, i64)})


def weight_key(value: SSAValue) -> str | None:
    """Return the key of the weight that a value is; None for an input or a computed value."""
    owner = value.owner
    return owner.key.data if type(owner) is WeightOp else None


def tensor_type(value: SSAValue) -> AnyTensor:
    """Return the type of a value, which must be a tensor type."""
    type_ = value.type
    assert isinstance(type_, TensorType), f"{type_} is not a tensor type"
    return type_


Stepwell = Dialect(
    "stepwell",
    [WeightOp, StateOp, UpdateOp, MutateInputOp],
    [WeightAttr, ShapeAttr, IntType, FloatType, BoolType, NoneType],
)
