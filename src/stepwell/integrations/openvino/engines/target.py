"""The target `xnnpack+openvino`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from stepwell.backends.executorch.kernels.missing_kernels import emission_problems
from stepwell.backends.executorch.writing.emit import PayloadWriters, emit
from stepwell.backends.executorch.writing.serialize import to_bytes
from stepwell.backends.xnnpack.emit import delegate_problems, payload
from stepwell.dialects.xnnpack import DelegateOp as XnnpackDelegate
from stepwell.integrations.openvino.dialect import DelegateOp
from stepwell.integrations.openvino.emit import delegate_payload, package
from stepwell.integrations.openvino.engines.choose import ForXnnpack, OffloadToOpenvino
from stepwell.integrations.openvino.partition import AllocateOutputs, GivePortsAnAxis
from stepwell.ir.diagnostics import Problem
from stepwell.ir.program import Program
from stepwell.ir.traversal import walk
from stepwell.pipelines.xnnpack import XNNPACK
from stepwell.targets.target import Session, Target
from stepwell.targets.xnnpack import FOR_CPU, HALF, SHARES, TUNED, XNNPACK_TARGET

NAME = "xnnpack+openvino"
PIPELINE = replace(
    XNNPACK.before("transforms", ForXnnpack())
    .before("type-quantization", OffloadToOpenvino())
    .after("remove-dead-code", GivePortsAnAxis(), AllocateOutputs()),
    name=NAME,
)


def to_pte(program: Program) -> bytes:
    """Return the `.pte` of a program.

    Raises:
        StepwellError: OpenVINO is needed and not installed, or rejects a delegate.
        UnsupportedError: an op outside the delegates has no kernel.
    """
    writers: PayloadWriters = {XnnpackDelegate: payload, DelegateOp: delegate_payload}
    return to_bytes(emit(program, writers))


def _problems(program: Program) -> Sequence[Problem]:
    delegates = [op for op in walk(program.module) if isinstance(op, XnnpackDelegate)]
    inside = [problem for op in delegates for problem in delegate_problems(op)]
    return [*emission_problems(program, {XnnpackDelegate, DelegateOp}), *inside]


def _session(artifact: bytes) -> Session:
    if b"OpenvinoBackend" in artifact:
        package()  # The runtime loads its libraries.
    assert XNNPACK_TARGET.session is not None
    return XNNPACK_TARGET.session(artifact)


def _run(artifact: bytes, inputs: Sequence[Any], method: str) -> tuple[Any, ...]:
    return _session(artifact)(method, inputs)


def make_target() -> Target:
    """Return the target."""
    return replace(
        XNNPACK_TARGET,
        name=NAME,
        pipeline=PIPELINE,
        emitters={"pte": to_pte},
        runner=_run,
        own_options=(SHARES, TUNED, HALF, FOR_CPU),
        write=None,
        problems=_problems,
        session=_session,
        on_core=None,
    )
