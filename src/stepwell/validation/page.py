"""The result of a check as HTML."""

from __future__ import annotations

from html import escape

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
def table(result: CheckResult) -> str:
    """Return the verdicts and findings as an HTML fragment."""
    rows = "".join(
        f"<tr><td class='{'good' if s.ok else 'bad'}'>{s.mark}</td>"
        f"<td>{escape(s.name)}</td><td>{s.applied}</td><td>{s.applications}</td>"
        f"<td>{s.samples}</td><td>{s.deviation:.1e}</td><td>{escape(s.bound)}</td>"
        f"<td>{s.seconds * 1e3:.0f} ms</td><td>{escape(s.note)}</td></tr>"
        for s in result.steps
        if s.applied or not s.ok or s.note
    )
    heads = ("", "step", "applied", "compared", "samples", "deviation", "bound", "time", "")
    head = "".join(f"<th>{h}</th>" for h in heads)
    text = "".join(f"<pre class='bad'>{escape(str(f))}</pre>" for f in result.findings)
    tried = "".join(
        f"<p>Tried @{escape(method)} on {len(labels)} samples: {escape('; '.join(labels))}</p>"
        for method, labels in result.tried.items()
    )
    skipped = "".join(f"<li>{escape(line)}</li>" for line in result.skipped)
    verdict = (
        "<p class='good'>Every pass is within its error bound.</p>"
        if result.ok
        else f"<p class='bad'>{len(result.findings)} findings, in order:</p>{text}"
    )
    return (
        f"{verdict}<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
        + tried
        + (f"<p>Not compared:</p><ul>{skipped}</ul>" if skipped else "")
        + (
            "<p>Relative error of each layer in each MX payload:</p>"
            f"<pre>{escape(result.accuracy)}</pre>"
            if result.accuracy
            else ""
        )
    )


@gives("page", CheckResult)
def page(result: CheckResult) -> str:
    """Return one self-contained page."""
    title = escape(f"{result.model} → {result.target}".strip(" →"))
    return (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>"
        f"<title>{title}</title><style>{_STYLE}</style></head><body>"
        f"<h1>{title}</h1>{table(result)}</body></html>"
    )
