"""The error of each layer of a model in each MX payload."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor
from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.tosa_mxfp import operators
from stepwell.dialects.tosa_mxfp.operators import TYPES, TYPES_BF16, form_refused
from stepwell.dialects.tosa_mxfp.payloads import PAYLOADS, payload_named
from stepwell.ir.calls.calling import bind_inputs
from stepwell.ir.declared.interpretation import Interpreter
from stepwell.ir.diagnostics import module_path, node_name
from stepwell.ir.platform.bar_charts import Plot, plot
from stepwell.ir.platform.dataframes import frame
from stepwell.ir.program import Program
from stepwell.ir.renderers import Shown
from stepwell.translate.mxfp.conversion import (
    Float,
    Products,
    Samples,
    as_program,
    check_samples,
    prepared,
)
from stepwell.translate.rewrites.mxfp.choose_mxfp import (
    MxConv2dOp,
    MxLinearOp,
    MxMatmulOp,
    is_depthwise,
)

if TYPE_CHECKING:
    from pandas import DataFrame


Product = Callable[[str | None], Tensor]
"""Computes a layer's result with a payload, or in floats."""

LAYERS: dict[type[Operation], str] = {
    aten.LinearDefault: "linear",
    MxLinearOp: "linear",
    aten.ConvolutionDefault: "conv2d",
    MxConv2dOp: "conv2d",
    aten.BmmDefault: "matmul",
    MxMatmulOp: "matmul",
}


@dataclass(frozen=True)
class LayerAccuracy:
    """One layer: its relative error in each payload.

    Attributes:
        name: the name of its module, or of its node if it has none.
        kind: `linear`, `conv2d` or `matmul`.
        node: the node of the exported graph.
        errors: payload → ‖y_mx - y‖ / ‖y‖ at the layer's output, for its float inputs; the
            maximum over the samples.
        payload: the layer's current payload, None for floats.
    """

    name: str
    kind: str
    node: str
    errors: Mapping[str, float]
    payload: str | None = None

    def smallest(self, limit: float) -> str | None:
        """Return the most accurate payload of the fewest bits whose error is within a limit."""
        return smallest(self.errors, limit)


def smallest(errors: Mapping[str, float], limit: float) -> str | None:
    """Return the best payload of the fewest bits whose error is within a limit."""
    fit = [name for name, error in errors.items() if error <= limit]
    return min(fit, key=lambda name: (payload_named(name).bits, errors[name]), default=None)


@dataclass(frozen=True)
class MxAccuracy(Shown):
    """The errors of every layer that can be MX. `str()` is a table."""

    layers: tuple[LayerAccuracy, ...]

    def cells(self) -> Iterator[tuple[Any, ...]]:
        """Yield each layer's name, kind, errors by payload (None if not supported) and current
        payload.
        """
        for layer in self.layers:
            errors = (layer.errors.get(name) for name in PAYLOADS)
            yield layer.name, layer.kind, *errors, layer.payload or "float"

    def to_frame(self) -> DataFrame:
        """Return a data frame with a row for each layer and a column for each payload."""
        return frame(("layer", "kind", *PAYLOADS, "is"), self.cells())

    def plot(self) -> Plot:
        """Return a plot of the relative error of each layer in each payload."""
        rows = [
            (layer.name, [float(f"{layer.errors.get(name, 0.0):.3g}") for name in PAYLOADS])
            for layer in self.layers
        ]
        title = "Relative error of each layer in each payload"
        return plot(title, tuple(PAYLOADS), rows, True)

    def __str__(self) -> str:
        names = list(PAYLOADS)
        width = max([5, *(len(layer.name) for layer in self.layers)])
        head = "".join(f"{name:>9}" for name in names)
        lines = [f"{'layer':{width}} {'kind':7}{head}  is"]
        for layer in self.layers:
            cells = (layer.errors.get(name) for name in names)
            row = "".join(f"{'–':>9}" if e is None else f"{e:9.2%}" for e in cells)
            now = layer.payload or "float"
            lines.append(f"{layer.name:{width}} {layer.kind:7}{row}  {now}")
        return "\n".join(lines)


