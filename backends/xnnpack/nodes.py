"""Convert ops to the schema's nodes and back; the only module that uses the fields' names.

Besides the fields handled here, a node's record holds the ids of its inputs and outputs;
`INPUTS` and `OUTPUTS` give their names.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from stepwell.dialects.xnnpack import (
    CONCATENATES,
    ELU,
    ArgMaxPooling2d,
    AveragePooling2d,
    BatchMatrixMultiply,
    Convolution2d,
    Deconvolution2d,
    DepthwiseConvolution2d,
    FullyConnected,
    GlobalAveragePooling2d,
    LeakyReLU,
    MaxPooling2d,
    ScaledDotProductAttention,
    StaticConstantPad,
    StaticReshape,
    StaticResizeBilinear2d,
    StaticSlice,
    StaticTranspose,
    XnnpackOp,
)
from stepwell.ir.diagnostics import ParseFailure

TRANSPOSE, ALIGN_CORNERS, KEEP_DIMS = 0x1, 0x8, 0x40
"""Flags of XNNPACK's xnnpack.h."""

_FLAGS: dict[type[XnnpackOp], tuple[str, int]] = {
    FullyConnected: ("transpose_weights", TRANSPOSE),
    BatchMatrixMultiply: ("transpose_b", TRANSPOSE),
    GlobalAveragePooling2d: ("keep_dims", KEEP_DIMS),
    StaticResizeBilinear2d: ("align_corners", ALIGN_CORNERS),
}
_IGNORED_FLAGS: dict[type[XnnpackOp], int] = {
    MaxPooling2d: KEEP_DIMS,
    AveragePooling2d: KEEP_DIMS,
}
"""Bits that ExecuTorch's own flow sets and XNNPACK does not read."""

_WEIGHTED = (FullyConnected, Convolution2d, DepthwiseConvolution2d, Deconvolution2d)


def input_names(cls: type[XnnpackOp]) -> tuple[str, ...]:
    """Return the fields of a node that hold its operands' ids, in the op's order."""
    if cls in _WEIGHTED:
        return ("input1_id", "filter_id", "bias_id")
    if cls is ScaledDotProductAttention:
        return ("query_id", "key_id", "value_id", "scale_id", "mask_id")
    count = len(cls.get_irdl_definition().operands)
    return tuple(f"input{i + 1}_id" for i in range(count)) if count > 1 else ("input_id",)


def output_names(cls: type[XnnpackOp]) -> tuple[str, ...]:
    """Return the fields of a node that hold its results' ids."""
    return ("output_value_id", "output_index_id") if cls is ArgMaxPooling2d else ("output_id",)


@dataclass(frozen=True)
class _Spread:
    """A list field of an op whose numbers are separate fields of the node.

    Attributes:
        name: the op's field.
        node: the node's fields, one for each number.
        default: each number of an op without the field; None if every op has it.
    """

    name: str
    node: tuple[str, ...]
    default: int | None

    def write(self, op: XnnpackOp) -> dict[str, Any]:
        """Return the node's fields for the list field of an op."""
        missing = (self.default,) * len(self.node)
        held = op.ints(self.name) if op.flag(self.name) else missing
        return dict(zip(self.node, held, strict=True))

    def read(self, node: dict[str, Any]) -> dict[str, Any]:
        """Return the op's field, unless every number is the default."""
        held = [node[name] for name in self.node]
        return {} if all(number == self.default for number in held) else {self.name: held}


@dataclass(frozen=True)
class _Same:
    """A field that the node has under the same name: a number, or a list of numbers.

    Attributes:
        name: the name.
        default: the number of an op without the field; None for a list.
    """

    name: str
    default: float | None = None

    def write(self, op: XnnpackOp) -> dict[str, Any]:
        """Return the node's field for the field of an op."""
        match self.default:
            case None:
                return {self.name: op.ints(self.name)}
            case int():
                return {self.name: op.integer(self.name, self.default)}
            case float():
                return {self.name: op.number(self.name, self.default)}

    def read(self, node: dict[str, Any]) -> dict[str, Any]:
        """Return the op's value for a field of the schema."""
        return {self.name: node[self.name]}


class _SliceSizes:
    """The sizes of a slice. XNNPACK shortens a slice that would end after its axis, but takes 0 for
    the whole axis only at offset 0: a slice to the end has the greatest size.
    """

    name: ClassVar[str] = "sizes"
    TO_THE_END: ClassVar[int] = 2**32 - 1

    def write(self, op: XnnpackOp) -> dict[str, Any]:
        """Return the node's sizes."""
        pairs = zip(op.ints("offsets"), op.ints("sizes"), strict=True)
        return {"sizes": [size or (self.TO_THE_END if offset else 0) for offset, size in pairs]}

    def read(self, node: dict[str, Any]) -> dict[str, Any]:
        """Return the op's sizes, with 0 for the rest of an axis."""
        return {"sizes": [0 if size == self.TO_THE_END else size for size in node["sizes"]]}


