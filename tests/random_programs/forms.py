"""What statements there are, a module for each kind."""

import importlib
from functools import cache

KINDS = (
    "views pointwise whole indexing layers products reductions mutation control losses state"
).split()


@cache
def enter_all() -> None:
    """Import every module of forms, in a fixed order."""
    for kind in KINDS:
        importlib.import_module(f"{__package__}.{kind}")
