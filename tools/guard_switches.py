"""Switches of guards: instrument the conditions under which a rewrite does not match."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any


def leaves_alone(node: ast.expr | None) -> bool:
    """Whether a returned expression means that the rewrite does not match."""
    if node is None or (isinstance(node, ast.Constant) and node.value is None):
        return True
    return _refuses(node) or (isinstance(node, ast.Name) and node.id == "refusal")


def _refuses(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("Refusal", "refuse")


class Switches(ast.NodeTransformer):
    """Write `condition and __guard__(n)` for each guard of one function."""

    def __init__(self, source: str, found: Callable[[int, str], int]) -> None:
        self.source, self.found = source, found

    def _switch(self, condition: ast.expr) -> ast.Call:
        text = ast.get_source_segment(self.source, condition) or ""
        number = self.found(condition.lineno, " ".join(text.split()))
        name = ast.Name("__guard__", ast.Load())
        return ast.copy_location(ast.Call(name, [ast.Constant(number)], []), condition)

    def _fires(self, test: ast.expr) -> ast.expr:
        """Rewrite `a or b` to `(a and on(1)) or (b and on(2))`."""
        sides = test.values if _is(test, ast.Or) else [test]
        switched = [ast.BoolOp(ast.And(), [side, self._switch(side)]) for side in sides]
        return switched[0] if len(switched) == 1 else ast.BoolOp(ast.Or(), list(switched))

    def _lets_through(self, test: ast.expr) -> ast.expr:
        """Rewrite `a and b` to `(a or not on(1)) and (b or not on(2))`."""
        sides = test.values if _is(test, ast.And) else [test]
        switched = [
            ast.BoolOp(ast.Or(), [side, ast.UnaryOp(ast.Not(), self._switch(side))])
            for side in sides
        ]
        return switched[0] if len(switched) == 1 else ast.BoolOp(ast.And(), list(switched))

    def visit_If(self, node: ast.If) -> ast.If:
        """Handle `if …: return None`."""
        self.generic_visit(node)
        only = node.body[0]
        is_alone = len(node.body) == 1
        returns = isinstance(only, ast.Return) and leaves_alone(only.value)
        if is_alone and (returns or (isinstance(only, ast.Expr) and _refuses(only.value))):
            node.test = self._fires(node.test)
        return node

    def visit_Return(self, node: ast.Return) -> ast.Return:
        """Handle `return … if … else Refusal(…)` and `return not_for(op) or Match(op)`."""
        chosen = node.value
        if isinstance(chosen, ast.IfExp) and _refuses(chosen.body) != _refuses(chosen.orelse):
            refuses_if = _refuses(chosen.body)
            chosen.test = (self._fires if refuses_if else self._lets_through)(chosen.test)
        elif _is(chosen, ast.Or) and _builds(chosen.values[-1]):
            for at, side in enumerate(chosen.values[:-1]):
                name = ast.Name("__unless__", ast.Load())
                chosen.values[at] = ast.Call(name, [side, *self._switch(side).args], [])
        return node


def _is(node: ast.expr | None, kind: type[ast.boolop]) -> Any:
    return isinstance(node, ast.BoolOp) and isinstance(node.op, kind)


def _builds(node: ast.expr) -> bool:
    name = getattr(node.func, "id", "") if isinstance(node, ast.Call) else ""
    return name[:1].isupper()
