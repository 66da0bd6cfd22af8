"""Models by XNNPACK, by OpenVINO, and by the target that chooses for each part.

    python tools/both_engines.py [NAME …] [--seconds 2]
    python tools/without_avx512.py … -- tools/both_engines.py

The names are those of `bench/_models.py`. Each model is lowered three times and timed in a process
of its own, on one core; calls alternate, and the times are the least. The delegates are those of
the third lowering in order: `x` for XNNPACK, `o` for OpenVINO. `@static` models are quantized by
`--quantizer`; weights of seven bits run on OpenVINO's integer kernels on every CPU.
"""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Callable
from typing import Any

import torch
from openvino_models import KINDS, in_a_process, least, made

import stepwell

TARGETS = ("xnnpack", "openvino", "xnnpack+openvino")


def measured(name: str, cpu: str | None, quantizer: str, seconds: float) -> tuple[str, list[float]]:
    """Return the delegates of the third target, and the milliseconds by each."""
    from stepwell.backends.executorch.running.runner import PteSession

    os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[-1]})
    model = made(name)
    calls, order = list[Callable[[], Any]](), ""
    if model.form == "static":
        module = stepwell.quantize(model.module, quantizer, [model.inputs])
        exported = torch.export.export(module, model.inputs)
    else:
        exported = model.exported()
    flat = torch.utils._pytree.tree_leaves(model.inputs)
    for target in TARGETS:
        options = {"cpu": cpu} if cpu else {}
        lowered = stepwell.lower(exported, target, **options)
        session = PteSession.load(lowered.to_pte())
        held = session._engine, session.container.method("forward")
        calls.append(lambda held=held: held[0].execute(held[1], flat))
        ops = lowered.program.method().body.block.ops
        order = "".join(op.name[0] for op in ops if op.name.endswith(".delegate"))
    return order, least(calls, seconds)


def main() -> None:
    """Print a row for each model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=["examples", "int8"])
    parser.add_argument("--cpu", help="the CPU to choose for; by default both kinds of x86")
    parser.add_argument("--quantizer", default="int8-openvino", help="of the models @static")
    parser.add_argument("--seconds", type=float, default=2.0)
    arguments = parser.parse_args()
    print("| model | delegates | XNNPACK | OpenVINO | both | of the better |")
    print("|---|---|---|---|---|---|")
    shares = list[float]()
    for name in (n for given in arguments.names for n in KINDS.get(given, (given,))):
        row = in_a_process(measured, name, arguments.cpu, arguments.quantizer, arguments.seconds)
        if isinstance(row, str):
            print(f"| {name} | {row} |", flush=True)
            continue
        order, (one, other, both) = row
        shares.append(min(one, other) / both)
        cells = " | ".join(f"{ms:.2f}" for ms in (one, other, both))
        print(f"| {name} | {order} | {cells} | {shares[-1]:.2f} |", flush=True)
    if shares:
        mean = math.exp(sum(map(math.log, shares)) / len(shares))
        print(f"geometric mean {mean:.2f}, least {min(shares):.2f}")


if __name__ == "__main__":
    main()
