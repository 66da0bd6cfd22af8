"""One token's attention over a cache: all variants of the wheel's kernels, compared with a read.

    python bench/attention.py [--heads 32 8 64] [--lengths 128 1024 2000 4000] [--table FILE]

Four layers' caches, so that no layer finds its own in the last level of the processor's memory;
process CPU milliseconds of the four, the tenth percentile of runs that alternate, one thread.
`tokens` is the cache that ExecuTorch's Llama has, `[1, context, heads, size]`; `heads` has a head's
keys behind one another, `[heads, context, 1, size]`, with the heads where the operator has its
batch (what `stepwell.language_models` writes); `rows` gives the queries that share a head as rows
of one product; `fp16` and `bf16` are `heads` with all of them in that type; `int8` is
`custom_quantized_sdpa`; `XNNPACK` multiplies the cache, as the operand that is
not packed, by the queries, its values kept transposed: its kernel is 32 columns wide and computes
four. `read` adds the numbers of the cache up.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import torch
from _report import between_markers, cpu_name, in_turn, prepare, show, write
from torch import Tensor, nn

import stepwell
from stepwell.backends.executorch.running.runner import PteSession

LAYERS = 4


class Products(nn.Module):
    """Queries `[heads, shared, size]`, keys `[heads, n, size]`, values `[heads, size, n]`."""

    def forward(self, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """What is seen, `[heads, shared, size]`."""
        scores = (keys @ queries.transpose(1, 2)).transpose(1, 2)
        return (values @ torch.softmax(scores, -1).transpose(1, 2)).transpose(1, 2)


def quantized(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Integers, zero points and scales of rows."""
    scales = x.abs().amax(-1, keepdim=True) / 127
    return (x / scales).round().to(torch.int8), torch.zeros_like(scales, dtype=torch.int8), scales


Way = Callable[[int, int], Tensor]


def ways(query_heads: int, heads: int, size: int, length: int) -> dict[str, Way]:
    """A function of a layer and a position for each way; each gives `[query heads, size]`."""
    import executorch.extension.llm.custom_ops.custom_ops  # noqa: F401  # pyright: ignore

    seeded = torch.Generator().manual_seed(0)
    shape, shared = (heads, length + 1, 1, size), query_heads // heads
    by_heads = [[torch.randn(shape, generator=seeded) for _ in "kv"] for _ in range(LAYERS)]
    by_tokens = [[x.transpose(0, 2).contiguous() for x in pair] for pair in by_heads]
    integers = [[quantized(x) for x in pair] for pair in by_heads]
    query = torch.randn(heads, 1, shared, size, generator=seeded)
    attend, attend_int8 = torch.ops.llama.custom_sdpa, torch.ops.llama.custom_quantized_sdpa

    def tokens(layer: int, at: int) -> Tensor:
        one = query.view(1, 1, query_heads, size)
        return attend(one, *by_tokens[layer], at, None, 0.0, True).view(query_heads, size)

    def as_batch(layer: int, at: int) -> Tensor:
        return attend(query, *by_heads[layer], at, None, 0.0, True).view(query_heads, size)

    def rows(layer: int, at: int) -> Tensor:
        begin = at + 1 - shared
        turned = query.transpose(1, 2).contiguous()
        return attend(turned, *by_heads[layer], begin, None, 0.0, False).view(query_heads, size)

    def narrow(dtype: torch.dtype) -> Way:
        caches = [[x.to(dtype) for x in pair] for pair in by_heads]
        asked = query.to(dtype)

        def attended(layer: int, at: int) -> Tensor:
            return attend(asked, *caches[layer], at, None, 0.0, True).view(query_heads, size)

        return attended

    def int8(layer: int, at: int) -> Tensor:
        (keys, *of_keys), (values, *of_values) = integers[layer]
        given, *of_query = quantized(query)
        scales = (*of_query, *of_keys, *of_values)
        made = attend_int8(given, keys, values, at, None, 0.0, True, None, *scales, False)
        return made.view(query_heads, size)

    flat = [(k[:, :, 0], v[:, :, 0].transpose(1, 2).contiguous()) for k, v in by_heads]
    scaled = query[:, 0] * size**-0.5
    program = torch.export.export(Products(), (scaled, *flat[0]))
    session = PteSession.load(stepwell.lower(program, "xnnpack").to_pte())

    def xnnpack(layer: int, _: int) -> Tensor:
        return session.run(scaled, *flat[layer])[0].reshape(query_heads, size)

    def read(layer: int, _: int) -> Tensor:
        return sum((x.sum() for x in by_heads[layer]), torch.zeros(()))

    return {
        "tokens": tokens,
        "heads": as_batch,
        "rows": rows,
        "fp16": narrow(torch.float16),
        "bf16": narrow(torch.bfloat16),
        "int8": int8,
        "XNNPACK": xnnpack,
        "read": read,
    }


def measured(functions: dict[str, Way], at: int, runs: int) -> dict[str, float]:
    """Milliseconds of all layers, by way."""

    def of_all(function: Way) -> None:
        for layer in range(LAYERS):
            function(layer, at)

    return in_turn({name: partial(of_all, way) for name, way in functions.items()}, runs)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a row a length."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--heads", type=int, nargs=3, default=[32, 8, 64], help="query, kv, size")
    parser.add_argument("--lengths", type=int, nargs="+", default=[128, 1024, 2000, 4000])
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--table", type=Path, help="write the table between its marks here")
    given = parser.parse_args(arguments)
    prepare()
    rows: list[list[str]] = []
    for length in given.lengths:
        functions = ways(*given.heads, length)
        want = functions["tokens"](0, length)
        for name in ("heads", "rows", "XNNPACK"):
            torch.testing.assert_close(functions[name](0, length), want)
        for name in ("fp16", "bf16"):
            torch.testing.assert_close(functions[name](0, length).float(), want, rtol=0, atol=0.02)
        times = measured(functions, length, given.runs)
        rows.append([str(length), *(f"{ms:.2f}" for ms in times.values())])
    head = ["positions", *functions]
    show(f"{cpu_name()}: milliseconds of {LAYERS} layers' attention", head, rows)
    write("attention", [dict(zip(head, row, strict=True)) for row in rows])
    if given.table:
        lines = [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)]
        between_markers(given.table, "attention", [f"{cpu_name()}, one thread, ms.", "", *lines])


if __name__ == "__main__":
    main()
