"""Read `--quantize` and `--data`, for all commands that open a `MODEL`."""

from __future__ import annotations

import argparse
from typing import Any

from stepwell.ir.diagnostics import StepwellError
from stepwell.loaders.calibration import calibration_inputs
from stepwell.quantization.quantizers import quantizer_for


def quantizer_of(arguments: argparse.Namespace) -> str | None:
    """Return the name of the quantizer that `--quantize` names, with the points of a mixture;
    `int8` is the target's own.
    """
    text, target = arguments.quantize, getattr(arguments, "target", None)
    name, comma, points = (text or "").partition(",")
    if name != "int8" or target is None:
        return text
    return quantizer_for(name, target) + comma + points


def quantization_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the quantizer that `--quantize` names, and the inputs of `--data` on which it is
    calibrated, as arguments of `open_model`.

    Raises:
        StepwellError: no quantizer is named, or the data cannot be read.
    """
    name = quantizer_of(arguments)
    if name is None and arguments.data is not None:
        raise StepwellError(
            "--data calibrates a quantizer, but none is named", help="--quantize int8"
        )
    data = None if arguments.data is None else calibration_inputs(arguments.data)
    return {"quantize": name, "data": data}
