"""Color MLIR text for a terminal."""

import re

_TOKENS = re.compile(
    r"(?P<string>\"(?:[^\"\\]|\\.)*\")|(?P<value>%[\w$.-]+)|(?P<symbol>@[\w$.-]+|\^\w+)"
    r"|(?P<type>(?:tensor|vector)<|![\w.]+<?|\b(?:f32|f16|bf16|f64|[su]?i\d+)\b)"
    r"|(?P<attribute>#[\w.]+)|(?P<op>\b[a-z_]\w*(?:\.\w+)+)|(?P<number>-?\b\d+(?:\.\d+)?(?:e[+-]?\d+)?\b)"
)
_COLORS = {
    "string": "32",
    "value": "33",
    "symbol": "1;34",
    "type": "36",
    "attribute": "35",
    "op": "1;34",
    "number": "31",
}


def highlighted(text: str) -> str:
    """Return the text with ANSI colors; it is otherwise unchanged."""

    def color(match: re.Match[str]) -> str:
        kind = match.lastgroup
        return f"\x1b[{_COLORS[kind]}m{match[0]}\x1b[0m" if kind else match[0]

    return _TOKENS.sub(color, text)
