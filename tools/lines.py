"""Count the lines of the hand-written folders: all lines, and lines of code.

    python tools/lines.py [folder …]      translate/rewrites, translate, ir, dialects, backends, src

Code excludes blank lines, comments and docstrings, so also examples and rules as text. Generated
files (`generated` in their path) are excluded.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from pathlib import Path

FOLDERS = ("translate/rewrites", "translate", "ir", "dialects", "backends", "src")
SILENT = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)


def docstrings(tree: ast.AST) -> set[int]:
    """Return the lines of docstrings and of attribute docstrings."""
    alone = (node for node in ast.walk(tree) if isinstance(node, ast.Expr))
    texts = (
        n for n in alone if isinstance(n.value, ast.Constant) and isinstance(n.value.value, str)
    )
    return {line for n in texts for line in range(n.lineno, (n.end_lineno or n.lineno) + 1)}


def counted(text: str) -> tuple[int, int]:
    """Return (lines, lines of code) of a file."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    held = {
        line
        for token in tokens
        if token.type not in SILENT and token.string
        for line in range(token.start[0], token.end[0] + 1)
    }
    return len(text.splitlines()), len(held - docstrings(ast.parse(text)))


def main(folders: list[str]) -> int:
    """Print a row for each folder."""
    print("| folder | files | lines | code |\n|---|---|---|---|")
    for folder in folders or FOLDERS:
        paths = [p for p in Path(folder).rglob("*.py") if "generated" not in str(p)]
        rows = [counted(path.read_text(encoding="utf-8")) for path in paths]
        print(f"| {folder} | {len(rows)} | {sum(r[0] for r in rows)} | {sum(r[1] for r in rows)} |")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
