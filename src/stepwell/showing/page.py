"""One HTML page that holds everything about a lowering and needs no network.

The page is `page.html` with `page.css`, `page.js` and the story as JSON written into it. Lines are
drawn only where they can be seen, so that a level of thousands of ops scrolls smoothly.
"""

from __future__ import annotations

import json
from collections import Counter
from importlib.resources import files
from typing import Any

from stepwell.showing.story import Level, Story


def to_html(story: Story) -> str:
    """The page of a story."""
    here = files("stepwell.showing")
    page = (here / "page.html").read_text(encoding="utf-8")
    parts = {
        "/*STYLE*/": (here / "page.css").read_text(encoding="utf-8"),
        "/*SCRIPT*/": (here / "page.js").read_text(encoding="utf-8"),
        "<!--TITLE-->": _escape(story.title),
        "/*STORY*/": embedded(_story(story)),
    }
    for mark, text in parts.items():
        page = page.replace(mark, text)
    return page


def embedded(value: Any) -> str:
    """JSON that may stand in a script element, whatever the strings in it say."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;")


def _story(story: Story) -> dict[str, Any]:
    texts: dict[str, int] = {}
    levels = [_level(level, texts) for level in story.levels]
    told: dict[str, Any] = {
        "title": story.title,
        "levels": levels,
        "texts": list(texts),
        "weights": [[w.key, w.element, w.shape, w.bytes] for w in story.weights],
        "fates": [
            {
                "op": fate.op,
                "node": fate.node,
                "line": fate.line,
                "path": fate.path,
                "cost": fate.cost,
                "where": fate.where,
                "became": Counter(fate.became).most_common(),
                "by": fate.by,
                "into": fate.into,
                "why": fate.why,
            }
            for fate in story.fates
        ],
        "notes": dict(story.notes),
        "latency": story.latency,
        "times": dict(story.times),
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


def _level(level: Level, texts: dict[str, int]) -> dict[str, Any]:
    """Lines as rows of numbers; every text is written once."""

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
    }
