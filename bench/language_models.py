"""ExecuTorch's own Llama in the variants that it is shipped in: stock ExecuTorch beside stepwell.

    python bench/language_models.py                       # every variant, small: says it the same
    python bench/language_models.py --measure 256 2048    # the shipped ones at size, beside stock

The first table lowers each variant and lets it say 64 tokens: as many as agree with the eager model
(or the quantised eager model). The second measures: process CPU seconds from an ExportedProgram to
a `.pte`, its size, delegates and ops outside them, and the time of a token and of a prompt, stock ÷
stepwell, at the tenth percentile of runs that alternate, on one thread. `at most` is stock's time ÷
the median of what our products with weights and the attention operator take alone: a flow that runs
those kernels, and nothing else in no time, gains as much.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "examples" / "models"))

import torch

import stepwell
from executorch_llama import (
    MEASURED,
    SAID,
    TAUGHT,
    Size,
    Variant,
    exported,
    flat,
    greedy,
    prompt_of,
)
from stepwell.backends.executorch.runner import PteSession

WEIGHTS = ("fp32", "fp16", "bf16", "8da4w", "8da8w", "4w")
CACHES = ("none", "plain", "custom", "quantised")


def variants() -> Iterator[Variant]:
    """Every kind of weights with every cache, static and dynamic; then tables and adapters."""
    for weights in WEIGHTS:
        for cache in CACHES:
            for dynamic in (True, False):
                yield Variant(weights, cache, dynamic)
    for weights in ("fp32", "8da4w"):
        for embedding in ("8,0", "4,32", "tied"):
            yield Variant(weights, embedding=embedding)
        yield Variant(weights, lora=4)


def says(variant: Variant, size: Size) -> str:
    """A row of the first table."""
    try:
        model, program = exported(variant, size, seed=TAUGHT)
    except Exception as error:  # What ExecuTorch itself does not export is no variant.
        return f"| {variant} | not exported: {type(error).__name__} | | |"
    try:
        began = time.process_time()
        lowered = stepwell.lower(program, "xnnpack")
        pte = lowered.to_pte()
        seconds = time.process_time() - began
        session = PteSession.load(pte)
    except stepwell.StepwellError as error:
        return f"| {variant} | {error.problems[0].fact} | | |"
    prompt = prompt_of(variant, size)
    with torch.no_grad():
        want = greedy(model, variant, prompt, SAID, size.context)
    got = greedy(lambda *inputs: session.run(*flat(inputs))[0], variant, prompt, SAID, size.context)
    same = sum(one == other for one, other in zip(want, got, strict=True))
    held = f"{lowered.report.delegates} / {sum(lowered.report.outside.values())}"
    return f"| {variant} | {held} | {seconds:.1f} s, {len(pte) / 1e6:.2f} MB | {same} of {SAID} |"


def stock_pte(program: Any, weights: str) -> bytes:
    """ExecuTorch's own flow, as its script for Llama runs it."""
    from executorch.exir import (
        EdgeCompileConfig,
        ExecutorchBackendConfig,
        to_edge_transform_and_lower,
    )
    from executorch.exir.passes import MemoryPlanningPass
    from executorch.exir.passes.quant_fusion_pass import QuantFusionPass
    from executorch.exir.passes.sym_shape_eval_pass import ConstraintBasedSymShapeEvalPass
    from executorch.extension.llm.export.partitioner_lib import get_xnnpack_partitioner

    more = {"enable_bf16": True} if weights == "bf16" else {}
    edge = to_edge_transform_and_lower(
        program,
        partitioner=[
            get_xnnpack_partitioner(dynamic_quant_only_partitioner=True, **more),
            get_xnnpack_partitioner(dynamic_quant_only_partitioner=False, **more),
        ],
        compile_config=EdgeCompileConfig(_check_ir_validity=False, _skip_dim_order=True),
    )
    made = edge.to_executorch(
        ExecutorchBackendConfig(
            passes=[QuantFusionPass()],
            memory_planning_pass=MemoryPlanningPass(alloc_graph_input=False),
            sym_shape_eval_pass=ConstraintBasedSymShapeEvalPass(),
        )
    )
    return made.buffer