def mx_accuracy(
    model: Float,
    samples: Samples,
    *,
    convolutions: bool = True,
    attention: bool = True,
    form: str = TYPES,
) -> MxAccuracy:
    """Measure the relative error of each layer in each payload.

    Args:
        model: an `nn.Module`, an `ExportedProgram` or a stepwell program at level `aten`, with
            float layers or MX ones.
        samples: inputs of the model.
        convolutions: measure convolutions too.
        attention: measure products of two activations too.
        form: the form of the products, as for `to_mxfp`.

    Raises:
        StepwellError: no samples were passed.
    """
    check_samples(samples, "an error")
    program = prepared(as_program(model, samples), attention)
    errors = measure(program, samples, Products(convolutions, attention, form))
    return MxAccuracy(tuple(_layer(op, found) for op, found in errors.items()))


def _layer(op: Operation, errors: Mapping[str, float]) -> LayerAccuracy:
    node = node_name(op.location) or ""
    now = op.arg("payload") if isinstance(op, MxLinearOp | MxConv2dOp | MxMatmulOp) else None  # pyright: ignore[reportArgumentType]
    return LayerAccuracy(module_path(op.location) or node, LAYERS[type(op)], node, errors, now)


def measure(
    program: Program, samples: Sequence[Sequence[Any]], products: Products
) -> dict[Operation, dict[str, float]]:
    """Return the errors of each layer of a prepared program, in program order."""
    chosen = {"linear": True, "conv2d": products.convolutions, "matmul": products.attention}
    kinds = {kind for kind, is_chosen in chosen.items() if is_chosen}
    run = _Measuring(program.weights, kinds=kinds, form=products.form)
    func = program.method()
    for sample in samples:
        run.call(func, bind_inputs(func, list(sample)))
    return run.errors


@dataclass
class _Measuring(Interpreter):
    """An interpreter that computes each layer in each payload, from its float operands."""

    kinds: set[str] = field(default_factory=set[str])
    form: str = TYPES
    errors: dict[Operation, dict[str, float]] = field(
        default_factory=dict[Operation, dict[str, float]]
    )

    def step(self, op: Operation, environment: dict[SSAValue, Any]) -> None:
        """Evaluate an op unchanged, then measure its error in each payload."""
        super().step(op, environment)
        if LAYERS.get(type(op)) not in self.kinds:
            return
        assert isinstance(op, SchemaOp)
        product = _product(op, [environment[value] for value in op.operands], self.form)
        if product is None:
            return
        expected = product(None).double()
        norm = float(expected.norm()) or 1.0
        held = self.errors.setdefault(op, {})
        for payload in PAYLOADS:
            is_image = LAYERS[type(op)] == "conv2d"
            if self.form != TYPES_BF16 and form_refused(
                self.form, payload, payload, expected.dtype, is_image
            ):
                continue
            moved = float((product(payload).double() - expected).norm()) / norm
            held[payload] = max(held.get(payload, 0.0), moved)


def _product(op: SchemaOp, operands: Sequence[Any], form: str) -> Product | None:
    """Return the function that computes a layer, or None if it cannot be MX."""
    x: Tensor = operands[0]
    other: Tensor = operands[1]
    if not x.dtype.is_floating_point or x.dtype == torch.float64 or other.dtype != x.dtype:
        return None
    bias = operands[2] if len(operands) > 2 else None
    kind = LAYERS[type(op)]
    if kind == "linear":
        return lambda p: (
            operators.linear(x, other, bias, p, p, form) if p else F.linear(x, other, bias)
        )
    if kind == "matmul":
        right: Tensor = other.transpose(1, 2) if isinstance(op, aten.BmmDefault) else other
        return lambda p: (
            operators.matmul_t(x, right, p, p, form) if p else torch.bmm(x, right.transpose(1, 2))
        )
    if x.dim() != 4 or is_depthwise(other.shape, op.arg("groups")):
        return None
    if isinstance(op, aten.ConvolutionDefault) and op.arg("transposed"):
        return None
    stride, padding, dilation = (list(op.arg(n)) for n in ("stride", "padding", "dilation"))
    groups: int = op.arg("groups")
    spelled = TYPES if form == TYPES_BF16 else form

    def convolved(payload: str | None) -> Tensor:
        if payload is None:
            return F.conv2d(x, other, bias, stride, padding, dilation, groups)
        said = payload, payload, spelled
        return operators.conv2d(x, other, bias, stride, padding, dilation, groups, *said)

    return convolved
