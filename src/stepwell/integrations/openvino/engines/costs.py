"""What an operator takes on either engine, by kind of CPU.

`<kind>.json` contains nanoseconds on one thread, fitted by `python tools/engine_costs.py --write`:
for each engine and kind of operator, the time of a multiply-add or of an element; the time of a
delegate's call; and that of a byte that passes from one delegate to another.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Operation

from stepwell.dialects.xnnpack.costs import ANY, KIND_OF
from stepwell.integrations.openvino.lowerings.quantized import WITH_VNNI, may_saturate
from stepwell.ir.core import weight_key
from stepwell.ir.program import Program
from stepwell.ir.types import dims
from stepwell.ir.work import operations

ENGINES = ("xnnpack", "openvino")
PRODUCTS = frozenset("linear mm bmm matmul addmm baddbmm".split())
NORMS = frozenset("layer_norm group_norm rms_norm softmax _softmax log_softmax".split())
SIMPLE = frozenset("add sub mul relu clamp hardtanh clamp_min clamp_max mean sum".split())
MOVES = frozenset("permute transpose cat slice expand constant_pad_nd select index".split())
FREE = frozenset(
    "batch_norm view reshape flatten unsqueeze squeeze dropout quantize_per_tensor contiguous "
    "dequantize_per_tensor dequantize_per_channel to _to_copy".split()
)
"""Operators that other operators absorb, or that move nothing."""
QUANTIZED = "quantized_decomposed."


@dataclass(frozen=True)
class EngineCosts:
    """The costs of one kind of CPU."""

    call: float
    byte: float
    rates: Mapping[str, Mapping[str, float]]
    """By engine, the nanoseconds of an operation of each kind."""
    saturates: Callable[[Operation], bool] = lambda op: False
    """Whether OpenVINO computes an operator of int8 in floats, because its sums may saturate."""

    def time(self, op: Operation, engine: str) -> float:
        """Return the estimated nanoseconds of an operator."""
        kind = kind_of(op)
        if kind is None:
            return 0.0
        if engine == "openvino" and kind.startswith("int8 ") and self.saturates(op):
            kind = kind.removeprefix("int8 ")
        rates = self.rates[engine]
        return operations(op) * rates.get(kind, rates[kind.removeprefix("int8 ")])


@functools.cache
def load(kind: str) -> EngineCosts | None:
    """Return the costs of a kind of CPU; None if they were not measured."""
    path = Path(__file__).with_name(f"{kind}.json")
    if not path.exists():
        return None
    held: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return EngineCosts(held["call"], held["byte"], {name: held[name] for name in ENGINES})


def costs_for(program: Program) -> Sequence[EngineCosts]:
    """Return the costs of every CPU that a lowering is for; none if one of them is unknown."""
    cpu = program.context.option("cpu")
    found = [load(KIND_OF[name]) for name in ((cpu,) if cpu in KIND_OF else ANY)]
    known = [costs for costs in found if costs is not None]
    if len(known) < len(found) or cpu == WITH_VNNI:
        return known if len(known) == len(found) else []
    return [replace(costs, saturates=partial(_saturates, program)) for costs in known]


def _saturates(program: Program, op: Operation) -> bool:
    """Whether an operator of int8 is a product of values that do not exclude saturation."""
    owners = [v.owner for v in op.operands if _is_dequantized(v.owner)]
    keys = [weight_key(owner.operands[0]) for owner in owners if isinstance(owner, Operation)]
    stored = [program.weights.get(key) for key in keys if key is not None]
    is_product = "convolution" in op.name or op.name.split(".")[1] in PRODUCTS
    return is_product and (not stored or any(map(may_saturate, stored)))


def kind_of(op: Operation) -> str | None:
    """Return the kind of an operator by which its cost is known; None if it costs nothing."""
    parts = op.name.split(".")
    name = parts[1] if len(parts) > 1 else parts[0]
    if name in FREE or name.startswith("sym_"):
        return None
    prefix = "int8 " if any(_is_dequantized(v.owner) for v in op.operands) else ""
    if name == "convolution":
        groups, *window = dims(op.operands[1].type)[1:]
        kind = "pointwise" if set(window) == {1} else "convolution"
        return prefix + ("depthwise" if groups == 1 else kind)
    if name in PRODUCTS:
        return prefix + "linear"
    if "scaled_dot_product" in name:
        return "attention"
    is_tensor = all(isinstance(result.type, TensorType) for result in op.results)
    if not is_tensor or name in MOVES:
        return prefix + "movement"
    kind = "norm" if name in NORMS else "addition" if name in SIMPLE else "function"
    return prefix + kind


def _is_dequantized(owner: object) -> bool:
    return isinstance(owner, Operation) and owner.name.startswith(f"{QUANTIZED}dequantize")