def loaded(pte: bytes) -> Callable[..., Any]:
    """A program on the runtime, without checks of its inputs."""
    from executorch.runtime import Runtime

    program = Runtime.get().load_program(pte)
    method = program.load_method("forward")
    assert method is not None
    return lambda *inputs: (program, method.execute(list(inputs)))[1]


def tenth(runs: list[float]) -> float:
    """The tenth percentile."""
    return sorted(runs)[len(runs) // 10]


def alternate(
    ours: Callable[..., Any], stock: Callable[..., Any], inputs: list[Any]
) -> list[float]:
    """Seconds of a call of each, in turn: `[ours, stock]` at the tenth percentile."""
    times: list[list[float]] = [[], []]
    began = time.perf_counter()
    while len(times[0]) < 200 and (len(times[0]) < 20 or time.perf_counter() - began < 8):
        for each, function in zip(times, (ours, stock), strict=True):
            start = time.perf_counter()
            function(*inputs)
            each.append(time.perf_counter() - start)
    return [tenth(each) for each in times]


def kernels(lowered: stepwell.Lowered, inputs: list[Any]) -> float:
    """Seconds of a call that products with weights and the attention operator take alone."""
    profile = lowered.profile(*inputs, repeat=40)
    named = ("Fully Connected", "llama::custom_sdpa")
    asked = ("aten.linear.default", "llama.custom_sdpa.default")
    return 1e-3 * sum(
        event.milliseconds
        for event in profile.events
        if event.name.startswith(named) and any(node.op in asked for node in event.nodes)
    )


def measured(variant: Variant, size: Size, prompt: int) -> str:
    """A row of the second table."""
    _, program = exported(variant, size)
    made: dict[str, bytes] = {}
    seconds: dict[str, float] = {}
    began = time.process_time()
    lowered = stepwell.lower(program, "xnnpack")
    made["ours"] = lowered.to_pte()
    seconds["ours"] = time.process_time() - began
    _, program = exported(variant, size)  # Stock's flow changes what it is given.
    began = time.process_time()
    made["stock"] = stock_pte(program, variant.weights)
    seconds["stock"] = time.process_time() - began
    ours, stock = loaded(made["ours"]), loaded(made["stock"])
    at = torch.tensor([size.context // 2])
    token = [torch.tensor([[5]]), at]
    decode = alternate(ours, stock, token)
    bound = decode[1] / kernels(lowered, token)
    ratios = f"{decode[1] / decode[0]:.2f} ({decode[0] * 1e3:.2f} ms; at most {bound:.2f})"
    if variant.dynamic and prompt < size.context:
        words = [torch.ones(1, prompt, dtype=torch.long), torch.tensor([0])]
        prefill = alternate(ours, stock, words)
        bound = prefill[1] / kernels(lowered, words)
        said = f"{prefill[0] * 1e3:.1f} ms; at most {bound:.2f}"
        ratios += f" | {prefill[1] / prefill[0]:.2f} ({said})"
    else:
        ratios += " |"
    held = f"{lowered.report.delegates} / {sum(lowered.report.outside.values())}"
    cpu = f"{seconds['stock']:.0f} → {seconds['ours']:.1f} s"
    sizes = f"{len(made['stock']) / 1e6:.1f} → {len(made['ours']) / 1e6:.1f} MB"
    return f"| {variant}, context {size.context} | {held} | {cpu} | {sizes} | {ratios} |"


def cpu() -> str:
    """The name of this machine's processor."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((x.split(": ")[1] for x in lines if x.startswith("model name")), "unknown CPU")


def main() -> None:
    """Print the table that was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--measure", type=int, nargs="+", default=[], help="contexts")
    parser.add_argument("--only", default="", help="variants whose name has this in it")
    parser.add_argument("--layers", type=int, default=MEASURED.n_layers)
    parser.add_argument("--prompt", type=int, default=128)
    given = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    out = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # The runtime logs a line for each attention.
    print(cpu(), file=out)
    if not given.measure:
        for variant in variants():
            if given.only in str(variant):
                print(says(variant, Size()), file=out, flush=True)
        return
    shipped = [Variant(weights) for weights in ("8da4w", "fp32", "bf16", "fp16")]
    for context in given.measure:
        size = replace(MEASURED, context=context, n_layers=given.layers)
        for variant in shipped:
            if given.only in str(variant):
                print(measured(variant, size, given.prompt), file=out, flush=True)


if __name__ == "__main__":
    main()
