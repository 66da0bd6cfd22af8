"""Locate errors in a text, and match them with comments in the text that expect errors.

    // expected-error @+1 {{results are}}
    %y = aten.relu.default(%x) : (tensor<2xf32>) -> tensor<3xf32>

The notation is MLIR's: `@+2`, `@-1`, `@above`, `@below`, `@unknown`; `expected-error-re` takes a
regular expression. A refusal of a rewrite is a remark: an expected one must occur, others may.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from stepwell.ir.diagnostics import Problem

_EXPECTED = re.compile(
    r"expected-(?P<kind>error|remark)(?P<re>-re)?[ \t]*"
    r"(?:@(?P<at>[+-]\d+|above|below|unknown))?[ \t]*\{\{(?P<text>.*?)\}\}"
)


@dataclass(frozen=True)
class Diagnostic:
    """A diagnostic about a line of the text (None: about no line)."""

    kind: str
    line: int | None
    problem: Problem


@dataclass(frozen=True)
class Expectation:
    """A diagnostic that a comment in the text (`expected-error`) expects."""

    kind: str
    line: int | None
    text: str
    is_pattern: bool
    written_at: int

    def meets(self, diagnostic: Diagnostic) -> bool:
        """Whether a diagnostic matches, by line and text; its help text counts too."""
        if diagnostic.kind != self.kind or diagnostic.line != self.line:
            return False
        whole = f"{diagnostic.problem.fact}\n{diagnostic.problem.help or ''}"
        return bool(re.search(self.text, whole)) if self.is_pattern else self.text in whole


def expectations(text: str) -> list[Expectation]:
    """Parse every expectation in a text, with the line that it is about (the first is 1)."""
    lines = text.splitlines()
    found: list[Expectation] = []
    for number, line in enumerate(lines, 1):
        for match in _EXPECTED.finditer(line.partition("//")[2]):
            at = _line(match["at"], number, lines)
            found.append(Expectation(match["kind"], at, match["text"], bool(match["re"]), number))
    return found


def _line(designator: str | None, number: int, lines: Sequence[str]) -> int | None:
    """Return the line of a designator; `@above` and `@below` skip further expectations."""
    if designator is None:
        return number
    if designator == "unknown":
        return None
    if designator not in ("above", "below"):
        return number + int(designator)
    step = -1 if designator == "above" else 1
    at = number + step
    while 0 < at <= len(lines) and lines[at - 1].lstrip().startswith("// expected-"):
        at += step
    return at


def unmet(
    wanted: Sequence[Expectation], diagnostics: Iterable[Diagnostic], name: str
) -> list[Problem]:
    """Return the expected diagnostics that are missing, and the unexpected errors."""
    waiting = list(wanted)
    problems: list[Problem] = []
    for one in diagnostics:
        met = next((w for w in waiting if w.meets(one)), None)
        if met is not None:
            waiting.remove(met)
        elif one.kind == "error":
            fact = f"unexpected error: {one.problem.fact}"
            problems.append(replace(one.problem, fact=fact))
    for left in waiting:
        about = "no line" if left.line is None else f"line {left.line}"
        fact = f"expected {left.kind} was not produced on {about}: {left.text}"
        problems.append(Problem(fact, f"{name}:{left.written_at}"))
    return problems


def line_of(problem: Problem, name: str) -> int | None:
    """Return the line of this text that a problem is about, or None."""
    match = re.match(rf"{re.escape(name)}:(\d+)", problem.where or "")
    return int(match[1]) if match else None


def shown(problem: Problem, text: str, name: str, chunk: int | None) -> Problem:
    """Format a problem with the line that it is about and a caret under its op.

    Args:
        problem: the problem.
        text: the whole input.
        name: the name of the input.
        chunk: the program's number, if the input was split.
    """
    at = line_of(problem, name)
    lines = text.splitlines()
    if at is None or at > len(lines):
        return problem
    line = lines[at - 1]
    match = re.match(rf"{re.escape(name)}:\d+:(\d+)", problem.where or "")
    op = problem.fact.partition(":")[0].split(" ")[0]
    column = int(match[1]) - 1 if match else max(line.find(op), len(line) - len(line.lstrip()))
    start = max(0, column - 70)
    cut = line[start : start + 110]
    where = f"{name}:{at}:{column + 1}" + (f", in chunk {chunk}" if chunk is not None else "")
    number = f"{at:6} | "
    caret = " " * (len(number) + column - start) + "^"
    own = (problem.help or "").startswith("the text here is")
    return replace(
        problem,
        where=f"{where}\n{number}{cut}\n{caret}",
        help=None if own else problem.help,
    )
