"""The target `openvino`: its options, emitter and engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stepwell.backends.executorch.running.runner import PteSession
from stepwell.integrations.openvino.emit import package, problems, to_pte
from stepwell.integrations.openvino.pipeline import OPENVINO
from stepwell.ir.options import Option
from stepwell.targets.target import Session, Target
from stepwell.targets.xnnpack import FOR_CPU

DEVICE = Option(
    "device",
    str,
    "CPU",
    "OpenVINO's device, by its name: CPU, GPU, NPU",
)
STAGES = {"plain": ("arrange",), "operators": ("share-operators",), "openvino": ()}


def _run(artifact: bytes, inputs: Sequence[Any], method: str) -> tuple[Any, ...]:
    return _session(artifact)(method, inputs)


def _session(artifact: bytes) -> Session:
    package()  # The runtime loads its libraries.
    return PteSession.load(artifact).call


def make_target() -> Target:
    """Return the target."""
    return Target(
        "openvino",
        OPENVINO,
        "pte",
        {"pte": to_pte},
        _run,
        (DEVICE, FOR_CPU),
        stages=STAGES,
        problems=problems,
        session=_session,
    )
