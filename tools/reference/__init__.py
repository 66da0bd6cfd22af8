"""Documentation pages that are generated from the code and never committed.

`pages()` returns them as path → Markdown; `tools/site_hook.py` adds them to the site.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from reference import api, commands, examples, figures, ops, passes, targets

PARTS: tuple[Callable[[], Mapping[str, str]], ...] = (
    passes.pages,
    ops.pages,
    targets.pages,
    api.pages,
    commands.pages,
    examples.pages,
    figures.pages,
)


def pages() -> dict[str, str]:
    """Return every generated page, by its path below `docs`; figures are SVG."""
    found: dict[str, str] = {}
    for part in PARTS:
        for path, text in part().items():
            assert path not in found, f"{path} is written twice"
            found[path] = text
    return found
