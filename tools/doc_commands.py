"""Run every shell command of README and docs in a process of its own, and report a row for each.

    python tools/doc_commands.py [docs/workbench.md …]

A page is read from the top in an empty folder that contains only `examples`. Its Python runs,
including hidden parts, and then each line of its shell blocks in a fresh process, including those
marked `slow`. For a command that is not run the reason is reported: the page's own, `<!-- absent:
why -->`, or that of the kind of command, whose file, options, targets and extras
`tests/docs/test_blocks.py` checks.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests/docs"), str(ROOT / "tests/processes")]

from test_blocks import PAGES, Block, blocks, run, shell  # noqa: E402

KINDS = {
    "make": "builds environments or runs whole suites; its target is looked up",
    "pip": "installs; its extras are looked up, tests/test_packaging.py installs the wheel",
    "pytest": "is a part of the suite; its paths are looked up",
    "dask": "is another project's",
}
CAMPAIGN = "a long run of this repository on itself; file and options are looked up"


def reason(words: list[str], block: Block) -> str | None:
    """Return why a line is not run; None if it is."""
    if block.absent:
        return block.absent
    if words[0] in KINDS:
        return KINDS[words[0]]
    if words[0] == "python" and words[1].startswith(("tools/", "bench/")):
        return CAMPAIGN
    return None


def rows_of(page: Path) -> Iterator[dict[str, object]]:
    """Read a page in this process, in a folder of its own; yield a row for each shell line."""
    namespace: dict[str, object] = {"__name__": "__main__"}
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        sys.path.insert(0, folder)
        Path("examples").symlink_to(ROOT / "examples")
        for block in blocks(page):
            if block.language in ("python", "mlir"):
                run(replace(block, slow=bool(block.absent)), page, namespace)
            for line in block.body.splitlines() if block.language == "sh" else ():
                words = shlex.split(line, comments=True)
                if not words:
                    continue
                record = {"page": str(page.relative_to(ROOT)), "command": shlex.join(words)}
                if why := reason(words, block):
                    yield {**record, "not run": why}
                    continue
                first = [sys.executable, "-m"] if words[0] == "stepwell" else [sys.executable]
                started = time.monotonic()
                command = [*first, *(words if words[0] == "stepwell" else words[1:])]
                command = shell(words) if "|" in words else command
                child = subprocess.run(command, capture_output=True, text=True, check=False)
                record |= {"code": child.returncode, "seconds": round(time.monotonic() - started)}
                if child.returncode:
                    record["said"] = child.stderr.strip()[-300:]
                yield record
        os.chdir(ROOT)


def main() -> int:
    """Read pages, one process each, and count."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("pages", nargs="*", type=Path, help="all, if none is named")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    pages = [page.resolve() for page in given.pages] or PAGES
    if given.child:
        for row in rows_of(pages[0]):
            print(f"row {json.dumps(row)}", flush=True)
        return 0
    ran = failed = skipped = 0
    for page in pages:
        if not any(block.language == "sh" for block in blocks(page)):
            continue
        command = [sys.executable, __file__, "--child", str(page)]
        child = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
        for row in [json.loads(x[4:]) for x in child.stdout.splitlines() if x.startswith("row {")]:
            print(*(f"{value}" for value in row.values()), sep=" | ", flush=True)
            skipped += "not run" in row
            ran += "code" in row
            failed += row.get("code", 0) != 0
        if child.returncode:
            print(f"{page.name}: {child.stderr.strip().splitlines()[-1]}")
            failed += 1
    print(
        f"{ran} run, each in a process of its own; {failed} failed; {skipped} named with a reason"
    )
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
