"""Read a delegate: the model that OpenVINO's CPU plug-in exported, as operations.

The model is that after the plug-in's transformations, which the engine runs: integer kernels have
operands of integers, products of a linear layer are `FullyConnected`. Fused sub-graphs are read as
their operators. A model of another device, or with an unknown operator, stays opaque.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any
from xml.etree.ElementTree import Element

from xdsl.ir import Attribute, Block, Operation, SSAValue

from stepwell.backends.executorch.container import Delegate
from stepwell.backends.executorch.reading.readers import ReadContext, opaque_delegate, results_of
from stepwell.integrations.openvino.blob import Port, child, inline, parts, sources_of
from stepwell.integrations.openvino.dialect import OPS, ConstantOp, DelegateOp, YieldOp
from stepwell.integrations.openvino.meaning import DTYPES
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.core import WeightOp
from stepwell.ir.diagnostics import ArtifactError, StepwellError
from stepwell.ir.dtypes import element_type
from stepwell.ir.sizes.size import UNKNOWN
from stepwell.ir.types import tensor, tensor_like

INLINE = 16
"""The most elements of a constant that is written in the text."""
BY_NAME = {name.casefold(): cls for name, cls in OPS.items()}
"""The operations by name; files write some names in other letters (`ReLU`, `SoftMax`)."""
PRECISIONS = {"FP32": "f32", "FP64": "f64", "FP16": "f16", "BOOL": "boolean"}


def _ints(text: str) -> list[int]:
    return [int(part) for part in text.split(",") if part.strip()]


def _flag(text: str) -> bool:
    return text in ("true", "1")


_READ: dict[str, Any] = {"int": int, "float": float, "str": str, "bool": _flag, "ints": _ints}


class OpenvinoReader:
    """Reads delegates of OpenVINO's CPU plug-in."""

    def input_count(self, delegate: Delegate, context: ReadContext) -> int | None:
        """Return the number of parameters of the model; None if it cannot be read."""
        try:
            net, _ = parts(bytes(delegate.payload))
        except ArtifactError:
            return None
        return sum(layer.get("type") == "Parameter" for layer in child(net, "layers"))

    def read(
        self,
        delegate: Delegate,
        inputs: Sequence[SSAValue],
        results: Sequence[Attribute],
        context: ReadContext,
    ) -> Operation:
        """Return the delegate with its operators, or opaque with the reason."""
        try:
            block = _Net(bytes(delegate.payload), inputs, context).block
        except StepwellError as error:
            return opaque_delegate(delegate, inputs, results, context, error.problems[0].fact)
        device = dict(delegate.options).get("device", b"CPU")
        name = bytes(device).rstrip(b"\0").decode()
        return DelegateOp.make(name, inputs, results_of(block), block)


class _Net:
    """The operations of a model, in a block."""

    def __init__(self, payload: bytes, inputs: Sequence[SSAValue], context: ReadContext) -> None:
        net, self.constants = parts(payload)
        inline(net, lambda body: True)
        self.layers = {layer.attrib["id"]: layer for layer in child(net, "layers")}
        self.sources, self.context = sources_of(child(net, "edges")), context
        self.block, self.values = Block(arg_types=[v.type for v in inputs]), dict[Port, SSAValue]()
        parameters = [i for i, layer in self.layers.items() if layer.get("type") == "Parameter"]
        for name, argument in zip(parameters, self.block.args, strict=True):
            self.values[name, "0"] = argument
        ends = [i for i, layer in self.layers.items() if layer.get("type") == "Result"]
        for end in ends:
            self._write(end)
        returned = [self.values[self.sources[end, "0"]] for end in ends]
        self.block.add_op(YieldOp.create(operands=returned))

    def _write(self, end: str) -> None:
        """Write the layers that a result is computed from, operands first."""
        pending, seen = [(end, False)], set[str]()
        while pending:
            name, ready = pending.pop()
            ports = [port.attrib["id"] for port in self.layers[name].iterfind("input/port")]
            if ready:
                self._layer(name, [self.values[self.sources[name, port]] for port in ports])
            elif name not in seen and not self._is_written(name):
                seen.add(name)
                pending.append((name, True))
                pending += [(self.sources[name, port][0], False) for port in ports]

    def _is_written(self, name: str) -> bool:
        return any((name, port.attrib["id"]) in self.values for port in self._ports(name))

    def _ports(self, name: str) -> list[Element]:
        return self.layers[name].findall("output/port")

    def _layer(self, name: str, operands: list[SSAValue]) -> None:
        layer = self.layers[name]
        kind, version = layer.attrib["type"], layer.attrib["version"].removeprefix("type_relaxed_")
        data = layer.find("data")
        stated = {} if data is None else data.attrib
        if kind == "Result":
            return
        if kind == "Const":
            made = self._constant(stated, f"{self.context.prefix}.{name}")
        else:
            cls = OPS.get(f"{kind}_{version}") or BY_NAME.get(kind.casefold())
            if cls is None:
                raise ArtifactError(f"the operator {kind} of OpenVINO's {version} is unknown")
            known = cls.SIGNATURE.attributes
            fields = {key: _READ[known[key]](text) for key, text in stated.items() if key in known}
            made = cls.make(operands, [_type(port) for port in self._ports(name)], **fields)
        self.block.add_op(made)
        for port, result in zip(self._ports(name), made.results, strict=True):
            self.values[name, port.attrib["id"]] = result

    def _constant(self, stated: dict[str, str], key: str) -> Operation:
        start, size = int(stated["offset"]), int(stated["size"])
        if stated["element_type"] == "dynamic":
            return ConstantOp.make(torch.empty(0))  # An absent bias.
        dtype = DTYPES.get(stated["element_type"])
        if dtype is None or start + size > len(self.constants):
            raise ArtifactError(f"a constant has the type {stated['element_type']}, or is missing")
        shape = _ints(stated["shape"])
        held = bytearray(self.constants[start : start + size])
        # The size of a constant without elements is one byte.
        flat = (
            torch.frombuffer(held, dtype=dtype) if math.prod(shape) else torch.empty(0, dtype=dtype)
        )
        value = flat.reshape(shape)
        if value.numel() <= INLINE and dtype != torch.bool:
            return ConstantOp.make(value)
        return WeightOp(self.context.weights.add(key, value), tensor_like(value))


def _type(port: Element) -> Attribute:
    """Return the type that a port states."""
    precision = port.attrib["precision"]
    dtype = DTYPES.get(PRECISIONS.get(precision, precision.lower()))
    if dtype is None:
        raise ArtifactError(f"a value has the type {precision}, which PyTorch lacks")
    sizes = [int(dim.text or "-1") for dim in port.iterfind("dim")]
    return tensor([UNKNOWN if size < 0 else size for size in sizes], element_type(dtype))
