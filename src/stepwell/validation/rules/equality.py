"""Map equivalent ops to one canonical name, operands and arguments, so that they compare equal."""

from dataclasses import dataclass, field

from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.types import dims


@dataclass(frozen=True)
class Alias:
    """An op whose first result equals that of another op with fewer or renamed arguments."""

    of: str
    renamed: dict[str, str] = field(default_factory=dict[str, str])
    more: frozenset[str] = frozenset()


ALIASES = {
    "aten.native_group_norm.default": Alias(
        "aten.group_norm.default", {"group": "num_groups"}, frozenset(("N", "C", "HxW"))
    ),
    "aten.group_norm.default": Alias("aten.group_norm.default", more=frozenset(("cudnn_enabled",))),
    "aten.layer_norm.default": Alias("aten.layer_norm.default", more=frozenset(("cudnn_enable",))),
    "aten.native_layer_norm.default": Alias("aten.layer_norm.default"),
    "aten._fused_rms_norm.default": Alias("aten.rms_norm.default"),
}


def as_known(op: Operation, number: int) -> tuple[str, list[SSAValue | None], str]:
    """Return (name, operands, fields) of a result; equal triples are equal tensors."""
    if not isinstance(op, SchemaOp):
        fields = ", ".join(f"{name}={held}" for name, held in sorted(op.properties.items()))
        return f"{op.name}#{number}", list(op.operands), fields
    alias = ALIASES.get(op.name, Alias(op.name)) if number == 0 else Alias(op.name)
    operands: dict[str, SSAValue | None] = {}
    fields_: dict[str, str] = {}
    for each in op.SCHEMA.arguments:
        if each.name in alias.more or (each.name == "output_padding" and not op.arg("transposed")):
            continue
        held, name = op.arg(each.name), alias.renamed.get(each.name) or each.name
        if isinstance(held, SSAValue) or (each.type.is_tensor and not each.type.is_list):
            operands[name] = held
        else:
            fields_[name] = str(held)
    named = ", ".join(f"{name}={held}" for name, held in sorted(fields_.items()))
    return f"{alias.of}#{number}", [operands[name] for name in sorted(operands)], named


UNROUNDED = frozenset(f"stepwell_mx.{name}.default" for name in ("linear", "matmul_t", "conv2d"))
"""Ops that round their operands to blocks, and otherwise compute another op over the reals."""


def unrounded(op: Operation) -> SSAValue:
    """Return the value of a rounding op without its rounding, as the result of new ops."""
    types = [op.results[0].type]
    x, y, *_ = op.operands
    if op.name == "stepwell_mx.conv2d.default" and isinstance(op, SchemaOp):
        window = [op.arg(name) for name in ("stride", "padding", "dilation")]
        plain = (op.arg("bias"), *window, False, [0, 0], op.arg("groups"))
        return aten.ConvolutionDefault.make(x, y, *plain, result_types=types).results[0]
    if op.name == "stepwell_mx.linear.default":
        bias = op.arg("bias") if isinstance(op, SchemaOp) else None
        return aten.LinearDefault.make(x, y, bias, result_types=types).results[0]
    *batch, rows, columns = range(len(dims(y.type)))
    turned = aten.PermuteDefault.make(y, [*batch, columns, rows])
    return aten.MatmulDefault.make(x, turned, result_types=types).results[0]
