"""A plug-in to start from: its parts, each imported on first use of its name."""

from __future__ import annotations

import stepwell


def plugin(registry: stepwell.Registry) -> None:
    """Fill the registry; stepwell calls this when a name may belong to the plug-in."""
    from stepwell_toy.dialect import LEVEL, AddOp, Toy
    from stepwell_toy.operators import halve_weights, register_twice
    from stepwell_toy.rewrites import LowerToToy, MergeScales
    from stepwell_toy.target import make_target

    registry.dialect(Toy, level=LEVEL)
    registry.step(LowerToToy, MergeScales)
    registry.target(make_target, name="toy")
    registry.cost(AddOp, lambda op: 7)
    registry.quantizer("toy-halves", halve_weights)
    register_twice(registry)
