"""What tests of rewrites between torch's ops share."""

from typing import Any

import pytest

LATE = 'tensor<?xf32, #stepwell.shape<["n"]>>'


@pytest.fixture
def method_of_n(method: Any) -> Any:
    """As `method`, with an integer `%n : !stepwell.int<"n">` known only at run time: 5 there."""

    def text(arguments: str, *lines: str, gives: str) -> str:
        size = f'%n = aten.sym_size.int(%late, 0) : ({LATE}) -> !stepwell.int<"n">'
        return method(f"{arguments}, %late: {LATE}", size, *lines, gives=gives)

    return text
