"""Conversion of a module's or a program's layers to MX, each with its assigned payload."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, cast

from torch import Tensor, nn
from torch.export import ExportedProgram
from xdsl.ir import Operation

from stepwell.dialects import aten
from stepwell.dialects.tosa_mxfp.payloads import payload_named
from stepwell.ir.diagnostics import StepwellError, module_path
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import History, run_rewrites
from stepwell.translate.canonicalize.pipeline import CANONICAL_FORM
from stepwell.translate.decompositions.attention import expand_attention
from stepwell.translate.importer.export_call import export
from stepwell.translate.importer.from_torch import from_exported_program
from stepwell.translate.lowerings.lowering import step
from stepwell.translate.mxfp.attention import MxMultiheadAttention
from stepwell.translate.mxfp.layers import MxConv2d, MxLinear
from stepwell.translate.rewrites.attention.recognize_attention import recognize_attention
from stepwell.translate.rewrites.mxfp.choose_mxfp import (
    ChooseMxConv2d,
    ChooseMxLinear,
    ChooseMxMatmul,
    is_depthwise,
)
from stepwell.translate.rules.rewrite import RuleRewrite

Layers = str | Sequence[str] | type[nn.Module] | Callable[[str, Any], bool] | None
"""Which layers: patterns of names (`blocks.*.mlp.*`), a module type, a predicate of the name and
the module (in a program: the op), or all."""

Payloads = str | Mapping[str, str]
"""One payload, or a mapping of name patterns to payloads, of which the first match counts."""

Assign = Callable[[str, Any], str | None]
"""The payload of a layer, by name and module or op; None leaves it unchanged."""

Float = nn.Module | ExportedProgram | Program
Samples = Sequence[Sequence[Tensor]]


@dataclass(frozen=True)
class Products:
    """The products that become MX in addition to those of linear layers, and their form; see
    `to_mxfp`.
    """

    convolutions: bool
    attention: bool
    form: str


def check_samples(samples: Any, what: str) -> None:
    """Raise `StepwellError` unless there are samples, each the inputs of a call."""
    held: Sequence[Any] = samples if isinstance(samples, Sequence) else ()
    if not held or not all(isinstance(one, tuple | list) for one in held):
        raise StepwellError(f"{what} is measured on samples", help="samples=[(x,), …]")


def as_program(model: Float, samples: Samples = ()) -> Program:
    """Return a module's program, exported for the first sample, or that of an exported program."""
    if isinstance(model, nn.Module):
        model = export(model.eval(), tuple(samples[0]))
    return model if isinstance(model, Program) else from_exported_program(model)


def assignment(payload: Payloads, layers: Layers) -> Assign:
    """Return the function that assigns a payload to each layer by its name."""
    if isinstance(payload, str):
        held = payload_named(payload).name
        return lambda name, layer: held if chooses(layers, name, layer) else None
    patterns = {pattern: payload_named(held).name for pattern, held in payload.items()}

    def assign(name: str, layer: Any) -> str | None:
        if not chooses(layers, name, layer):
            return None
        return next((held for p, held in patterns.items() if fnmatchcase(name, p)), None)

    return assign


MATCHING = (
    "nn.Linear and nn.MultiheadAttention can be MX, with convolutions=True nn.Conv2d too; "
    "see layers=, payload="
)
"""The remedy if no layer is chosen."""

KINDS: dict[type[nn.Module], tuple[type[Operation], ...]] = {
    nn.Linear: (aten.LinearDefault,),
    nn.Conv2d: (aten.ConvolutionDefault,),
}
"""Module type → the ops that it becomes in a program."""


def chooses(layers: Layers, name: str, layer: Any) -> bool:
    """Whether a layer (a module, or an op of a program) is selected."""
    if layers is None:
        return True
    if isinstance(layers, str):
        return fnmatchcase(name, layers)
    if isinstance(layers, type):
        if isinstance(layer, nn.Module):
            return isinstance(layer, layers)
        if layers not in KINDS:
            known = " or ".join(f"nn.{kind.__name__}" for kind in KINDS)
            raise StepwellError(
                f"{layers.__name__} is not a type of layer in a program", help=f"types are {known}"
            )
        return isinstance(layer, KINDS[layers])
    if callable(layers):
        return layers(name, layer)
    return any(fnmatchcase(name, pattern) for pattern in layers)


