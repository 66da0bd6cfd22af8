"""Render the result of `stepwell check` as HTML."""

from html import escape

from stepwell.inspection.viewer.tables import table
from stepwell.ir.renderers import gives
from stepwell.validation.result import CheckResult

_STYLE = """
body { font: 14px/1.5 system-ui, sans-serif; }
body { margin: 24px auto; max-width: 1100px; padding: 0 16px; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: 3px 12px 3px 0; border-bottom: 1px solid #dfe3ea; }
.bad { color: #b42318; } .good { color: #067647; }
pre { background: #f5f6f9; padding: 10px; white-space: pre-wrap; overflow-wrap: anywhere; }
"""


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
        lines = "".join(f"<li>{escape(line)}</li>" for line in result.skipped)
        parts.append(f"<p>Not compared:</p><ul>{lines}</ul>")
    if result.accuracy:
        parts.append("<p>Relative error of each layer in each MX payload:</p>")
        parts.append(f"<pre>{escape(result.accuracy)}</pre>")
    return "".join(parts)


@gives("page", CheckResult)
def page(result: CheckResult) -> str:
    """Return the result of a check as one self-contained HTML page."""
    title = escape(f"{result.model} → {result.target}".strip(" →"))
    return (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>"
        f"<title>{title}</title><style>{_STYLE}</style></head><body>"
        f"<h1>{title}</h1>{fragment(result)}</body></html>"
    )
