"""Arguments of public functions are checked against annotations, be they text or values."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import stepwell
from stepwell.ir.calls.arguments import validate_arguments


@validate_arguments
def evaluated(
    count: int = 0,
    sizes: Sequence[int] | None = None,
    function: Callable[[int, int], int] | None = None,
    path: Path | str = "",
    program: stepwell.Program | None = None,
) -> None:
    """Annotations of this module are values."""


@validate_arguments
def text(
    count: "int" = 0,
    sizes: "Sequence[int] | None" = None,
    function: "Callable[[int, int], int] | None" = None,
    path: "Path | str" = "",
    program: "stepwell.Program | None" = None,
) -> None:
    """Annotations of this function are text."""


@pytest.mark.parametrize("function", [evaluated, text])
@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("count", "1", "count is of type str, not an integer"),
        ("count", True, "count is of type bool, not an integer"),
        ("sizes", 3, "sizes is of type int, not a list or None"),
        ("function", 5, "function is of type int, not a function of 2 arguments or None"),
        ("function", lambda a: a, "function is of type function, not a function of 2"),
        ("path", 5, "path is of type int, not a path or a string"),
    ],
)
def test_an_argument_that_contradicts_its_annotation_is_refused(
    function: Callable[..., None], name: str, value: Any, message: str
) -> None:
    with pytest.raises(stepwell.StepwellError, match=message):
        function(**{name: value})


def test_arguments_of_their_types_are_taken() -> None:
    for function in (evaluated, text):
        function(1, [2], max, "file", None)
