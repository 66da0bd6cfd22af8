"""Checks of the filters and biases that XNNPACK packs."""

from __future__ import annotations

import math

from xdsl.ir import BlockArgument, SSAValue
from xdsl.utils.exceptions import VerifyException

from stepwell.dialects.quant.types import Quantization, quantization
from stepwell.dialects.xnnpack.base import XnnpackOp, constant_of
from stepwell.dialects.xnnpack.datatypes import datatype
from stepwell.ir.types import Dim, dims


def check_static(op: XnnpackOp, index: int) -> None:
    """Raise `VerifyException` unless an operand is a constant."""
    if constant_of(op.operands[index]) is None:
        given = "an input" if isinstance(op.operands[index].owner, BlockArgument) else "computed"
        raise VerifyException(f"operand {index} must be a constant, it is {given}")


def check_weight(op: XnnpackOp, index: int, channel_axis: int) -> None:
    """Raise unless a quantized weight is a constant with its scales on the output channel axis."""
    check_static(op, index)
    operand_quantization = quantization(op.operands[index].type)
    if (
        operand_quantization is not None
        and operand_quantization.axis is not None
        and operand_quantization.axis != channel_axis
    ):
        raise VerifyException(
            f"the weight's scales are on axis {operand_quantization.axis}, "
            f"its output channels on {channel_axis}"
        )
    if (
        operand_quantization is not None
        and operand_quantization.signed
        and not operand_quantization.is_symmetric
    ):
        raise VerifyException("a signed weight must have zero point 0")


def check_bias(op: XnnpackOp, index: int, outputs: Dim) -> None:
    """Raise unless a bias has one number per output, with the scale of the products."""
    bias, weight = op.operands[index], op.operands[1]
    if len(dims(bias.type)) != 1:
        raise VerifyException(f"the bias has rank {len(dims(bias.type))}, must have 1")
    if dims(bias.type)[0] != outputs:
        raise VerifyException(f"the bias has {dims(bias.type)[0]} numbers for {outputs} outputs")
    if datatype(bias.type) in ("qint32", "qcint32"):
        check_static(op, index)
        _check_scales(quantization(op.operands[0].type), quantization(weight.type), bias)


def _check_scales(
    parameters: Quantization | None, weight: Quantization | None, bias: SSAValue
) -> None:
    bias_quantization = quantization(bias.type)
    assert parameters is not None and weight is not None and bias_quantization is not None
    wanted = [parameters.scale * scale for scale in weight.scales]
    stated = list(bias_quantization.scales)
    if len(stated) == 1:
        stated = stated * len(wanted)
    if len(wanted) == 1:
        wanted = wanted * len(stated)
    for channel, (want, have) in enumerate(zip(wanted, stated, strict=True)):
        if not math.isclose(want, have, rel_tol=1e-4):
            raise VerifyException(
                f"the bias of output {channel} has scale {have}; the kernel adds it to products "
                f"of scale {want}"
            )


def check_scale(op: XnnpackOp) -> None:
    """Raise unless products of a statically quantized op are rescaled by less than 256."""
    given, weight, made = (quantization(v.type) for v in (*op.operands[:2], op.output))
    if given is None or weight is None or made is None:
        return
    ratio = given.scale * max(weight.scales) / made.scale
    if ratio >= 256:
        raise VerifyException(f"products are rescaled by {ratio:g}; XNNPACK requires less than 256")
