"""Programs as text and as files, with every dialect known to the parser."""

from __future__ import annotations

import stepwell.dialects  # noqa: F401  (makes the dialects known)
from stepwell.ir.storage import load_program, parse_program, save_program
from stepwell.ir.text import parse_module, structurally_equal, to_text

__all__ = [
    "load_program",
    "parse_module",
    "parse_program",
    "save_program",
    "structurally_equal",
    "to_text",
]
