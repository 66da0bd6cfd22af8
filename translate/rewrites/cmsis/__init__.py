"""From quantized ATen ops to CMSIS-NN's operators."""

from stepwell.translate.rewrites.cmsis.layout import merge_movement, relabel_ports, slice_as_part
from stepwell.translate.rewrites.cmsis.layout.absorb_flatten import AbsorbFlatten
from stepwell.translate.rewrites.cmsis.layout.absorb_pad import AbsorbPad, PadAfterView
from stepwell.translate.rewrites.cmsis.layout.assign_layouts import AssignLayouts
from stepwell.translate.rewrites.cmsis.layout.channels_last_ports import ChannelsLastPorts
from stepwell.translate.rewrites.cmsis.layout.integer_ports import IntegerPorts, Io
from stepwell.translate.rewrites.cmsis.layout.order_operators import OrderOperators
from stepwell.translate.rewrites.cmsis.layout.split_projection import SplitProjection
from stepwell.translate.rewrites.cmsis.layout.state_target import StateTarget
from stepwell.translate.rewrites.cmsis.layout.turn_row import TurnRow
from stepwell.translate.rewrites.cmsis.operators.explain_floats import ExplainFloats
from stepwell.translate.rewrites.cmsis.operators.fold_hard_sigmoid import FoldHardSigmoid
from stepwell.translate.rewrites.cmsis.operators.fold_kernel_sum import BiasForm, FoldKernelSum

_MERGES = {rule.name: rule() for rule in merge_movement.RULES}
COMPOSE_TABLES = _MERGES["compose-tables"]
"""Merge a table of a table."""
MERGE_TRANSPOSES = tuple(rule for name, rule in _MERGES.items() if "transpose" in name)
"""Merge transposes with each other or with a constant, and remove those without effect."""
MERGE_VIEWS = tuple(_MERGES[name] for name in ("merge-views", "remove-view"))
"""Merge consecutive views."""
RELABEL_PORTS = tuple(rule() for rule in relabel_ports.RULES)
"""Replace transposes at inputs and outputs by their memory order."""
NAME_PARTS = tuple(rule() for rule in slice_as_part.RULES)
"""Turn slices of one contiguous run of memory into views."""

__all__ = [
    "COMPOSE_TABLES",
    "MERGE_TRANSPOSES",
    "MERGE_VIEWS",
    "NAME_PARTS",
    "RELABEL_PORTS",
    "AbsorbFlatten",
    "AbsorbPad",
    "AssignLayouts",
    "BiasForm",
    "ChannelsLastPorts",
    "ExplainFloats",
    "FoldHardSigmoid",
    "FoldKernelSum",
    "IntegerPorts",
    "Io",
    "OrderOperators",
    "PadAfterView",
    "SplitProjection",
    "StateTarget",
    "TurnRow",
]
