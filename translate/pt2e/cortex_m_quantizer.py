"""A PT2E quantizer that annotates every op that the Cortex-M backend lowers.

    graph = torch.export.export(model, inputs).module(check_guards=False)
    prepared = prepare_pt2e(graph, CortexMQuantizer())
    prepared(*calibration)
    exported = torch.export.export(convert_pt2e(prepared), inputs)

ExecuTorch's own quantizer leaves scalar arithmetic, broadcasts, `matmul` of any rank, NCHW and 1-D
convolutions, layer norms and more as floats; graphs from it lower too. PT2E works on `torch.fx`
graphs, so this module is next to the importer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, cast

import torch
from torch.fx import GraphModule, Node
from torchao.quantization.pt2e import MinMaxObserver, PerChannelMinMaxObserver
from torchao.quantization.pt2e.quantizer import (
    FixedQParamsQuantizationSpec,
    QuantizationAnnotation,
    QuantizationSpec,
    Quantizer,
    SharedQuantizationSpec,
)

from stepwell.dialects.aten.registry import overload_of
from stepwell.dialects.cmsis.arithmetic import PROBABILITY_SCALE, PROBABILITY_ZERO_POINT
from stepwell.ir.declared.families import ops_of
from stepwell.translate.pt2e.decompose_for_annotation import decompose
from stepwell.translate.quantized.functions import OF_ONE

aten = torch.ops.aten
Targets = frozenset[Any]


def _ops(*names: str) -> Targets:
    ops: set[Any] = set()
    for name in names:
        operator, _, overload = name.partition(".")
        packet = getattr(aten, operator)
        ops.add(getattr(packet, overload or "default"))
        if hasattr(aten, f"{operator}_"):
            in_place = getattr(aten, f"{operator}_")
            if hasattr(in_place, overload or "default"):
                ops.add(getattr(in_place, overload or "default"))
    return frozenset(ops)


CONVOLUTIONS = _ops("conv1d", "conv1d.padding", "conv2d", "conv2d.padding")
TRANSPOSED = _ops("conv_transpose1d", "conv_transpose2d.input")
LINEAR = _ops("linear")
PRODUCTS = _ops("matmul", "bmm", "mm")
ADDMM = _ops("addmm")
BINARY = _ops("add.Tensor", "sub.Tensor", "mul.Tensor", "div.Tensor", "minimum", "maximum")
UNARY = _ops(
    *OF_ONE,
    *"pow.Tensor_Scalar rsub.Scalar add.Scalar sub.Scalar mul.Scalar div.Scalar".split(),
)
CLAMPS = _ops("relu", "relu6", "hardtanh", "clamp", "clamp_min", "clamp_max")
AVERAGES = _ops("avg_pool2d", "avg_pool1d", "adaptive_avg_pool2d")
REDUCTIONS = _ops("mean.dim", "sum.dim_IntList")
SHARING = _ops(
    *"max_pool2d max_pool1d view reshape flatten.using_ints permute transpose.int t squeeze "
    "squeeze.dim squeeze.dims unsqueeze expand slice.Tensor select.int contiguous clone dropout "
    "constant_pad_nd pad repeat flip unflatten.int chunk split.Tensor expand_as roll unbind.int "
    "pixel_shuffle pixel_unshuffle channel_shuffle narrow amax amin max min gather index_select "
    "upsample_nearest1d.vec upsample_nearest2d.vec _upsample_nearest_exact1d.vec "
    "_upsample_nearest_exact2d.vec".split()
)
CONCATENATIONS = _ops("cat", "stack")
DISTRIBUTIONS = frozenset(map(overload_of, ops_of("distribution", "aten")))
EMBEDDINGS = _ops("embedding")
CHOICES = _ops("where.self")
ORDERS = _ops("argmax", "argmin") | _ops(
    *(f"{word}.{kind}" for word in "eq ne lt le gt ge".split() for kind in ("Tensor", "Scalar"))
)
"""Ops that only compare numbers and return none."""


class CortexMQuantizer(Quantizer):
    """A quantizer of activations to int8 per tensor; weights per channel for convolutions, else per
    tensor.
    """

    def __init__(
        self,
        per_channel_linear: bool = False,
        observer: Callable[..., Any] = MinMaxObserver,
        recurrences: bool = True,
    ) -> None:
        """`per_channel_linear` gives linear layers a scale per row; they then lower to 1×1
        convolutions. `observer` is the class that observes activations. `recurrences`: whether
        `LSTM`, `GRU` and `RNN` become int8, step by step, or stay floats.
        """
        super().__init__()
        self.recurrences = recurrences
        self.activation = QuantizationSpec(
            dtype=torch.int8,
            quant_min=-128,
            quant_max=127,
            qscheme=torch.per_tensor_affine,
            observer_or_fake_quant_ctr=cast(Any, observer),
        )
        self.per_tensor = QuantizationSpec(
            dtype=torch.int8,
            quant_min=-127,
            quant_max=127,
            qscheme=torch.per_tensor_symmetric,
            observer_or_fake_quant_ctr=cast(Any, MinMaxObserver),
        )
        self.linear_weight = self._per_channel(0) if per_channel_linear else self.per_tensor
        self.probabilities = FixedQParamsQuantizationSpec(
            dtype=torch.int8,
            scale=PROBABILITY_SCALE,
            zero_point=PROBABILITY_ZERO_POINT,
            quant_min=-128,
            quant_max=127,
            qscheme=torch.per_tensor_affine,
        )

    def transform_for_annotation(self, model: GraphModule) -> GraphModule:
        """Decompose norms, attention and recurrences, so that their parts can be annotated."""
        return decompose(model, self.recurrences)

    def annotate(self, model: GraphModule) -> GraphModule:
        """Annotate every node that has a lowering."""
        for node in model.graph.nodes:
            if node.op == "call_function" and (_is_float(node) or node.target in ORDERS):
                self._annotate(node)
        return model

    def validate(self, model: GraphModule) -> None:
        """Accept any annotation: a node without one stays a float."""

    def _annotate(self, node: Node) -> None:
        target = node.target
        if target in CONVOLUTIONS:
            self._weighted(node, 1, self._per_channel(0))
        elif target in TRANSPOSED:
            self._weighted(node, 1, self._per_channel(1))
        elif target in LINEAR:
            self._weighted(node, 1, self.linear_weight)
        elif target in ADDMM:
            _, left, right = cast("tuple[Node, ...]", node.args[:3])
            self._mark(node, {left: self.activation, right: self.per_tensor})
        elif target in PRODUCTS:
            self._mark(node, dict.fromkeys(_tensors(node.args), self.activation))
        elif target in BINARY or target in UNARY:
            self._elementwise(node)
        elif target in AVERAGES:
            shared = SharedQuantizationSpec((_first(node), node))
            self._mark(node, {_first(node): self.activation}, shared)
        elif target in REDUCTIONS:
            self._mark(node, {_first(node): self.activation})
        elif target in DISTRIBUTIONS:
            self._mark(node, {_first(node): self.activation}, self.probabilities)
        elif target in SHARING and _first(node).op != "get_attr":
            self._shared(node, [_first(node)])
        elif target in CONCATENATIONS:
            self._shared(node, list(_tensors(cast("list[Any]", node.args[0]))))
        elif target in EMBEDDINGS:
            self._shared(node, [_first(node)])
        elif target in CHOICES:
            self._shared(node, list(_tensors(node.args[1:])))
        elif target in ORDERS:
            self._ordered(node, list(_tensors(node.args)))

    def _weighted(self, node: Node, place: int, spec: QuantizationSpec) -> None:
        weight = cast(Node, node.args[place])
        self._mark(node, {_first(node): self.activation, weight: spec})

    def _elementwise(self, node: Node) -> None:
        first = _first(node)
        is_fused_clamp = (
            node.target in CLAMPS
            and len(first.users) == 1
            and first.op == "call_function"
            and first.target in CONVOLUTIONS | TRANSPOSED | LINEAR | ADDMM | _ops("add.Tensor")
        )
        if is_fused_clamp:  # The clamp narrows the range of the preceding op.
            first.meta["quantization_annotation"].output_qspec = None
            self._mark(node, {})
            return
        self._mark(node, dict.fromkeys(_tensors(node.args), self.activation))

    def _shared(self, node: Node, inputs: list[Node]) -> None:
        anchor = SharedQuantizationSpec((inputs[0], node))
        specs: dict[Any, Any] = dict.fromkeys(inputs, anchor)
        specs[inputs[0]] = self.activation
        self._mark(node, specs, anchor)

    def _ordered(self, node: Node, inputs: list[Node]) -> None:
        numbers = [value for value in node.args if isinstance(value, float)]
        if inputs and all(map(math.isfinite, numbers)):  # Only reals compare with an infinity.
            self._shared(node, inputs)
            node.meta["quantization_annotation"].output_qspec = None

    def _mark(self, node: Node, inputs: dict[Any, Any], output: Any = None) -> None:
        node.meta["quantization_annotation"] = QuantizationAnnotation(
            input_qspec_map=inputs, output_qspec=output or self.activation, _annotated=True
        )

    def _per_channel(self, axis: int) -> QuantizationSpec:
        return QuantizationSpec(
            dtype=torch.int8,
            quant_min=-127,
            quant_max=127,
            qscheme=torch.per_channel_symmetric,
            ch_axis=axis,
            observer_or_fake_quant_ctr=cast(Any, PerChannelMinMaxObserver),
        )


def _tensors(values: Iterable[Any]) -> Iterable[Node]:
    return [value for value in values if isinstance(value, Node) and _is_float(value)]


def _first(node: Node) -> Node:
    return cast(Node, node.args[0])


def _is_float(node: Node) -> bool:
    value = node.meta.get("val")
    if isinstance(value, (list, tuple)):
        value = cast("list[Any]", value)[0]
    return value is None or (isinstance(value, torch.Tensor) and value.is_floating_point())
