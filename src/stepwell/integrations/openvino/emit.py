"""Emission: each delegate as a model that OpenVINO compiles and exports, in a `.pte`.

ExecuTorch's backend imports the exported model with the device's default settings, which include
bfloat16 on CPUs that have it. Therefore every operator is marked to keep its precision (`blob.py`).
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping, Sequence
from typing import Any

from xdsl.ir import Operation, SSAValue

from stepwell.backends.executorch.kernels.missing_kernels import emission_problems
from stepwell.backends.executorch.writing.emit import DelegatePayload, emit
from stepwell.backends.executorch.writing.serialize import to_bytes
from stepwell.integrations.openvino import blob
from stepwell.integrations.openvino.dialect import ConstantOp, DelegateOp, OpenvinoOp, YieldOp
from stepwell.integrations.openvino.meaning import NAMES
from stepwell.ir.core import WeightOp
from stepwell.ir.diagnostics import Problem, StepwellError, UnsupportedError, describe_op
from stepwell.ir.dtypes import torch_dtype
from stepwell.ir.program import Program
from stepwell.ir.signature import ranges_around
from stepwell.ir.sizes.size import Size
from stepwell.ir.sizes.size_ranges import interval
from stepwell.ir.types import dims, element
from stepwell.ir.weights import WeightStore

BACKEND = "OpenvinoBackend"
OPSET = "opset15"
"""The newest opset of the version, whose operators include those of all earlier ones."""
VERSION = "2025.4"
"""The version whose exported models `blob.py` reads."""
F32 = {"INFERENCE_PRECISION_HINT": "f32"}
INSTALL = "pip install 'stepwell[openvino]'"


def package() -> Any:
    """Import OpenVINO.

    Raises:
        StepwellError: it is not installed, or another version is.
    """
    if importlib.util.find_spec("openvino") is None:
        raise StepwellError("the package openvino is not installed", help=INSTALL)
    os.environ.setdefault("OPENVINO_TELEMETRY_DISABLED", "1")
    found = importlib.import_module("openvino")
    if not str(found.__version__).startswith(VERSION):
        fact = f"openvino {found.__version__} is installed; delegates need {VERSION}"
        raise StepwellError(fact, help=INSTALL)
    return found


def to_pte(program: Program) -> bytes:
    """Return the `.pte` of a program.

    Raises:
        StepwellError: OpenVINO is not installed, or its device rejects a delegate.
        UnsupportedError: an op outside the delegates has no kernel.
    """
    return to_bytes(emit(program, {DelegateOp: delegate_payload}))


def problems(program: Program) -> Sequence[Problem]:
    """Return why a program cannot be emitted."""
    return emission_problems(program, {DelegateOp})


def delegate_payload(op: DelegateOp, weights: WeightStore) -> DelegatePayload:
    """Return a delegate's model, compiled and exported.

    Raises:
        StepwellError: as `to_pte`.
    """
    device, model = op.device.data, model_of(op, weights)
    payload = _exported(op, model, F32 if device == "CPU" else {})
    payload = blob.in_single(payload) if device == "CPU" else payload
    # The backend reads the device's name as a C string.
    options = (("device", device.encode() + b"\0"),)
    return DelegatePayload(BACKEND, payload, options=options, writes_operands=op.writes_operands)


def _exported(op: DelegateOp, model: Any, settings: Mapping[str, str]) -> bytes:
    """Compile a model for its device, and return what it exports.

    Raises:
        UnsupportedError: the device rejects it.
    """
    device = op.device.data
    try:
        held = package().Core().compile_model(model, device, dict(settings)).export_model()
    except RuntimeError as error:
        reason = str(error).strip().splitlines()[-1]
        fact = f"OpenVINO's {device} rejects a delegate: {reason}"
        raise UnsupportedError(fact, describe_op(op)) from error
    return held if isinstance(held, bytes) else held.getvalue()


def model_of(op: DelegateOp, weights: WeightStore) -> Any:
    """Return a delegate as OpenVINO's model."""
    ov = package()
    native = importlib.import_module("openvino._pyopenvino")
    create, block = native.NodeFactory(OPSET).create, op.body.block
    values: dict[SSAValue, Any] = {}
    parameters: list[Any] = []
    results: list[Any] = []
    count = len(block.args) - (len(op.results) if op.writes_operands else 0)
    for at, argument in enumerate(block.args[:count]):
        sizes = [_dimension(ov, size, op) for size in dims(argument.type)]
        type_ = getattr(ov.Type, NAMES[torch_dtype(element(argument.type))])
        parameters.append(ov.op.Parameter(type_, ov.PartialShape(sizes)))
        parameters[-1].set_friendly_name(argument.name_hint or f"input_{at}")
        values[argument] = parameters[-1].output(0)
    for inner in block.ops:
        if isinstance(inner, YieldOp):
            results = [ov.op.Result(values[value]) for value in inner.operands]
        elif isinstance(inner, WeightOp):
            values[inner.result] = _constant(ov, weights.get(inner.key.data))
        elif isinstance(inner, ConstantOp):
            values[inner.result] = _constant(ov, inner.tensor())
        else:
            assert isinstance(inner, OpenvinoOp)
            node = _created(create, inner, [values[operand] for operand in inner.operands])
            values |= {result: node.output(at) for at, result in enumerate(inner.results)}
    return ov.Model(results, parameters, "delegate")


def _created(create: Any, op: OpenvinoOp, operands: Sequence[Any]) -> Any:
    try:
        return create(op.TYPE, list(operands), op.values())
    except RuntimeError as error:
        reason = str(error).strip().splitlines()[-1]
        raise UnsupportedError(f"OpenVINO rejects {op.name}: {reason}", describe_op(op)) from error


def _constant(ov: Any, tensor: Any) -> Any:
    held = tensor.detach().contiguous()
    array = held.numpy()
    return ov.op.Constant(array, shared_memory=False).output(0)


def _dimension(ov: Any, size: Any, near: Operation) -> Any:
    if not isinstance(size, Size):
        return ov.Dimension(size)
    low, high = interval(size, ranges_around(near))
    return ov.Dimension(low or 0, -1 if high is None else high)
