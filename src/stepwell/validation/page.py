"""Render the result of `stepwell check` as HTML."""

from html import escape

from stepwell.inspection.viewer.tables import document, table
from stepwell.ir.renderers import gives
from stepwell.validation.result import CheckResult


@gives("html", CheckResult)
def fragment(result: CheckResult) -> str:
    """Return the verdicts and findings as an HTML fragment."""
    heads = ("", "step", "applied", "compared", "samples", "deviation", "bound", "time", "")
    rows = [
        (s.mark, s.name, s.applied, s.applications, s.samples, f"{s.deviation:.1e}", s.bound,
         f"{s.seconds * 1e3:.0f} ms", s.note)
        for s in result.steps
        if s.applied or not s.ok or s.note
    ]  # fmt: skip
    parts = ["<p class='good'>Every pass is within its error bound.</p>"]
    if not result.ok:
        parts = [f"<p class='bad'>{len(result.findings)} findings, in order:</p>"]
    parts += [f"<pre class='bad'>{escape(str(found))}</pre>" for found in result.findings]
    parts.append(table(heads, rows))
    for method, labels in result.tried.items():
        text = f"Tried @{method} on {len(labels)} samples: {'; '.join(labels)}"
        parts.append(f"<p>{escape(text)}</p>")
    if result.skipped:
        lines = "".join(f"<li>{escape(line)}</li>" for line in result.left_out)
        parts.append(f"<p>Not compared:</p><ul>{lines}</ul>")
    if result.accuracy:
        parts.append("<p>Relative error of each layer in each MX payload:</p>")
        parts.append(f"<pre>{escape(result.accuracy)}</pre>")
    return "".join(parts)


@gives("page", CheckResult)
def page(result: CheckResult) -> str:
    """Return the result of a check as one self-contained HTML page."""
    return document(f"{result.model} → {result.target}".strip(" →"), fragment(result))
