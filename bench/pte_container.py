"""The .pte container compared with ExecuTorch's own: seconds to build, write and read, and arena.

A chain of `aten::mul` calls, each with a tensor of its own; CPU seconds in one process, imports
excluded and reported apart. The stock column is `serialize_pte_binary` on the same plan.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

import torch

from stepwell.backends.executorch.container import Container, ScalarType
from stepwell.backends.executorch.reading.read import read_container
from stepwell.backends.executorch.writing.builder import ContainerBuilder
from stepwell.backends.executorch.writing.memory import Lifetime, plan_memory
from stepwell.backends.executorch.writing.serialize import to_bytes


def seconds(action: Callable[[], Any]) -> tuple[float, Any]:
    """CPU seconds of one call, and what it gave."""
    start = time.process_time()
    result = action()
    return time.process_time() - start, result


def chain(length: int) -> Container:
    """`length` kernel calls, one after the other."""
    builder = ContainerBuilder()
    method = builder.method("forward")
    x = method.tensor(ScalarType.FLOAT, (4, 4))
    method.input(x)
    factor = method.scalar(1.0)
    for _ in range(length):
        y = method.tensor(ScalarType.FLOAT, (4, 4))
        method.call("aten::mul.Scalar_out", [x, factor, y, y])
        x = y
    method.outputs([x])
    return builder.finish()


def network(blocks: int) -> list[Lifetime]:
    """Lifetimes as a residual network has them."""
    draw, lifetimes, step = random.Random(1), list[Lifetime](), 0
    for _ in range(blocks):
        width, depth = draw.choice([4096, 49152, 12544, 605184, 150528]), draw.randint(2, 8)
        lifetimes.append(Lifetime(width, step, step + depth))
        for inner in range(depth):
            size = width * draw.choice([1, 2, 3, 4]) // draw.choice([1, 2, 4])
            lifetimes.append(Lifetime(size, step + inner, step + inner + 1))
        step += depth
    return lifetimes


def stock_plan(lifetimes: list[Lifetime]) -> int:
    """The arena that ExecuTorch's greedy planner needs."""
    from executorch.exir.memory_planning import greedy
    from executorch.exir.tensor import TensorSpec

    specs: set[TensorSpec] = set()
    for lifetime in lifetimes:
        spec = TensorSpec(torch.uint8, torch.Size([lifetime.size]))
        spec.lifetime = [lifetime.first, lifetime.last]
        specs.add(spec)
    return greedy(16, specs, torch.fx.GraphModule({}, torch.fx.Graph()), None).bufsizes[1]


def main() -> None:
    """Print the two tables."""
    imports, _ = seconds(lambda: __import__("executorch.exir._serialize._program"))
    from executorch.exir._serialize._program import deserialize_pte_binary, serialize_pte_binary

    print(f"importing executorch.exir, which writing here does not need: {imports:.1f} s\n")
    print(f"{'instructions':>12} {'build':>8} {'write':>8} {'read':>8} {'stock write':>12}")
    for length in (1_000, 10_000, 50_000):
        built, container = seconds(lambda n=length: chain(n))
        written, data = seconds(lambda c=container: to_bytes(c))
        read, _ = seconds(lambda d=data: read_container(d))
        stock = float("nan")
        if length <= 10_000:
            program = deserialize_pte_binary(data)
            stock, _ = seconds(lambda p=program: bytes(serialize_pte_binary(p)))
        print(f"{length:12} {built:8.3f} {written:8.3f} {read:8.3f} {stock:12.3f}")
    print(f"\n{'tensors':>12} {'plan':>8} {'stock plan':>12} {'arena / stock arena':>20}")
    for blocks in (200, 800):
        lifetimes = network(blocks)
        ours, plan = seconds(lambda x=lifetimes: plan_memory(x))
        stock, arena = seconds(lambda x=lifetimes: stock_plan(x))
        print(f"{len(lifetimes):12} {ours:8.3f} {stock:12.3f} {plan.arena_size / arena:20.3f}")


if __name__ == "__main__":
    main()
