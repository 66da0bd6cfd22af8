"""Write one self-contained HTML page about a lowering.

The page consists of `page.html`, `page.css`, the scripts in `parts`, and the story (the recorded
lowering) as JSON. Only visible lines are rendered, so that a level of thousands of ops scrolls
smoothly. The selection is in the URL, so that Back and a shared link restore it.
"""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from importlib.resources import files
from typing import Any

from stepwell.inspection.viewer.applications import Piece
from stepwell.inspection.viewer.memory import MemoryPlan
from stepwell.inspection.viewer.story import PassSnapshot, Story

PARTS = (
    *("core", "levels", "tables", "nodes", "nesting", "layout", "pens", "painting", "rewrites"),
    *("overlays", "graph", "moves", "graphs", "profile", "memory", "main"),
)
"""The scripts, in the order of their dependencies."""


def to_html(story: Story, editor: str | None = None) -> str:
    """Return the HTML page that shows a story (a recorded lowering).

    Args:
        editor: a URL that opens a file of this machine at a line, with `{path}` and `{line}` in it;
            None for a page without such links, which then contains no folder name.
    """
    here = files("stepwell.inspection.viewer")
    page = (here / "page.html").read_text(encoding="utf-8")
    parts = {
        "/*STYLE*/": (here / "page.css").read_text(encoding="utf-8"),
        "/*SCRIPT*/": _script(),
        "<!--TITLE-->": _escape(story.title),
        "/*STORY*/": embedded(_story(story, editor)),
    }
    for mark, text in parts.items():
        page = page.replace(mark, text)
    return page


def _script() -> str:
    """Return the scripts wrapped in one function, so that their names are not global."""
    here = files("stepwell.inspection.viewer") / "parts"
    texts = [(here / f"{name}.js").read_text(encoding="utf-8") for name in PARTS]
    return '"use strict";\n(() => {\n' + "\n".join(texts) + "})();\n"


def embedded(value: Any) -> str:
    """Return JSON that is safe in a script element, whatever strings it contains."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;")


def _story(story: Story, editor: str | None) -> dict[str, Any]:
    texts: dict[str, int] = {}
    levels = [_level(level, texts) for level in story.levels]
    told: dict[str, Any] = {
        "title": story.title,
        "levels": levels,
        "texts": list(texts),
        "weights": [
            [w.key, w.element, w.shape, w.bytes, list(story.numbers.get(w.key, ()))]
            for w in story.weights
        ],
        "fates": [
            {**asdict(fate), "became": Counter(fate.became).most_common()} for fate in story.fates
        ],
        "notes": dict(story.notes),
        "latency": story.latency,
        "times": dict(story.times),
        "added": story.added,
        "differences": dict(story.differences),
        "overlays": dict(story.overlays),
        "beside": story.beside,
        "sources": {
            name: {
                "lines": source.lines,
                "editor": editor.replace("{path}", source.path) if editor else None,
            }
            for name, source in story.sources.items()
        },
        "memory": [_memory(plan) for plan in story.memory],
        "report": None,
    }
    if story.lowered is not None:
        report = story.lowered.report
        told["report"] = {
            "target": report.target,
            "delegates": report.delegates,
            "outside": report.outside.most_common(),
            "seconds": report.seconds,
            "steps": [[s.name, s.applied, s.seconds, s.ops] for s in report.steps],
            "refusals": [[r.rewrite, r.op, r.node, r.where, r.reason] for r in report.refusals],
        }
    return told


def _level(level: PassSnapshot, texts: dict[str, int]) -> dict[str, Any]:
    """Encode lines as rows of numbers, in which every string is stored once."""

    def number(text: str | None) -> int:
        return -1 if text is None else texts.setdefault(text, len(texts))

    return {
        "name": level.name,
        "applied": level.applied,
        "lines": [
            [
                line.op,
                number(line.text),
                line.depth,
                number(line.name),
                number(line.node),
                number(line.source),
                number(line.path),
                line.delegate,
            ]
            for line in level.lines
        ],
        "applications": [
            [
                application.rewrite,
                application.where,
                _pieces(application.before, number),
                _pieces(application.after, number),
            ]
            for application in level.applications
        ],
    }


def _pieces(pieces: tuple[Piece, ...], number: Callable[[str], int]) -> list[list[Any]]:
    return [[p.op, number(p.text), int(p.changed), p.results, p.operands] for p in pieces]


def _memory(plan: MemoryPlan) -> dict[str, Any]:
    step, most = plan.busiest
    return {
        "method": plan.method,
        "size": plan.size,
        "steps": plan.steps,
        "busiest": step,
        "most": most,
        "held": [[h.label, h.offset, h.bytes, h.first, h.last] for h in plan.held],
        **_WORDS[plan.workspace],
    }


_WORDS = {
    False: {
        "of": "Arena of",
        "unit": "call",
        "value": "tensor",
        "says": "What a delegate keeps for itself is not in the arena.",
    },
    True: {
        "of": "XNNPACK's workspace in",
        "unit": "node",
        "value": "value",
        "says": "Computed from the delegate's graph by the rules of XNNPACK's own planner; the "
        "runtime does not report it. Inputs, outputs and weights are not in it, nor what operators "
        "need for themselves; delegates of one process share the largest.",
    },
}
"""The page's terms for the arena in the file, and for XNNPACK's plan when it starts."""
