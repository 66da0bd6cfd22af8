"""`tools/affected.py` runs what it selects, nearest first, while there is time."""

from pathlib import Path

import pytest
from forking import Forks

ROOT = Path(__file__).resolve().parents[1]
SELECTED = """
import sys
sys.path.insert(0, "tools")
from pathlib import Path
import affected, pytest
near, far = "tests/test_layout.py", "tests/text/test_text.py"
selection = affected.Selection({Path(near): 1, Path(far): 2}, set(), float(sys.argv[-1]))
code = pytest.main(["-q", "--collect-only", far, near], plugins=[selection])
print(int(code), selection.ran, selection.left)
"""


def collected(forks: Forks) -> list[str]:
    """The tests of two files, as they are to run."""
    ran = forks.run(["-c", SELECTED, "600"], cwd=ROOT)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines()[-1].startswith("0 0 "), ran.stdout
    return [line for line in ran.stdout.splitlines() if "::" in line]


def test_the_nearest_tests_come_first(forks: Forks) -> None:
    files = [line.partition("::")[0] for line in collected(forks)]
    assert files == sorted(files, key=lambda file: file != "tests/test_layout.py")
    assert len(set(files)) == 2


def test_what_there_is_no_time_for_is_counted_and_not_run(forks: Forks) -> None:
    code = SELECTED.replace('"--collect-only", ', "")
    ran = forks.run(["-c", code, "0"], cwd=ROOT)
    status, done, left = map(int, ran.stdout.splitlines()[-1].split())
    assert (status, done) == (0, 0) and left > 20, ran.stdout


def test_a_test_is_cut_when_the_time_is_over(forks: Forks, tmp_path: Path) -> None:
    hangs = tmp_path / "test_hangs.py"
    child = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'while True: pass'])"
    hangs.write_text(f"def test_hangs():\n    {child}\n\n\ndef test_next():\n    pass\n")
    code = (
        "import sys; sys.path.insert(0, 'tools'); import affected, pytest\n"
        "from pathlib import Path\n"
        f"affected.ROOT = Path({str(tmp_path)!r})\n"
        "selection = affected.Selection({Path('test_hangs.py'): 0}, set(), affected.spent() + 2)\n"
        "selection.begin()\n"
        f"code = pytest.main(['-p', 'no:cacheprovider', {str(hangs)!r}], plugins=[selection])\n"
        "print(int(code), selection.is_cut, selection.ran, selection.left)"
    )
    ran = forks.run(["-c", code], cwd=ROOT)
    assert ran.stdout.splitlines()[-1] == "2 True 0 2", ran.stdout + ran.stderr


@pytest.mark.parametrize("name", ["FoldKernelSum", "fold-kernel-sum"])
def test_a_name_is_looked_for_as_tests_spell_it(name: str, forks: Forks) -> None:
    code = (
        "import sys; sys.path.insert(0, 'tools'); import affected; from pathlib import Path;"
        f"print(*affected.Change(Path('translate/rewrites/x.py'), {{{name!r}}}).words)"
    )
    words = forks.run(["-c", code], cwd=ROOT).stdout.split()
    assert {"fold-kernel-sum", "fold_kernel_sum"} <= set(words)
