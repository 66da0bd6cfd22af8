"""Whatever is tampered with, a check ends in a sentence, and in none that says that it holds."""

import pytest
from honest import PROGRAMS, honest
from tampered_programs import sample
from tampering import KINDS, applied, checked, is_refused

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
    rows = [row for at, row in enumerate(sample(every=False)) if at % 4 == 0]
    assert not refused(rows)


@pytest.mark.slow
def test_what_is_tampered_with_in_any_way_is_refused_of_each_program() -> None:
    assert len(KINDS) > 300
    assert not refused(list(sample(every=True)))
