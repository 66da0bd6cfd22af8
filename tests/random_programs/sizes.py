"""Dynamic sizes that programs are called with."""

import random

PRIMES = (2, 3, 5, 7, 11, 13, 17, 19, 23)
POWERS = (2, 4, 8, 16)


def spread(rng: random.Random, low: int, high: int, usual: int) -> list[int]:
    """Seven sizes of a range: an ordinary one first, its ends, odd, prime, about a power of two."""
    within = range(low, high + 1)
    about = [p + by for p in POWERS for by in (-1, 0, 1) if p + by in within]
    telling = [
        *(low, low + 1, high),
        rng.choice([n for n in within if n % 2] or [low]),
        rng.choice([n for n in PRIMES if n in within] or [high]),
        rng.choice(about or [low]),
    ]
    rng.shuffle(telling)
    return [usual, *telling]
