"""Whole models by the target `openvino`, next to OpenVINO itself: results, delegates, time.

    python tools/openvino_models.py [KIND or MODEL …] [--target openvino] [--seconds 2]

KIND is `examples`, `untuned` or `int8`; the names are those of `bench/_models.py`. Each model is
lowered and measured in a process of its own, on one core. Plain OpenVINO converts the same exported
program (`openvino.convert_model`) and compiles it for float32, as the delegates are. Calls of both
alternate; the times are the least. The difference is the greatest from eager PyTorch, as a share
of the greatest result.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "examples/models")]

import torch  # noqa: E402
from _models import EXAMPLES, UNTUNED, Model, made  # noqa: E402

import stepwell  # noqa: E402

KINDS = {
    "examples": tuple(EXAMPLES),
    "untuned": tuple(UNTUNED),
    "int8": (
        "mobilenet_v2@static", "resnet18@static", "resnet50@static", "mixer_s32@static",
        "deit_tiny@static", "efficientnet_b0@static", "mobilenet_v3_small@static",
    ),
}  # fmt: skip


def least(calls: list[Callable[[], Any]], seconds: float) -> list[float]:
    """Return the least time of each call in ms; calls alternate for the given time."""
    best = [math.inf] * len(calls)
    end = time.perf_counter() + seconds
    rounds = 0
    while rounds < 5 or time.perf_counter() < end:
        for at, call in enumerate(calls):
            started = time.perf_counter()
            call()
            best[at] = min(best[at], time.perf_counter() - started)
        rounds += 1
    return [1000 * each for each in best]


def with_fake_quantization(model: Model, exported: Any) -> Any:
    """Return PT2E's program with fake quantization, as OpenVINO's frontend can convert it.

    It converts neither quantization to int8 nor weights of int8 that a layer reads.
    """
    module, q = exported.module(), torch.ops.quantized_decomposed
    for node in module.graph.nodes:
        if node.target is q.dequantize_per_tensor.default:
            source, *numbers = node.args[:5]
            if source.op == "get_attr":
                stored = getattr(module, source.target)
                real = q.dequantize_per_tensor(stored, *numbers, stored.dtype)
                setattr(module, source.target, real)
            else:
                source, *numbers = source.args[:5]
            node.target = torch.ops.aten.fake_quantize_per_tensor_affine.default
            node.args = (source, *numbers)
        elif node.target is q.dequantize_per_channel.default:
            w, scales, zeros, axis, low, high = node.args[:6]
            held = [getattr(module, n.target) for n in (w, scales, zeros)]
            setattr(module, w.target, q.dequantize_per_channel(*held, axis, low, high, torch.int8))
            setattr(module, zeros.target, held[2].to(torch.int32))
            node.target = torch.ops.aten.fake_quantize_per_channel_affine.default
            node.args = (w, scales, zeros, axis, low, high)
    module.graph.eliminate_dead_code()
    module.recompile()
    return torch.export.export(module, model.inputs)


def plain(model: Model, exported: Any) -> Callable[[], Any]:
    """Return a call of the model as OpenVINO itself compiles it."""
    import openvino as ov

    converted = ov.convert_model(
        with_fake_quantization(model, exported) if model.form else exported
    )
    settings = {"INFERENCE_PRECISION_HINT": "f32"}
    request = ov.Core().compile_model(converted, "CPU", settings).create_infer_request()
    flat = [x.numpy() for x in torch.utils._pytree.tree_leaves(model.inputs)]
    return lambda: request.infer(flat, share_inputs=True, share_outputs=True)


def measured(name: str, target: str, seconds: float) -> tuple[Any, ...]:
    """Lower, run and time a model; return the cells of its row."""
    os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[-1]})
    model = made(name)
    exported = model.exported()
    lowered = stepwell.lower(exported, target)
    flat = torch.utils._pytree.tree_leaves(model.inputs)
    with torch.no_grad():
        wanted = torch.utils._pytree.tree_leaves(exported.module()(*model.inputs))
    found = lowered.run(*model.inputs)
    pairs = [(a, b) for a, b in zip(wanted, found, strict=True) if isinstance(a, torch.Tensor)]
    most = max(float(a.abs().max()) for a, _ in pairs) or 1.0
    error = max(float((a.double() - b.double()).abs().max()) for a, b in pairs) / most
    outside = sum(lowered.report.outside.values())
    from stepwell.backends.executorch.running.runner import PteSession

    session = PteSession.load(lowered.to_pte())
    engine = session._engine  # pyright: ignore[reportPrivateUsage]
    described = session.container.method("forward")
    calls: list[Callable[[], Any]] = [lambda: engine.execute(described, flat)]
    try:
        calls.append(plain(model, exported))
        ours, theirs = least(calls, seconds)
    except Exception as failure:  # OpenVINO's frontend raises any class.
        (ours,), theirs = least(calls, seconds), str(failure).strip().splitlines()[-1][:60]
    return lowered.report.delegates, outside, error, ours, theirs, dict(lowered.report.outside)


def in_a_process(function: Callable[..., Any], *given: Any) -> Any:
    """Return what a function returns in a process of its own, or in a string why it does not."""
    here, there = get_context("fork").Pipe()
    process = get_context("fork").Process(target=_child, args=(there, function, given))
    process.start()
    there.close()
    try:
        found = here.recv()
    except EOFError:
        found = "the process died"
    process.join()
    return found


def _child(pipe: Any, function: Callable[..., Any], given: tuple[Any, ...]) -> None:
    try:
        pipe.send(function(*given))
    except Exception as error:
        pipe.send(f"{type(error).__name__}: {str(error).strip()[:300]}")


def main() -> None:
    """Print a row for each model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=["examples"])
    parser.add_argument("--target", default="openvino")
    parser.add_argument("--seconds", type=float, default=2.0)
    arguments = parser.parse_args()
    names = [name for given in arguments.names for name in KINDS.get(given, (given,))]
    print("| model | delegates | ops outside | difference | ms | OpenVINO, ms | factor |")
    print("|---|---|---|---|---|---|---|", flush=True)
    factors = list[float]()
    for name in names:
        row = in_a_process(measured, name, arguments.target, arguments.seconds)
        if isinstance(row, str):
            print(f"| {name} | {row} |", flush=True)
            continue
        delegates, outside, error, ours, theirs, left = row
        cells = f"| {name} | {delegates} | {outside} | {error:.1e} | {ours:.2f} "
        if isinstance(theirs, float):
            factors.append(theirs / ours)
            print(f"{cells}| {theirs:.2f} | {factors[-1]:.2f} |", left or "", flush=True)
        else:
            print(f"{cells}| {theirs} | |", left or "", flush=True)
    if factors:
        mean = math.exp(sum(map(math.log, factors)) / len(factors))
        print(f"geometric mean {mean:.2f}, least {min(factors):.2f}")


if __name__ == "__main__":
    main()
