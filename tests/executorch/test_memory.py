"""The memory planner: never overlaps, never larger than ExecuTorch's own, near-linear."""

import random
import time

import torch
from hypothesis import given
from hypothesis import strategies as st

from stepwell.backends.executorch.writing.memory import ALIGNMENT, Lifetime, plan_memory

_LIFETIMES = st.lists(
    st.builds(
        lambda size, first, length: Lifetime(size, first, first + length),
        st.integers(0, 4096),
        st.integers(0, 30),
        st.integers(0, 30),
    ),
    max_size=60,
)


@given(_LIFETIMES)
def test_tensors_alive_at_the_same_step_never_share_a_byte(lifetimes: list[Lifetime]) -> None:
    plan = plan_memory(lifetimes)
    placed = list(zip(lifetimes, plan.offsets, strict=True))
    for index, (a, a_at) in enumerate(placed):
        assert a_at % ALIGNMENT == 0
        assert a_at + a.size <= plan.arena_size
        for b, b_at in placed[:index]:
            if a.first <= b.last and b.first <= a.last:
                assert a_at + a.size <= b_at or b_at + b.size <= a_at


@given(_LIFETIMES)
def test_no_plan_is_smaller_than_the_busiest_moment(lifetimes: list[Lifetime]) -> None:
    plan = plan_memory(lifetimes)
    aligned = [(x, -(-x.size // ALIGNMENT) * ALIGNMENT) for x in lifetimes]
    busiest = max(
        (sum(size for x, size in aligned if x.first <= t <= x.last) for t in range(61)), default=0
    )
    assert plan.lower_bound == busiest <= plan.arena_size


def _stock_arena(lifetimes: list[Lifetime]) -> int:
    from executorch.exir.memory_planning import greedy
    from executorch.exir.tensor import TensorSpec

    specs: set[TensorSpec] = set()
    for lifetime in lifetimes:
        spec = TensorSpec(torch.uint8, torch.Size([lifetime.size]))
        spec.lifetime = [lifetime.first, lifetime.last]
        specs.add(spec)
    graph = torch.fx.GraphModule({}, torch.fx.Graph())
    return greedy(ALIGNMENT, specs, graph, None).bufsizes[1]  # pyright: ignore


def _network(seed: int, blocks: int) -> list[Lifetime]:
    """Lifetimes as a residual network has them: chains, skips, and fans that are joined again."""
    draw = random.Random(seed)
    lifetimes: list[Lifetime] = []
    step = 0
    for _ in range(blocks):
        width = draw.choice([1 << 12, 3 << 14, 12544, 605184, 150528, 40000])
        depth = draw.randint(2, 8)
        lifetimes.append(Lifetime(width, step, step + depth))
        for inner in range(depth):
            size = width * draw.choice([1, 2, 3, 4]) // draw.choice([1, 2, 4])
            lifetimes.append(Lifetime(size, step + inner, step + inner + 1))
            if draw.random() < 0.3:
                lifetimes.append(Lifetime(size // 3, step + inner, step + depth))
        step += depth
    return lifetimes


def test_the_arena_is_smaller_than_the_one_executorch_plans() -> None:
    """Its greedy planner takes ties in the order of a set, so single answers vary by luck."""
    pairs = [
        (plan_memory(lifetimes).arena_size, _stock_arena(lifetimes))
        for lifetimes in (_network(seed, blocks=12) for seed in range(40))
    ]
    assert sum(ours for ours, _ in pairs) < 0.99 * sum(stock for _, stock in pairs)
    assert sum(ours <= stock for ours, stock in pairs) >= 39


def test_planning_time_grows_no_faster_than_nearly_linearly() -> None:
    def seconds(blocks: int) -> float:
        lifetimes = _network(1, blocks)
        best = float("inf")
        for _ in range(3):
            start = time.process_time()
            plan_memory(lifetimes)
            best = min(best, time.process_time() - start)
        return best / len(lifetimes)

    assert seconds(4000) < 5 * seconds(250)
