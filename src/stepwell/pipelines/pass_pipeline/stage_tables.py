"""The stages of targets: places in a pipeline at which programs print, parse, verify and run.

A table says of a stage the step behind which a program is at it, the first of these that a
pipeline has; the last stage is the level that is emitted, behind all steps.

`typed`: quantization stands in types; `plain`: torch's operators as the target's lowerings read
them; `nodes`, `operators`: the target's operations, outside delegates, beside what stays torch's;
`laid-out`: with layouts and kernels chosen.
"""

from __future__ import annotations

from collections.abc import Mapping

Stages = Mapping[str, tuple[str, ...]]

XNNPACK: Stages = {
    "typed": ("lower-casts",),
    "plain": ("arrange", "normalize"),
    "nodes": ("share-nodes", "leave-to-kernels"),
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
