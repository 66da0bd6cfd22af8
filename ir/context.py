"""The context of one lowering: what it was asked for. Nothing of this is process-wide."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

NO_OPTIONS: Mapping[str, Any] = MappingProxyType({})


@dataclass
class Context:
    """What one lowering knows: its target and the options that the caller chose.

    `lower` gives the program that it works on a context of its own; a rewrite reads it as
    `program.context`. A program that is not being lowered has an empty one.
    """

    target: str = ""
    """The target's name; empty outside a lowering."""
    options: Mapping[str, Any] = field(default_factory=lambda: NO_OPTIONS)
    """The value of every option of the target, defaults too."""

    def option(self, name: str, default: Any = None) -> Any:
        """The value of an option, or `default` outside a lowering to a target that has it."""
        return self.options.get(name, default)
