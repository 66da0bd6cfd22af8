"""Whatever is tampered with, a check ends in a sentence, and in none that says that it holds."""

import pytest
from honest import PROGRAMS, honest
from tamper_kinds import KINDS, applied, checked, is_refused, said_by_checker
from tampered_programs import sample

from stepwell.validation.certificates.audit import verify_certificate


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_honest_holds(name: str) -> None:
    case = honest(name)
    found = verify_certificate(case.certificate, case.program, source=case.source)
    assert found.ok, found
    assert found.is_proved == (name in ("state", "int8")), found


def refused(rows: list[tuple[str, str]]) -> list[str]:
    """Those that are not."""
    left: list[str] = []
    for name, case in rows:
        given = applied(name, honest(case))
        assert given is not None
        if not is_refused(found := checked(given)):
            left.append(f"{name}, {case}: {found}")
    return left


def test_what_is_tampered_with_is_refused() -> None:
    rows = [row for at, row in enumerate(sample(every=False)) if at % 9 == 0]
    assert not refused(rows)


def test_the_checker_alone_refuses_what_it_decides() -> None:
    """The name of the target is for the audit, and so are statements of its labels."""
    rows = [row for at, row in enumerate(sample(every=False)) if at % 18 == 1]
    said = {(name, case): said_by_checker(given, honest(case))[0] for name, case in rows
            if (given := applied(name, honest(case))) is not None}  # fmt: skip
    accepted = [name for name, case in said if said[name, case] == "accepted"]
    assert all(name.startswith("target: ") for name in accepted), accepted
    assumed = [name for name, case in said if said[name, case] == "assumed"]
    audited = ("off by one, ", "a false claim by ", "statements: ", "a statement that never ends, ",
               "a statement of a terabyte")  # fmt: skip
    assert all(name.startswith(audited) for name in assumed), assumed
    assert len(assumed) <= len(said) // 8


@pytest.mark.slow
def test_what_is_tampered_with_in_any_way_is_refused_of_each_program() -> None:
    assert len(KINDS) > 300
    assert not refused(list(sample(every=True)))
