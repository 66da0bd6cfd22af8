"""OpenVINO as a target, in the form of a plug-in: `lower(program, "openvino")`.

Its parts are imported when their name is first used. The core does not import this package: it is
registered by an entry point, as a user's plug-in is.
"""

from __future__ import annotations

import importlib
from typing import Any

from stepwell.ir.levels import Level
from stepwell.plugins.registry import Registry

_HERE = "stepwell.integrations.openvino"


def plugin(registry: Registry) -> None:
    """Register the dialect, the target, and the reader of delegates."""
    level = Level("openvino", lambda op: _of("dialect").refuses(op))
    registry.dialect(lambda: _of("dialect").dialect(), name="openvino", level=level)
    registry.delegate("OpenvinoBackend", lambda: _of("read").OpenvinoReader())
    registry.target(lambda: _of("target").make_target(), name="openvino")
    registry.target(lambda: _of("engines.target").make_target(), name="xnnpack+openvino")


def _of(module: str) -> Any:
    """Import a module of this package, with the rules of its operations."""
    importlib.import_module(f"{_HERE}.evaluation")
    return importlib.import_module(f"{_HERE}.{module}")
