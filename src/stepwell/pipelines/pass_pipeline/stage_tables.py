"""The stages of targets: points in a pipeline at which programs print, parse, verify and run.

A table maps a stage to passes, of which the first one that a pipeline contains ends the stage. The
last stage is the emitted level, after all passes.

`typed`: quantization is in types; `plain`: PyTorch's operators in the canonical form that the
target's lowerings match; `nodes`, `operators`: the target's operations outside delegates, with the
operators that stay PyTorch's; `laid-out`: layouts and kernels are chosen.
"""

from __future__ import annotations

from collections.abc import Mapping

Stages = Mapping[str, tuple[str, ...]]

XNNPACK: Stages = {
    "typed": ("lower-casts",),
    "plain": ("arrange", "normalize"),
    "nodes": ("share-nodes", "leave-to-kernels", "legalize"),
    "laid-out": ("choose-kernels",),
    "xnnpack": (),
}
TOSA: Stages = {
    "typed": ("share-types",),
    "plain": ("arrange",),
    "operators": ("share-operators",),
    "laid-out": ("share-layouts",),
    "tosa": (),
}
CMSIS: Stages = {
    "typed": ("share-types",),
    "operators": ("lower-boundary",),
    "laid-out": ("share-kernels",),
    "cmsis": (),
}
BESIDE_CPU: Stages = {
    "typed": ("share-types",),
    "operators": ("lower-for-npu",),
    "laid-out": ("share-kernels",),
    "ethosu": (),
}
