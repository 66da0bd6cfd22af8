"""ExecuTorch's own Llama in its shipped variants: stock ExecuTorch compared with stepwell.

    python bench/language_models.py                       # every variant, small: says it the same
    python bench/language_models.py --measure 256 2048    # the shipped ones at size, beside stock

The first table lowers each variant and lets it say 64 tokens: as many as agree with the eager model
(or the quantized eager model). The second measures: process CPU seconds from an ExportedProgram to
a `.pte`, its size, delegates and ops outside them, and the time of a token and of a prompt, stock ÷
stepwell, at the tenth percentile of runs that alternate, on one thread.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "examples" / "models"))

import torch
from _report import between_markers, cpu_name, p10

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
from stepwell.backends.executorch.running.runner import PteSession

WEIGHTS = ("fp32", "fp16", "bf16", "8da4w", "8da8w", "4w")
CACHES = ("none", "plain", "custom", "quantized")


def variants() -> Iterator[Variant]:
    """Every kind of weights with every cache and length; then tables, adapters and windows."""
    for weights in WEIGHTS:
        for cache in CACHES:
            for dynamic in (True, False):
                yield Variant(weights, cache, dynamic)
    for weights in ("fp32", "8da4w"):
        for embedding in ("8,0", "4,32", "tied"):
            yield Variant(weights, embedding=embedding)
        yield Variant(weights, lora=4)
        yield from (Variant(weights, cache, window=16) for cache in CACHES[1:])


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
    from executorch.extension.llm.custom_ops import custom_ops  # pyright: ignore # noqa: F401
    from executorch.runtime import Runtime

    program = Runtime.get().load_program(pte)
    method = program.load_method("forward")
    assert method is not None
    return lambda *inputs: (program, method.execute(list(inputs)))[1]


def alternate(functions: Sequence[Callable[..., Any]], inputs: list[Any]) -> list[float]:
    """Seconds of a call of each function, in turn, at the tenth percentile."""
    times: list[list[float]] = [[] for _ in functions]
    began = time.perf_counter()
    while len(times[0]) < 20 or time.perf_counter() - began < 3:
        for each, function in zip(times, functions, strict=True):
            start = time.perf_counter()
            function(*inputs)
            each.append(time.perf_counter() - start)
    return [p10(each) for each in times]


def measured(variant: Variant, size: Size, given: argparse.Namespace) -> str:
    """A row of the second table: counts, seconds, bytes, then stock's time divided by ours."""
    _, program = exported(variant, size)
    began = time.process_time()
    lowered = stepwell.lower(program, "xnnpack")
    ours = lowered.to_pte()
    seconds = time.process_time() - began
    _, program = exported(variant, size)  # Stock's flow changes what it is given.
    began = time.process_time()
    stock = stock_pte(program, variant.weights)
    cells = [
        f"{lowered.report.delegates} / {sum(lowered.report.outside.values())}",
        f"{time.process_time() - began:.0f} → {seconds:.1f} s",
        f"{len(stock) / 1e6:.1f} → {len(ours) / 1e6:.1f} MB",
    ]
    programs = [loaded(ours), loaded(stock)]
    seeded = torch.Generator().manual_seed(0)
    for length in (1, *given.prompts):
        if length >= size.context or (length > 1 and not variant.dynamic):
            cells.append("–")
            continue
        tokens = torch.randint(MEASURED.vocab_size, (1, length), generator=seeded)
        at = size.context // 2 if length == 1 else 0
        ours_s, stock_s = alternate(programs, [tokens, torch.tensor([at])])
        cells.append(f"{stock_s / ours_s:.2f} ({ours_s * 1e3:.2f} ms)")
    return f"| {variant}, context {size.context} | {' | '.join(cells)} |"


def main() -> None:
    """Print the requested table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--measure", type=int, nargs="+", default=[], help="contexts")
    parser.add_argument("--only", nargs="+", default=[""], help="variants with one of these in it")
    parser.add_argument("--layers", type=int, default=MEASURED.n_layers)
    parser.add_argument("--prompts", type=int, nargs="+", default=[128, 512], help="tokens")
    parser.add_argument("--table", type=Path, help="write the table between a document's markers")
    given = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    out = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # The runtime logs a line for each attention.
    print(cpu_name(), file=out)
    lines = heads(given.prompts) if given.measure else SAYS
    print(*lines, sep="\n", file=out, flush=True)
    for line in rows(given):
        lines = [*lines, line]
        print(line, file=out, flush=True)
    if given.table:
        name = "language-models-measured" if given.measure else "language-models"
        between_markers(given.table, name, [cpu_name() + ", one thread.", "", *lines])


SAYS = ["| variant | delegates / outside | CPU to lower, file | same tokens |", "|---|---|---|---|"]


def heads(prompts: Sequence[int]) -> list[str]:
    """The head of the second table; times are stock ÷ stepwell."""
    columns = [
        "variant",
        "delegates / outside",
        "CPU to lower, stock → stepwell",
        "file",
        "a token",
    ]
    columns += [f"{prompt} tokens" for prompt in prompts]
    return [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]


def is_asked(variant: Variant, only: Sequence[str]) -> bool:
    """Whether one of some texts is in a variant's name."""
    return any(text in str(variant) for text in only)


def rows(given: argparse.Namespace) -> Iterator[str]:
    """Return the rows of the requested table."""
    if not given.measure:
        yield from (says(each, Size()) for each in variants() if is_asked(each, given.only))
        return
    for context in given.measure:
        size = replace(MEASURED, context=context, n_layers=given.layers)
        for weights in ("8da4w", "fp32", "bf16", "fp16"):
            if is_asked(Variant(weights), given.only):
                yield measured(Variant(weights), size, given)


if __name__ == "__main__":
    main()
