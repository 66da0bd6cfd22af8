"""Assignment of weights to `.ptd` files: a base model's in one, an adapter's in another.

A weight in a separate file has its name as its key, so that another file with the same names
can replace the file: one program and one base, and an adapter for each task.
"""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

from stepwell.ir.core import WeightOp
from stepwell.ir.diagnostics import StepwellError, quoted
from stepwell.ir.program import Program
from stepwell.ir.weights import WeightStore


def files_of_weights(
    program: Program, patterns: Mapping[str, str | Sequence[str]]
) -> dict[str, str]:
    """Assign each weight to the first file with a pattern that matches its name or its sources.

    Args:
        program: the program with the weights.
        patterns: the patterns of names for each file, as in a shell: `*.lora_*`.

    Returns:
        The file of each weight that has one, by its key.

    Raises:
        StepwellError: no weight matches a pattern.
    """
    wanted = {
        file: (given,) if isinstance(given, str) else tuple(given)
        for file, given in patterns.items()
    }
    found: dict[str, str] = {}
    unused = {(file, pattern) for file, given in wanted.items() for pattern in given}
    keys = {op.key.data for op in program.module.walk() if isinstance(op, WeightOp)}
    for key in sorted(keys):
        names = _sources_of(key, program.weights)
        for file, given in wanted.items():
            fitting = {p for p in given if any(fnmatchcase(name, p) for name in names)}
            if fitting:
                found[key] = file
                unused -= {(file, pattern) for pattern in fitting}
                break
    if unused:
        told = ", ".join(f"{quoted(pattern)} ({file})" for file, pattern in sorted(unused))
        names = {name for key in keys for name in _sources_of(key, program.weights)}
        some = ", ".join(sorted(names)[:5])
        raise StepwellError(
            f"no remaining weight matches {told}",
            help=f"weights are called {some}, …; a weight goes into the first file that fits",
        )
    return found


def _sources_of(key: str, weights: WeightStore) -> set[str]:
    """Return the names of the original weights from which a weight is derived, or its own name."""
    names: set[str] = set()
    waiting = [key]
    while waiting:
        recipe = weights.recipe_of(at := waiting.pop())
        if recipe is None:
            names.add(at)
        else:
            waiting.extend(recipe[1])
    return names
