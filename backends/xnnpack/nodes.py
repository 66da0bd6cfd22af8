"""Convert ops to the schema's nodes and back; the only module that uses the fields' names.

Besides the fields handled here, a node's record holds the ids of its inputs and outputs;
`INPUTS` and `OUTPUTS` give their names.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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
from stepwell.ir.types import dims

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
    """The fields of a node that hold its operands' ids, in the op's order."""
    if cls in _WEIGHTED:
        return ("input1_id", "filter_id", "bias_id")
    if cls is ScaledDotProductAttention:
        return ("query_id", "key_id", "value_id", "scale_id", "mask_id")
    count = len(cls.get_irdl_definition().operands)
    return tuple(f"input{i + 1}_id" for i in range(count)) if count > 1 else ("input_id",)


def output_names(cls: type[XnnpackOp]) -> tuple[str, ...]:
    """The fields of a node that hold its results' ids."""
    return ("output_value_id", "output_index_id") if cls is ArgMaxPooling2d else ("output_id",)


def to_fields(op: XnnpackOp) -> dict[str, Any]:
    """The node's fields other than ids."""
    flag = _FLAGS.get(type(op))
    fields: dict[str, Any] = {"flags": flag[1] if flag and op.flag(flag[0]) else 0}
    writer = _WRITERS.get(type(op))
    if writer is not None:
        fields.update(writer(op))
    return fields


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
    reader = _READERS.get(cls)
    if reader is not None:
        fields.update(reader(node))
    return fields


_SIDES = ("top", "right", "bottom", "left")
_AXES = ("height", "width")


def _conv_fields(op: XnnpackOp) -> dict[str, Any]:
    assert isinstance(op, Convolution2d | DepthwiseConvolution2d | Deconvolution2d)
    shape = op.filter_shape
    fields: dict[str, Any] = {
        f"padding_{side}": amount for side, amount in zip(_SIDES, op.paddings, strict=True)
    }
    for name, values in (
        ("kernel", op.window),
        ("subsampling", op.pair("stride")),
        ("dilation", op.pair("dilation")),
        ("adjustment", op.pair("adjustment", 0)),
    ):
        fields |= {f"{name}_{axis}": v for axis, v in zip(_AXES, values, strict=True)}
    if isinstance(op, DepthwiseConvolution2d):
        channels = op.channels
        assert isinstance(channels, int)
        groups, inputs, outputs = channels, 1, shape[3] // channels
    else:
        groups = op.integer("groups", 1)
        inputs, outputs = shape[3], shape[0] // groups
    return fields | {
        "groups": groups,
        "group_input_channels": inputs,
        "group_output_channels": outputs,
    }


def _conv_read(node: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    padding = [node[f"padding_{side}"] for side in _SIDES]
    if any(padding):
        found["padding"] = padding
    for name, field, default in (
        ("stride", "subsampling", 1),
        ("dilation", "dilation", 1),
        ("adjustment", "adjustment", 0),
    ):
        pair = [node[f"{field}_{axis}"] for axis in _AXES]
        if pair != [default, default]:
            found[name] = pair
    if node["groups"] != 1:
        found["groups"] = node["groups"]
    return found


def _depthwise_read(node: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in _conv_read(node).items() if k not in ("groups", "adjustment")}


def _convolution_read(node: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in _conv_read(node).items() if k != "adjustment"}


def _pooling_fields(op: XnnpackOp) -> dict[str, Any]:
    assert isinstance(op, MaxPooling2d | AveragePooling2d | ArgMaxPooling2d)
    fields: dict[str, Any] = {
        f"padding_{side}": amount for side, amount in zip(_SIDES, op.paddings, strict=True)
    }
    pairs = [("pooling", op.window)]
    if not isinstance(op, ArgMaxPooling2d):
        pairs += [("stride", op.pair("stride")), ("dilation", op.pair("dilation"))]
    for name, values in pairs:
        fields |= {f"{name}_{axis}": v for axis, v in zip(_AXES, values, strict=True)}
    return fields


def _pooling_read(node: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"kernel": [node[f"pooling_{axis}"] for axis in _AXES]}
    padding = [node[f"padding_{side}"] for side in _SIDES]
    if any(padding):
        found["padding"] = padding
    for name in ("stride", "dilation"):
        pair = [node.get(f"{name}_{axis}", 1) for axis in _AXES]
        if pair != [1, 1]:
            found[name] = pair
    return found


def _average_read(node: dict[str, Any]) -> dict[str, Any]:
    """Average pooling: the node's dilation is written and never read."""
    return {k: v for k, v in _pooling_read(node).items() if k != "dilation"}


def _resize_read(node: dict[str, Any]) -> dict[str, Any]:
    return {"new_size": [node["new_height"], node["new_width"]]}


_Writer = Callable[[Any], dict[str, Any]]
_WRITERS: dict[type[XnnpackOp], _Writer] = {
    **dict.fromkeys((Convolution2d, DepthwiseConvolution2d, Deconvolution2d), _conv_fields),
    **dict.fromkeys((MaxPooling2d, AveragePooling2d, ArgMaxPooling2d), _pooling_fields),
    **dict.fromkeys(CONCATENATES.values(), lambda op: {"axis": op.integer("axis", 0)}),
    LeakyReLU: lambda op: {"negative_slope": op.number("negative_slope", 0.0)},
    ELU: lambda op: {"alpha": op.number("alpha", 1.0)},
    StaticReshape: lambda op: {
        "num_dims": len(op.ints("new_shape")),
        "new_shape": op.ints("new_shape"),
    },
    StaticTranspose: lambda op: {"num_dims": len(op.ints("perm")), "perm": op.ints("perm")},
    StaticSlice: lambda op: {
        "num_dims": len(dims(op.input.type)),
        "offsets": op.ints("offsets"),
        "sizes": op.ints("sizes"),
    },
    StaticConstantPad: lambda op: {
        "pre_paddings": op.ints("pre_paddings"),
        "post_paddings": op.ints("post_paddings"),
        "padding_value": op.number("padding_value", 0.0),
    },
    StaticResizeBilinear2d: lambda op: {
        "new_height": op.ints("new_size")[0],
        "new_width": op.ints("new_size")[1],
    },
}

_Reader = Callable[[dict[str, Any]], dict[str, Any]]
_READERS: dict[type[XnnpackOp], _Reader] = {
    Convolution2d: _convolution_read,
    DepthwiseConvolution2d: _depthwise_read,
    Deconvolution2d: _conv_read,
    MaxPooling2d: _pooling_read,
    AveragePooling2d: _average_read,
    ArgMaxPooling2d: _pooling_read,
    **dict.fromkeys(CONCATENATES.values(), lambda node: {"axis": node["axis"]}),
    LeakyReLU: lambda node: {"negative_slope": float(node["negative_slope"])},
    ELU: lambda node: {"alpha": float(node["alpha"])},
    StaticReshape: lambda node: {"new_shape": node["new_shape"]},
    StaticTranspose: lambda node: {"perm": node["perm"]},
    StaticSlice: lambda node: {"offsets": node["offsets"], "sizes": node["sizes"]},
    StaticConstantPad: lambda node: {
        "pre_paddings": node["pre_paddings"],
        "post_paddings": node["post_paddings"],
        "padding_value": float(node["padding_value"]),
    },
    StaticResizeBilinear2d: _resize_read,
}