_KERNEL = ("kernel_height", "kernel_width")
_ADJUSTMENT = ("adjustment_height", "adjustment_width")
_PADDING = _Spread("padding", tuple(f"padding_{s}" for s in ("top", "right", "bottom", "left")), 0)
_DILATION = _Spread("dilation", ("dilation_height", "dilation_width"), 1)
_SUBSAMPLING = _Spread("stride", ("subsampling_height", "subsampling_width"), 1)
_CONVOLUTION = (_PADDING, _SUBSAMPLING, _DILATION)
_WINDOW = (_PADDING, _Spread("kernel", ("pooling_height", "pooling_width"), None))
_POOLING = (*_WINDOW, _Spread("stride", ("stride_height", "stride_width"), 1))
_FIELDS: dict[type[XnnpackOp], tuple[_Spread | _Same | _SliceSizes, ...]] = {
    Convolution2d: _CONVOLUTION,
    DepthwiseConvolution2d: _CONVOLUTION,
    Deconvolution2d: (*_CONVOLUTION, _Spread("adjustment", _ADJUSTMENT, 0)),
    MaxPooling2d: (*_POOLING, _DILATION),
    AveragePooling2d: _POOLING,
    ArgMaxPooling2d: _WINDOW,
    **dict.fromkeys(CONCATENATES.values(), (_Same("axis", 0),)),
    LeakyReLU: (_Same("negative_slope", 0.0),),
    ELU: (_Same("alpha", 1.0),),
    StaticReshape: (_Same("new_shape"),),
    StaticTranspose: (_Same("perm"),),
    StaticSlice: (_Same("offsets"), _SliceSizes()),
    StaticConstantPad: (_Same("pre_paddings"), _Same("post_paddings"), _Same("padding_value", 0.0)),
    StaticResizeBilinear2d: (_Spread("new_size", ("new_height", "new_width"), None),),
}
"""The fields that an op and its node have in common."""


def to_fields(op: XnnpackOp) -> dict[str, Any]:
    """Return the fields of an op's node, except the ids of operands and results."""
    flag = _FLAGS.get(type(op))
    fields: dict[str, Any] = {"flags": flag[1] if flag and op.flag(flag[0]) else 0}
    for field in _FIELDS.get(type(op), ()):
        fields |= field.write(op)
    return fields | _derived(op)


def from_fields(cls: type[XnnpackOp], node: dict[str, Any]) -> dict[str, Any]:
    """Return the op's fields, as Python numbers, of a node that was read.

    Raises:
        ParseFailure: the node has a flag that no field of the dialect represents.

    """
    flags = node["flags"] & ~_IGNORED_FLAGS.get(cls, 0)
    fields: dict[str, Any] = {}
    if cls in _FLAGS:
        name, bit = _FLAGS[cls]
        fields[name] = bool(flags & bit)
        flags &= ~bit
    if flags:
        raise ParseFailure(f"{cls.NODE} has flags {flags:#x}, for which the dialect has no field")
    for field in _FIELDS.get(cls, ()):
        fields |= field.read(node)
    if cls in (Convolution2d, Deconvolution2d) and node["groups"] != 1:
        fields["groups"] = node["groups"]
    return fields


def _derived(op: XnnpackOp) -> dict[str, Any]:
    """Return the fields of a node that follow from its op's types and lists, or that XNNPACK
    ignores.
    """
    match op:
        case Convolution2d() | DepthwiseConvolution2d() | Deconvolution2d():
            return _channels(op) | dict(zip(_KERNEL, op.window, strict=True))
        case AveragePooling2d():
            return _DILATION.write(op)
        case StaticReshape() | StaticTranspose() | StaticSlice():
            return {"num_dims": len(op.ints(_FIELDS[type(op)][0].name))}
        case _:
            return {}


def _channels(op: Convolution2d | DepthwiseConvolution2d | Deconvolution2d) -> dict[str, Any]:
    shape = op.filter_shape
    if isinstance(op, DepthwiseConvolution2d):
        channels = op.channels
        assert isinstance(channels, int)
        groups, inputs, outputs = channels, 1, shape[3] // channels
    else:
        groups = op.integer("groups", 1)
        inputs, outputs = shape[3], shape[0] // groups
    fields = {
        "groups": groups,
        "group_input_channels": inputs,
        "group_output_channels": outputs,
    }
    return fields if isinstance(op, Deconvolution2d) else fields | dict.fromkeys(_ADJUSTMENT, 0)
