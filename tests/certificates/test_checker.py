"""The small checker of certificates: what it decides, what it refuses alone, what it imports."""

import subprocess
import sys
from pathlib import Path

import pytest
import statement_cases
from honest import PROGRAMS, honest
from sampled import sampled

import stepwell.validation.certificates.checker
from stepwell.validation.certificates.checker.check import check
from stepwell.validation.certificates.checker.statements import ASSUMED, NARROWED, STEPPED

HOME = Path(next(iter(stepwell.validation.certificates.checker.__path__)))
PARTS = ("ir/observed.py", "ir/weight_descriptions.py", "dialects/op_text.py")
"""Modules of the levels that only certificates need."""
MOST_LINES, MOST_WITH_PARTS = 1000, 1200
ALLOWED = ("stepwell.ir", "stepwell.dialects", "stepwell.validation.certificates.checker")


def test_the_checker_is_small() -> None:
    lines = sum(len(path.read_text().splitlines()) for path in HOME.glob("*.py"))
    assert lines <= MOST_LINES
    parts = (HOME.parents[2] / part for part in PARTS)
    assert lines + sum(len(path.read_text().splitlines()) for path in parts) <= MOST_WITH_PARTS


@pytest.mark.parametrize("name", statement_cases.CASES)
def test_a_statement_is_decided_in_the_arithmetics_in_which_it_holds(name: str) -> None:
    case = statement_cases.CASES[name]
    said = case[0].replace("64", NARROWED).replace("|", STEPPED)
    wanted = {"bits": ["bits", "reals"], "": []}.get(said, [said])
    assert statement_cases.readings(case) == wanted


@pytest.mark.parametrize("name", sampled(PROGRAMS, *list(PROGRAMS)[::2]))
def test_the_checker_alone_lists_what_it_does_not_decide(name: str) -> None:
    case = honest(name)
    found = check(case.certificate.to_json(), 5, case.program, case.source)
    assert not found.faults
    assumed = {entry.by for _, entry, *_ in found.assumptions}
    assert all(by in ("run", "values") or by.endswith(ASSUMED) for by in assumed), assumed
    assert found.proved + found.implied + len(found.assumptions) == len(case.certificate.entries)


def test_the_checker_imports_the_levels_alone(tmp_path: Path) -> None:
    case = honest("state")
    (tmp_path / "certificate.json").write_text(case.certificate.to_json())
    program = f"""
import sys
from stepwell.dialects import make_known
from stepwell.validation.certificates.checker.check import check
make_known()
found = check(open({str(tmp_path / "certificate.json")!r}).read(), 5)
assert found.proved and not found.faults, found.faults
allowed = {ALLOWED!r}
outside = [n for n in sys.modules if n.startswith("stepwell.") and not n.startswith(allowed)]
print(*sorted(outside))
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert not run.returncode, run.stderr
    assert run.stdout.split() == ["stepwell.validation", "stepwell.validation.certificates"]
