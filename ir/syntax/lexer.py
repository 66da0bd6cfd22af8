"""The lexer of the textual format: xDSL's, with one regular expression for the common tokens.

It differs in three points. A string whose escapes decode as UTF-8 is a string (xDSL treats
everything beyond ASCII as bytes). No text makes the lexer backtrack (an unterminated string took
exponential time). It is three times as fast.
"""

from __future__ import annotations

import re

from xdsl.utils.exceptions import ParseError
from xdsl.utils.lexer import Span, Token
from xdsl.utils.mlir_lexer import MLIRLexer, MLIRToken, MLIRTokenKind, StringLiteral

_SUFFIX = r"(?:[0-9]++|[A-Za-z$._-][A-Za-z0-9$._-]*+)"
_GROUPS: tuple[tuple[str, MLIRTokenKind | None], ...] = (
    (r"[A-Za-z_][A-Za-z0-9_$.]*+", MLIRTokenKind.BARE_IDENT),
    (rf"%{_SUFFIX}", MLIRTokenKind.PERCENT_IDENT),
    (r"->|[:,()\[\]}=<>+*?|/]|-(?!>)|\{(?!-#)", None),
    (r"0x[0-9a-fA-F]++|[0-9]++(?!\.)", MLIRTokenKind.INTEGER_LIT),
    (r"[0-9]++\.[0-9]*+(?:[eE][+-]?[0-9]++)?", MLIRTokenKind.FLOAT_LIT),
    (r'"(?:[^"\\\n\v\f]|\\(?:["nt\\]|[0-9A-Fa-f]{2}))*+"', MLIRTokenKind.STRING_LIT),
    (rf"#(?!-\}}){_SUFFIX}", MLIRTokenKind.HASH_IDENT),
    (rf"!{_SUFFIX}", MLIRTokenKind.EXCLAMATION_IDENT),
    (rf"\^{_SUFFIX}", MLIRTokenKind.CARET_IDENT),
    (r"@[A-Za-z_][A-Za-z0-9_$.]*+", MLIRTokenKind.AT_IDENT),
)
_TOKEN = re.compile(
    r"(?:\s++|//[^\n]*+)*+(?:" + "|".join(f"({pattern})" for pattern, _ in _GROUPS) + ")",
    re.ASCII,
)
_KINDS = (None, *(kind for _, kind in _GROUPS))
_PUNCTUATION = {kind.value: kind for kind in MLIRTokenKind if isinstance(kind.value, str)}
_STRING = _KINDS.index(MLIRTokenKind.STRING_LIT)


class TextLexer(MLIRLexer):
    """A lexer of MLIR text; `Span`s are in characters."""

    def lex(self) -> MLIRToken:
        """Return the next token.

        Raises:
            ParseError: no token starts here.
        """
        match = _TOKEN.match(self.input.content, self.pos)
        if match is None:
            return self._lex_rare()
        index = match.lastindex
        assert index is not None
        start, end = match.span(index)
        self.pos = end
        span = Span(start, end, self.input)
        kind = _KINDS[index]
        if kind is None:
            kind = _PUNCTUATION[match[index]]
        elif index == _STRING:
            kind = _string_kind(span)
        return Token(kind, span)

    def _lex_rare(self) -> MLIRToken:
        """Lex the end of the file, `@"quoted"`, metadata brackets or `...`; raise an error for
        other text.
        """
        self._consume_whitespace()
        start = self.pos
        content = self.input.content
        if start < len(content):
            char = content[start]
            if char == '"':
                raise ParseError(
                    Span(start, start + 1, self.input),
                    "a string that does not end on this line, or a wrong escape in it",
                )
            if char == "@":
                self.pos = start + 1
                if not content.startswith('"', self.pos):
                    raise ParseError(Span(start, start + 1, self.input), "a name must follow '@'")
                self.lex()
                return self._form_token(MLIRTokenKind.AT_IDENT, start)
            if char not in "{#.":
                raise ParseError(
                    Span(start, start + 1, self.input), f"no token starts with {char!r}"
                )
        return super().lex()


def _string_kind(span: Span[str]) -> MLIRTokenKind:
    text = span.input.content[span.start : span.end]
    if "\\" not in text:
        return MLIRTokenKind.STRING_LIT
    try:
        StringLiteral.from_span(span).bytes_contents.decode()
    except UnicodeDecodeError:
        return MLIRTokenKind.BYTES_LIT
    return MLIRTokenKind.STRING_LIT
