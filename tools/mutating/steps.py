"""Mutations: a proved rule, a direction, a place."""

from __future__ import annotations

import random
from functools import lru_cache
from typing import Any

from tools.mutating.programs import case, name_of

from stepwell.cost_model.optimum import ops, ways_of

MOST_STEPS, TRIES = 6, 24


@lru_cache(maxsize=8)
def mutated(
    kind: str, seed: int, left_out: frozenset[int] = frozenset()
) -> tuple[Any, tuple[str, ...]]:
    """Return a variant of the program of a seed, and its mutations."""
    draw = random.Random(seed)
    program = case(kind, name_of(kind, seed)).program
    steps: list[str] = []
    for at in range(draw.randint(1, MOST_STEPS)):
        picks = random.Random(draw.random())
        if at not in left_out and (step := _step(program, picks)) is not None:
            program, text = step
            steps.append(f"{at}: {text}")
    return program, tuple(steps)


def _step(program: Any, picks: random.Random) -> tuple[Any, str] | None:
    tries = list(ways_of(program))
    picks.shuffle(tries)
    for at, way in tries[:TRIES]:
        variant = way.applied(program, at)
        if variant is not None:
            return variant, f"{way} at {ops(program)[at].name}"
    return None
