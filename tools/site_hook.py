"""The mkdocs hook that adds the generated pages to those of `docs`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
TEXTS = {
    "CONTRIBUTING.md": "project/contributing.md",
    "CHANGELOG.md": "project/changelog.md",
    "SECURITY.md": "project/security.md",
}


def on_files(files: Any, config: Any) -> Any:
    """Add the pages generated from the code, and the texts at the root."""
    from mkdocs.structure.files import File

    sys.path.insert(0, str(Path(__file__).parent))
    from reference import pages

    found = dict(pages())
    for name, path in TEXTS.items():
        found[path] = (ROOT / name).read_text(encoding="utf-8")
    for path, text in found.items():
        files.append(File.generated(config, path, content=text))
    return files
