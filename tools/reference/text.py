"""Pieces of Markdown that the generated pages share."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Render a table; vertical bars in cells are escaped."""
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    lines += ["| " + " | ".join(c.replace("|", "\\|") for c in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def fenced(text: str, language: str = "") -> str:
    """Render a block of code with any content."""
    ticks = "```" if "```" not in text else "````"
    return f"{ticks}{language}\n{text.strip(chr(10))}\n{ticks}\n"


def folded(title: str, body: str) -> str:
    """Render a block that opens on a click."""
    return f'??? note "{title}"\n\n' + "".join(
        f"    {line}\n" if line else "\n" for line in body.splitlines()
    )


def prose(text: str | None) -> str:
    """Dedent a docstring; outside of code `<` is escaped."""
    parts = re.split(r"(`[^`]*`)", inspect.cleandoc(text or ""))
    return "".join(p if p.startswith("`") else p.replace("<", "&lt;") for p in parts)


def first_paragraph(text: str | None) -> str:
    """Return the first paragraph of a docstring on one line."""
    return " ".join(prose(text).split("\n\n")[0].split())


def where(value: Any) -> str:
    """Return the file of a class or function, relative to the root of the tree."""
    found = inspect.getsourcefile(value)
    assert found is not None
    return Path(found).resolve().relative_to(ROOT).as_posix()


def anchor(heading: str) -> str:
    """Return the fragment that Markdown generates for a heading."""
    return re.sub(r"[\s]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower())
