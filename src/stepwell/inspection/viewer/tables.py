"""Build HTML fragments that notebooks show for programs, reports, explanations and checks."""

from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files
from typing import Any

from stepwell.dialects.tosa_mxfp.payloads import PAYLOADS
from stepwell.inspection.reports.explaining import Explanation
from stepwell.inspection.reports.profiling import HEADS, Profile
from stepwell.inspection.viewer.summary import summarize
from stepwell.ir.diagnostics import counted
from stepwell.ir.program import Program
from stepwell.ir.renderers import gives
from stepwell.ir.rewriting.pipeline import Pipeline
from stepwell.ir.rewriting.rewrite import GreedyRewrites, Step, step_name
from stepwell.lowering import Lowered
from stepwell.report.advice import Advice, advise
from stepwell.report.report import Report
from stepwell.targets.table import Pipelines
from stepwell.translate.mxfp.accuracy import MxAccuracy

MOST_ROWS = 200


def document(title: str, body: str) -> str:
    """Return a report's fragment as one self-contained page, in the colors of the viewer's page."""
    here = files("stepwell.inspection.viewer")
    colors, end, _ = (here / "page.css").read_text("utf-8").partition("}\n")
    style = colors + end + (here / "report.css").read_text("utf-8")
    return (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<title>{escape(title)}</title><style>{style}</style></head>"
        f"<body data-ready='yes'><main><h1>{escape(title)}</h1>{body}</main></body></html>"
    )


def table(heads: Sequence[str], rows: Iterable[Sequence[Any]], caption: str = "") -> str:
    """Return an HTML table with escaped cells."""
    shown = list(rows)
    left = "style='text-align:left'"
    head = "".join(f"<th {left}>{escape(h)}</th>" for h in heads)
    labels = [f"<td {left} data-label='{escape(h)}'>" for h in heads]
    body = "".join(
        "<tr>"
        + "".join(f"{td}{escape(str(cell))}</td>" for td, cell in zip(labels, row, strict=True))
        + "</tr>"
        for row in shown[:MOST_ROWS]
    )
    more = f"<p>… and {len(shown) - MOST_ROWS} more</p>" if len(shown) > MOST_ROWS else ""
    title = f"<caption>{escape(caption)}</caption>" if caption else ""
    return f"<table>{title}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


@gives("html", Explanation)
def explanation_table(explanation: Explanation) -> str:
    """Return an HTML table of what became of each op of the model."""
    total = sum(fate.cost for fate in explanation.fates) or 1
    rows = [
        (
            f"{fate.cost / total:.1%}",
            fate.op,
            fate.node,
            fate.where + (f" into {fate.into}" if fate.into else ""),
            ", ".join(fate.by),
            "; ".join(fate.why),
            fate.line or "",
        )
        for fate in explanation.fates
    ]
    heads = ("work", "op", "node", "where", "by", "why", "source line")
    advised = advice_table(advise(*explanation.left))
    return advised + table(heads, rows, f"lowered to {explanation.target}")


def advice_table(found: Iterable[Advice]) -> str:
    """Return the advice on model changes; empty if no op is left to kernels."""
    rows = [
        (
            f"{one.share:.1%}",
            one.change or "no change is known to help",
            ", ".join(f"{count} × {name}" for name, count in one.ops.most_common()),
            ", ".join(one.lines),
            "; ".join(one.reasons),
        )
        for one in found
    ]
    heads = ("work left to kernels", "change in the model", "ops", "lines", "because")
    return table(heads, rows) if rows else ""


@gives("html", Report)
def report_table(report: Report) -> str:
    """Return tables of the passes of a lowering, and of the ops outside delegates."""
    steps = [
        (s.name, s.applied, s.ops, f"{s.seconds * 1e3:.1f}") for s in report.steps if s.applied
    ]
    outside = report.outside.most_common()
    return (
        f"<p><b>{escape(report.target)}</b>: {counted(report.delegates, 'delegate')}, "
        f"{counted(report.outside.total(), 'op')} outside, {report.seconds:.2f} s</p>"
        + advice_table(report.advice)
        + table(("step", "applied", "ops after", "ms"), steps)
        + (table(("left to kernels", "count"), outside) if outside else "")
    )


@gives("html", Lowered)
def lowered_fragment(lowered: Lowered) -> str:
    """Return the report and the counts of final ops, without program text and weights."""
    counts = summarize(lowered.program)
    rows = sorted(counts.ops.items(), key=lambda item: -item[1][1])
    ops = table(("op", "count", "work"), [(name, n, f"{w:,}") for name, (n, w) in rows])
    return (
        report_table(lowered.report)
        + f"<details><summary>{sum(n for n, _ in counts.ops.values())} ops</summary>{ops}</details>"
    )


@gives("html", Profile)
def profile_table(profile: Profile) -> str:
    """Return a table of the events of a profile with their times."""
    caption = f"{profile.method}: {profile.milliseconds:.3f} ms"
    return table(HEADS, profile.cells(), caption)


@gives("html", Pipeline)
def pipeline_table(pipeline: Pipeline) -> str:
    """Return a table of the passes, and the rewrites of each."""
    rows = [(step_name(step), ", ".join(_parts(step))) for step in pipeline.steps]
    return table(("step", "runs"), rows, f"pipeline {pipeline.name}")


@gives("html", Pipelines)
def pipelines_table(pipelines: Pipelines) -> str:
    """Return a table of pipeline names, with the number of passes of each."""
    rows = [(name, len(pipeline.steps)) for name, pipeline in pipelines.items()]
    return table(("pipeline", "steps"), rows)


def _parts(step: Step) -> list[str]:
    """Return the rewrites of a pass; empty if the pass is a single rewrite."""
    rewrites = list(step.rewrites) if isinstance(step, GreedyRewrites) else []
    return [step_name(part) for part in rewrites]


@gives("html", MxAccuracy)
def accuracy_table(accuracy: MxAccuracy) -> str:
    """Return a table of the relative error of each layer in each MX payload."""
    rows = [list(map(_cell, row)) for row in accuracy.cells()]
    return table(("layer", "kind", *PAYLOADS, "is"), rows, "relative error in each MX payload")


def _cell(held: Any) -> str:
    return "–" if held is None else f"{held:.2%}" if isinstance(held, float) else str(held)


@gives("html", Program)
def program_fragment(program: Program) -> str:
    """Return the text of a program, collapsed under its size."""
    counts = summarize(program)
    rows = sorted(counts.ops.items(), key=lambda item: -item[1][1])
    text = escape(str(program))
    return (
        f"<p><b>{escape(counts.level)}</b> program, {len(counts.weights)} weights, "
        f"{sum(w.bytes for w in counts.weights):,} bytes</p>"
        + table(("op", "count", "work"), [(name, n, f"{w:,}") for name, (n, w) in rows])
        + f"<details><summary>text</summary><pre>{text}</pre></details>"
    )