def convert_module(
    model: nn.Module, assign: Assign, products: Products, second: str | None = None
) -> nn.Module:
    """Return a copy of the module with MX layers, which shares the tensors."""
    shared: dict[int, Any] = {id(p): p for p in (*model.parameters(), *model.buffers())}
    converted = copy.deepcopy(model, shared)
    found = 0
    for name, child in list(converted.named_modules()):
        new = _layer(name, child, assign, products, second)
        if new is None:
            continue
        found += 1
        new.train(child.training)
        if not name:
            return new
        parent, _, last = name.rpartition(".")
        setattr(converted.get_submodule(parent), last, new)
    if not found:
        raise StepwellError("no layer of the module matches", help=MATCHING)
    return converted


def _layer(
    name: str, child: Any, assign: Assign, products: Products, second: str | None
) -> nn.Module | None:
    """Return the MX replacement of a layer, or None if the layer is not converted."""
    kind = type(child)
    is_image = kind is nn.Conv2d and products.convolutions
    if is_image and is_depthwise(child.weight.shape, child.groups):
        return None
    if not (is_image or kind in (nn.Linear, nn.MultiheadAttention) or is_conv1d(child)):
        return None
    payload = assign(name, child)
    if payload is None:
        return None
    stated = payload, second or payload, products.form
    if is_image:
        return MxConv2d(child, *stated)
    if kind is nn.MultiheadAttention:
        return MxMultiheadAttention(child, lambda linear: MxLinear(linear, *stated))
    return MxLinear(child if kind is nn.Linear else of_conv1d(child), *stated)


def is_conv1d(child: nn.Module) -> bool:
    """Whether a module is GPT-2's linear layer, whose weight is `[inputs, outputs]`."""
    kind = type(child)
    return (kind.__module__, kind.__name__) == ("transformers.pytorch_utils", "Conv1D")


def of_conv1d(child: Any) -> nn.Linear:
    """Return an equal linear layer over the same memory, with its weight transposed."""
    inputs, outputs = child.weight.shape
    linear = nn.Linear(inputs, outputs, device="meta")
    linear.weight = nn.Parameter(child.weight.detach().t(), child.weight.requires_grad)
    linear.bias = child.bias
    return linear


def prepared(program: Program, attention: bool) -> Program:
    """Return a copy in canonical form, optionally with attention decomposed into its two
    products.
    """
    if program.level != "aten":
        raise StepwellError(
            f"the program is at level {program.level!r}, not 'aten'",
            help="convert the imported program, then lower it",
        )
    result = program.clone()
    run_rewrites(result, CANONICAL_FORM)
    if attention:
        run_rewrites(result, (step(recognize_attention),))
        run_rewrites(result, (step(expand_attention),))
        run_rewrites(result, CANONICAL_FORM)
    return result


def convert(
    program: Program,
    assign: Assign,
    products: Products,
    second: str | None = None,
    history: History | None = None,
) -> int:
    """Convert the chosen products of a prepared program to MX in place; return their number.

    Raises:
        StepwellError: a selected layer cannot be MX.
    """
    kinds: list[type[RuleRewrite]] = [ChooseMxLinear]
    kinds += [ChooseMxConv2d] if products.convolutions else []
    kinds += [ChooseMxMatmul] if products.attention else []
    anchors = tuple(anchor for kind in kinds for anchor in kind.anchors)
    chosen: dict[Operation, str] = {}
    for method in program.methods.values():
        for op in method.walk():
            if isinstance(op, anchors):
                held = assign(module_path(op.location) or "", op)
                if held is not None:
                    chosen[op] = held
    found = 0
    for payload in sorted(set(chosen.values())):
        of_payload = {op for op, held in chosen.items() if held == payload}
        for kind in kinds:
            options = (payload, second or payload, products.form, of_payload.__contains__)
            rewrite = cast("Callable[..., RuleRewrite]", kind)(*options)
            own = History()
            found += run_rewrites(program, (rewrite,), own)
            if history is not None:
                history.refusals.update(own.refusals)
            refused = [r for r in own.refusals.values() if "form" in r.reason]
            if refused:
                raise StepwellError(f"{refused[0].op}: {refused[0].reason}", refused[0].where)
    return found
