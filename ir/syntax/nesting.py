"""A readable text for the nesting of values: `((*, [*, *]), {mask: *})` for torch's pytree JSON.

A `*` is a value; tuples, lists and dictionaries with identifiers as keys are written as in Python.
Other containers (named tuples, a user's own) keep torch's JSON, which begins with its version, `[1,
`.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import Any

_LEAF: dict[str, Any] = {"type": None, "context": None, "children_spec": []}
_TOKEN = re.compile(r"\s*([*()\[\]{},:]|[A-Za-z_]\w*)")
_CLOSING = {"(": ")", "[": "]", "{": "}"}
_PYTHON = {"(": "builtins.tuple", "[": "builtins.list"}
_VERSION = 1
MAX_DEPTH = 64
"""The maximum depth; no model nests deeper, and a deeper text is refused."""


@lru_cache
def spell(spec: str) -> str:
    """Convert a pytree spec (torch's JSON) to short text; a spec without a short form is
    unchanged.
    """
    try:
        version, tree = json.loads(spec)
        short = _spell(tree)
    except (ValueError, TypeError, KeyError, RecursionError):
        return spec
    return short if version == _VERSION and _is_same(short, spec) else spec


@lru_cache
def unspell(text: str) -> str:
    """Convert a short text to JSON; JSON is returned unchanged.

    Raises:
        ValueError: the text is neither a short text nor JSON.
    """
    if re.match(r"\s*\[\s*\d", text):
        return text
    tokens = _tokens(text)
    tree, rest = _parse(tokens, 0)
    if rest != len(tokens):
        raise ValueError(f"{text!r} has text after its value")
    return json.dumps([_VERSION, tree])


def _is_same(short: str, spec: str) -> bool:
    return json.loads(unspell(short)) == json.loads(spec)


def _spell(tree: dict[str, Any]) -> str:
    kind, children = tree["type"], [_spell(child) for child in tree["children_spec"]]
    if kind is None:
        return "*"
    if kind == "builtins.tuple":
        return "(" + ", ".join(children) + ")"
    if kind == "builtins.list":
        return "[" + ", ".join(children) + "]"
    if kind == "builtins.dict":
        names = json.loads(tree["context"])
        if all(isinstance(name, str) and re.fullmatch(r"[A-Za-z_]\w*", name) for name in names):
            pairs = zip(names, children, strict=True)
            return "{" + ", ".join(f"{name}: {child}" for name, child in pairs) + "}"
    raise ValueError(f"{kind} has no short form")


def _tokens(text: str) -> list[str]:
    tokens: list[str] = []
    at = 0
    text = text.rstrip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise ValueError(f"{text[at : at + 10]!r} is not part of a nesting")
        tokens.append(match[1])
        at = match.end()
    return tokens


def _parse(tokens: list[str], at: int, depth: int = 0) -> tuple[dict[str, Any], int]:
    opening = tokens[at] if at < len(tokens) else ""
    if opening == "*":
        return dict(_LEAF), at + 1
    if opening not in _CLOSING or depth > MAX_DEPTH:
        raise ValueError(f"a value is needed, not {opening!r}")
    names: list[str] = []
    children: list[dict[str, Any]] = []
    at += 1
    while at < len(tokens) and tokens[at] != _CLOSING[opening]:
        if children:
            at = _expect(tokens, at, ",")
        if opening == "{":
            if not tokens[at].isidentifier():
                raise ValueError(f"a name is needed, not {tokens[at]!r}")
            names.append(tokens[at])
            at = _expect(tokens, at + 1, ":")
        child, at = _parse(tokens, at, depth + 1)
        children.append(child)
    at = _expect(tokens, at, _CLOSING[opening])
    kind = _PYTHON.get(opening, "builtins.dict")
    context = json.dumps(names if opening == "{" else None)
    return {"type": kind, "context": context, "children_spec": children}, at


def _expect(tokens: list[str], at: int, wanted: str) -> int:
    if at >= len(tokens) or tokens[at] != wanted:
        raise ValueError(f"{wanted!r} is missing")
    return at + 1
