"""Take the screenshots of the page in docs/; requires Debian's chromium.

python tools/screenshots.py
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/workbench"))

from browser import Browser  # noqa: E402

from stepwell.cli.main import main  # noqa: E402

SHOTS = {
    "deit_tiny_xnnpack": ("#levels/linear_2", 1400, 900),
    "page_graph": (
        "#tab=graph&level=0&open=blocks,blocks.0,blocks.0.attn&over=time&pick=gblocks.0.attn",
        1400,
        900,
    ),
    "page_beside": (
        "#tab=graph&beside=0&open=blocks,blocks.0,blocks.0.attn&pick=gblocks.0.attn",
        1400,
        900,
    ),
    "page_rewrites": ("#tab=rewrites&app=260", 1400, 900),
    "page_profile": ("#tab=profile", 1400, 900),
    "page_tablet": ("#levels/linear_2", 820, 1100),
    "page_phone": ("#tab=graph&level=0", 390, 844),
}


def take(folder: Path) -> None:
    """Write the page of DeiT-Tiny and take its screenshots."""
    page = folder / "page.html"
    model = f"{ROOT}/examples/models/deit.py:deit_tiny"
    assert main(["show", model, "-t", "xnnpack", "--html", str(page), "--profile"]) == 0
    with Browser(folder) as browser:
        for name, (view, width, height) in SHOTS.items():
            browser.resize(width, height)
            browser.open(page, view)
            browser.screenshot(ROOT / "docs" / f"{name}.png")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        take(Path(made))
