"""Calls that are no operators: arithmetic on run-time numbers, and control flow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch.fx import Node

from stepwell.ir.diagnostics import UnsupportedError

if TYPE_CHECKING:
    from stepwell.translate.torch_in.graph import GraphImporter


def import_python_call(importer: GraphImporter, node: Node, target: Any) -> None:
    """Import a call of a Python function or a higher-order operator.

    Raises:
        UnsupportedError: it has no form in the IR.
    """
    raise UnsupportedError("it has no form in the IR")
