"""The HTML report of a measured accuracy, for notebooks and `--html`."""

from html import escape

from stepwell.inspection.viewer.tables import document, table
from stepwell.ir.diagnostics import short
from stepwell.ir.renderers import gives
from stepwell.quantization.sensitivity.result import HEADS, Accuracy


@gives("html", Accuracy)
def accuracy_page(found: Accuracy) -> str:
    """Return the report's HTML: the sentence, bar charts and tables."""
    stages = [
        (s.name, short(s.mean[0]), short(s.mean[1]), f"{s.loss.flips} of {s.samples}")
        for s in found.stages
    ]
    sites = [
        tuple(short(cell) if isinstance(cell, float) else cell for cell in row)
        for row in found.cells()
    ]
    return (
        f"<p><b>{escape(found.sentence)}</b></p>{found.plot().svg}"
        + table(("stage", "loss", "score", "flips"), stages, f"on the way to {found.target}")
        + table(HEADS, sites, "points of quantization")
    )


@gives("page", Accuracy)
def page(found: Accuracy) -> str:
    """Return the report as one self-contained HTML page."""
    return document(f"accuracy → {found.target}", accuracy_page(found))
