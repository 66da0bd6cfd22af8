"""The `executorch` dialect: delegates of other backends in a `.pte` file.

    %y = executorch.opaque_delegate "QnnBackend" <"forward.0.payload"> (%x)
           : (tensor<4xf32>) -> tensor<4xf32>

The op keeps the payload, so that the program can be printed, verified and emitted again. The
interpreter refuses the op by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Self

from xdsl.dialects.builtin import ArrayAttr, StringAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Dialect, Operation, SSAValue
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    opt_prop_def,
    prop_def,
    var_operand_def,
    var_result_def,
)

from stepwell.ir.levels import Level, register_level
from stepwell.ir.types import WeightAttr


@irdl_op_definition
class OpaqueDelegateOp(IRDLOperation):
    """A delegate whose payload no reader here supports; its bytes are a weight of `ui8`.

    `options` are the compile options: alternately names and weight keys of their bytes.
    """

    name = "executorch.opaque_delegate"
    backend = prop_def(StringAttr)
    payload = prop_def(WeightAttr)
    options = opt_prop_def(ArrayAttr)
    inputs = var_operand_def()
    outputs = var_result_def()
    assembly_format: ClassVar[str] = (
        "$backend $payload (`options` $options^)? `(` $inputs `)` attr-dict "
        "`:` functional-type($inputs, $outputs)"
    )

    @classmethod
    def make(
        cls,
        backend: str,
        payload: str,
        inputs: Sequence[SSAValue],
        results: Sequence[Attribute],
        options: Sequence[tuple[str, str]] = (),
    ) -> Self:
        """Create a call of a delegate whose payload stepwell does not read.

        Args:
            backend: the backend's name in the runtime.
            payload: the weight key of the payload's bytes.
            inputs: the inputs of the delegate.
            results: the types of the delegate's outputs.
            options: compile options, as names and the weight keys of their bytes.
        """
        properties: dict[str, Attribute] = {
            "backend": StringAttr(backend),
            "payload": WeightAttr(payload),
        }
        if options:
            properties["options"] = ArrayAttr(
                [part for name, key in options for part in (StringAttr(name), WeightAttr(key))]
            )
        return cls.create(operands=inputs, result_types=results, properties=properties)


_HELD = ("xnnpack.", "cmsis.", "control.", "sym.")


def _refuses(op: Operation) -> str | None:
    """Return why an op is not allowed at the executorch level, or None; ops of a `.pte` are
    allowed.
    """
    from stepwell.dialects.aten.op import SchemaOp

    if isinstance(op, OpaqueDelegateOp | SchemaOp):
        return None
    if isinstance(op.parent_op(), FuncOp) and not op.name.startswith(_HELD):
        return "it is not a kernel, a delegate, a jump or a number"
    return None


EXECUTORCH_LEVEL = register_level(Level("executorch", _refuses))
"""A `.pte` that was read back: kernel calls, and delegates of any backend."""

Executorch = Dialect("executorch", [OpaqueDelegateOp])
