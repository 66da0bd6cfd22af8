"""Render a sweep as text, and in a notebook."""

from stepwell.ir.renderers import gives
from stepwell.model_zoo.sweep.driver import Sweep
from stepwell.model_zoo.sweep.tables import outcome_html, outcome_lines


@gives("html", Sweep)
def drawn(sweep: Sweep) -> str:
    """Return the table of a sweep's outcomes for a notebook."""
    return outcome_html(sweep.rows)


@gives("text", Sweep)
def written(sweep: Sweep) -> str:
    """Return the outcomes by target, and every faulty row, as text."""
    return outcome_lines(sweep.rows)
