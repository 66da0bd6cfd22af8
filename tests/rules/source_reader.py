"""The tools that read the source of rules' functions, as modules of these tests."""

import sys
from collections.abc import Mapping
from pathlib import Path
from types import FunctionType
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

import reviewed_functions  # pyright: ignore[reportMissingImports]
import uniformity  # pyright: ignore[reportMissingImports]

from stepwell.validation.rules.reviewed import Reading

reading = uniformity.reading
EXCLUDED, made = reviewed_functions.EXCLUDED, reviewed_functions.made


def of_source(values: Mapping[str, Any], *, have_axes: bool = True) -> Reading:
    """What the source of some callables says, as if each had been looked at."""
    functions = {name: held for name, held in values.items() if isinstance(held, FunctionType)}
    held = reviewed_functions.COUNTING_ELEMENTS
    return reading(functions, have_axes=have_axes, counting_elements=held)
