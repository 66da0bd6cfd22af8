"""`to_mxfp`: a model whose linear layers, convolutions and attention products compute in MX."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import Any

from torch import Tensor, nn

from stepwell.dialects.tosa_mxfp import operators
from stepwell.dialects.tosa_mxfp.payloads import payload_named
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.program import Program
from stepwell.ir.rewriting import run_rewrites
from stepwell.translate.rewrites.aten import NORMAL_FORM
from stepwell.translate.rewrites.aten.expand_attention import ExpandAttention
from stepwell.translate.rewrites.aten.recognise_attention import RecogniseAttention
from stepwell.translate.rewrites.tosa.choose_mxfp import ChooseMxLinear, ChooseMxMatmul

Layers = str | Sequence[str] | type[nn.Module] | Callable[[str, nn.Module], bool] | None
"""Which layers: patterns of names (`blocks.*.mlp.*`), a module type, a predicate, or all."""


class MxLinear(nn.Module):
    """`nn.Linear` computed in MX, bit for bit as the TOSA reference model computes it."""

    def __init__(self, linear: nn.Linear, payload: str, weight_payload: str) -> None:
        super().__init__()
        self.weight, self.bias = linear.weight, linear.bias
        self.payload, self.weight_payload = payload, weight_payload

    def forward(self, x: Tensor) -> Tensor:
        """`[..., K]` to `[..., N]`."""
        return operators.linear(x, self.weight, self.bias, self.payload, self.weight_payload)

    def extra_repr(self) -> str:
        return f"payload={self.payload}, weight_payload={self.weight_payload}"


class MxConv2d(nn.Module):
    """`nn.Conv2d` with zero padding, computed in MX."""

    def __init__(self, conv: nn.Conv2d, payload: str) -> None:
        super().__init__()
        if conv.padding_mode != "zeros" or isinstance(conv.padding, str):
            raise StepwellError("an MX convolution pads with zeros, by numbers")
        self.weight, self.bias = conv.weight, conv.bias
        self.stride, self.padding = list(conv.stride), list(conv.padding)
        self.dilation, self.groups = list(conv.dilation), conv.groups
        self.payload = payload

    def forward(self, x: Tensor) -> Tensor:
        """NCHW to NCHW."""
        return operators.conv2d(
            x,
            self.weight,
            self.bias,
            self.stride,
            self.padding,
            self.dilation,
            self.groups,
            self.payload,
        )


def to_mxfp(
    model: Any,
    payload: str = "fp8e4m3",
    *,
    weight_payload: str | None = None,
    layers: Layers = None,
    convolutions: bool = False,
    attention: bool = False,
) -> Any:
    """Let layers of a model compute in MX; the argument is not changed.

    Args:
        model: an `nn.Module`, an `ExportedProgram` or a stepwell program at level `aten`.
        payload: `fp8e4m3`, `fp8e5m2`, `fp6e2m3`, `fp6e3m2`, `fp4e2m1` or `mxint8`.
        weight_payload: of the weights, if another; mixing needs block-scaled types (TOSA 1.1).
        layers: which linear layers (and convolutions): patterns of names, a module type, or a
            predicate of name and module. All by default.
        convolutions: convert `nn.Conv2d` too (modules only).
        attention: convert products of two activations too: QKᵀ and PV (programs only).

    Returns:
        A module for a module, a program for a program.

    Raises:
        StepwellError: an unknown payload, or nothing matches.
    """
    held = payload_named(payload).name
    weights = payload_named(weight_payload or payload).name
    if isinstance(model, nn.Module):
        if attention:
            raise StepwellError(
                "attention products are chosen in a program, not in a module",
                help="export the module, then call to_mxfp(exported_program, attention=True)",
            )
        return _module(model, held, weights, layers, convolutions)
    program = model if isinstance(model, Program) else _imported(model)
    return _program(program, held, weights, layers, attention)


def _imported(exported: Any) -> Program:
    from stepwell.translate.from_torch import from_exported_program

    return from_exported_program(exported)


def _module(
    model: nn.Module, payload: str, weights: str, layers: Layers, convolutions: bool
) -> nn.Module:
    # Parameters are shared with the original: a copy of the structure, not of the tensors.
    shared: dict[int, Any] = {id(p): p for p in (*model.parameters(), *model.buffers())}
    converted = copy.deepcopy(model, shared)
    found = 0
    for name, child in list(converted.named_modules()):
        new: nn.Module | None = None
        if not chooses(layers, name, child):
            continue
        if type(child) is nn.Linear:
            new = MxLinear(child, payload, weights)
        elif convolutions and type(child) is nn.Conv2d:
            new = MxConv2d(child, payload)
        if new is None:
            continue
        found += 1
        if not name:
            return new
        parent, _, last = name.rpartition(".")
        setattr(converted.get_submodule(parent), last, new)
    if not found:
        raise StepwellError("no layer of the module matches", help="nn.Linear layers can be MX")
    return converted


def chooses(layers: Layers, name: str, module: nn.Module | None) -> bool:
    """Whether a layer is chosen."""
    if layers is None:
        return True
    if isinstance(layers, str):
        return fnmatchcase(name, layers)
    if isinstance(layers, type):
        return isinstance(module, layers)
    if callable(layers):
        return module is not None and layers(name, module)
    return any(fnmatchcase(name, pattern) for pattern in layers)


def _program(
    program: Program, payload: str, weights: str, layers: Layers, attention: bool
) -> Program:
    if program.level != "aten":
        raise StepwellError(f"the program is at level {program.level!r}, not aten")
    patterns: tuple[str, ...] | None = None
    if isinstance(layers, str):
        patterns = (layers,)
    elif isinstance(layers, type) or callable(layers):
        raise StepwellError("layers of a program are chosen by patterns of names")
    elif layers is not None:
        patterns = tuple(layers)
    result = program.clone()
    run_rewrites(result, NORMAL_FORM)
    if attention:
        run_rewrites(result, (RecogniseAttention(),))
        run_rewrites(result, (ExpandAttention(),))
        run_rewrites(result, NORMAL_FORM)
    found = run_rewrites(result, (ChooseMxLinear(payload, weights, patterns),))
    if attention:
        found += run_rewrites(result, (ChooseMxMatmul(payload),))
    if not found:
        raise StepwellError("no layer of the program matches")
    return result
