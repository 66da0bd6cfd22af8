"""Reproductions of what other tools get wrong: each name of the page is a script of its own."""

import re
from pathlib import Path

from tools import upstream_faults

ROOT = Path(__file__).resolve().parents[2]


def test_each_fault_of_the_page_is_a_script_that_calls_nothing_of_ours() -> None:
    page = (ROOT / "docs/upstream.md").read_text()
    rows = re.findall(r"^\| .*\| `(\w+)` \|$", page, re.M)
    files = {
        name: file
        for file in upstream_faults.FOLDER.glob("*.py")
        for name, _ in upstream_faults.faults(file)
    }
    assert rows
    for name in rows:
        text = upstream_faults.script(files[name], name)
        compile(text, name, "exec")
        assert not re.search(r"^\s*(from|import) (stepwell|tools)", text, re.M)
        assert text.endswith(f"\n{name}()\n")
