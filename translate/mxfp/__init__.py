"""`to_mxfp`: converts linear layers, convolutions and attention products of a model to MX."""

from __future__ import annotations

from typing import overload

from torch import nn
from torch.export import ExportedProgram

from stepwell.dialects.tosa_mxfp.operators import TYPES
from stepwell.dialects.tosa_mxfp.payloads import payload_named
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import History
from stepwell.translate.mxfp.budget import within_budget
from stepwell.translate.mxfp.conversion import (
    MATCHING,
    Float,
    Layers,
    Payloads,
    Products,
    Samples,
    as_program,
    assignment,
    convert,
    convert_module,
    prepared,
)
from stepwell.translate.mxfp.layers import MxConv2d, MxLinear, MxMatmul

__all__ = ["Layers", "MxConv2d", "MxLinear", "MxMatmul", "Payloads", "to_mxfp"]


@overload
def to_mxfp(
    model: nn.Module,
    payload: Payloads = ...,
    *,
    weight_payload: str | None = ...,
    layers: Layers = ...,
    convolutions: bool = ...,
    form: str = ...,
    error_budget: float | None = ...,
    samples: Samples = ...,
) -> nn.Module: ...


@overload
def to_mxfp(
    model: ExportedProgram | Program,
    payload: Payloads = ...,
    *,
    weight_payload: str | None = ...,
    layers: Layers = ...,
    convolutions: bool = ...,
    attention: bool = ...,
    form: str = ...,
    error_budget: float | None = ...,
    samples: Samples = ...,
) -> Program: ...


def to_mxfp(
    model: Float,
    payload: Payloads = "fp8e4m3",
    *,
    weight_payload: str | None = None,
    layers: Layers = None,
    convolutions: bool = False,
    attention: bool = False,
    form: str = TYPES,
    error_budget: float | None = None,
    samples: Samples = (),
) -> nn.Module | Program:
    """Convert layers of a model to MX; the argument is not changed.

    Args:
        model: an `nn.Module`, an `ExportedProgram` or a stepwell program at level `aten`.
        payload: `fp8e4m3`, `fp8e5m2`, `fp6e2m3`, `fp6e3m2`, `fp4e2m1` or `mxint8`, or a mapping
            of name patterns to payloads.
        weight_payload: the payload of the weights, if it differs; mixing needs block-scaled types.
        layers: which linear layers (and convolutions): patterns of names, a module type
            (`nn.Linear`, `nn.Conv2d`), or a predicate of name and module (in a program: the op).
            All by default. The four projections of an `nn.MultiheadAttention` module are one layer.
        convolutions: convert `nn.Conv2d` too, except depthwise ones, in which a block would have
            one channel.
        attention: convert products of two activations too: QKᵀ and PV (programs only).
        form: `operators` on separate data and scales, block-scaled `types`, or `types-bf16`, which
            accumulates in bf16; they round differently. `types` by default: the specification has
            removed the operators, which files for tosa-tools 2026.8 may still contain.
        error_budget: choose the payload of each layer, with the fewest bits in total, so that the
            outputs stay within this relative error (L2 norm) of the float model on every sample;
            `payload` and `weight_payload` are then ignored.
        samples: inputs of the model, for `error_budget`.

    Returns:
        A module for a module, a program for a program.

    Raises:
        StepwellError: an unknown payload, a form that these payloads lack, or nothing matches.
    """
    if attention and isinstance(model, nn.Module):
        raise StepwellError(
            "attention products can be converted in a program only, not in a module",
            help="export the module, then call to_mxfp(exported_program, attention=True)",
        )
    products = Products(convolutions, attention, form)
    if error_budget is not None:
        return within_budget(model, error_budget, samples, layers, products)
    assign = assignment(payload, layers)
    second = payload_named(weight_payload).name if weight_payload else None
    if isinstance(model, nn.Module):
        return convert_module(model, assign, products, second)
    program = prepared(as_program(model), attention)
    history = History()
    found = convert(program, assign, products, second, history)
    if not found:
        reasons = sorted({f"{r.op}: {r.reason}" for r in history.refusals.values()})
        why = f": {'; '.join(reasons)}" if reasons else ""
        raise StepwellError(f"no layer of the program matches{why}", help=MATCHING)
    return program
