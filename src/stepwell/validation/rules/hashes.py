"""Compute the hashes that identify a stored proof: of the rule's text and functions, and of the
prover.
"""

import ast
import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from inspect import getsource, unwrap
from pathlib import Path
from sys import modules
from textwrap import dedent
from types import CodeType, FunctionType, ModuleType
from typing import Any

from stepwell.translate.rules import functions, predicates
from stepwell.translate.rules.rewrite import RuleRewrite

_NOT_FOR = re.compile(r"^not for (?:.*[,;]\n)*.*\n", re.M)
_KEEPERS = ("hashes.py", "kept_verdicts.py")
"""Modules that store verdicts and prove nothing."""
_OURS, _OF_REWRITES = "stepwell.", "stepwell.translate."

SEMANTICS = "4"
"""Incremented when the prover's reasoning changes, so that no older verdict remains valid."""


@cache
def hash_of(rewrite: type[RuleRewrite]) -> str:
    """Return the hash of a rule without its `not for` clause, on which no proof depends."""
    return _hash([SEMANTICS, _NOT_FOR.sub("", rewrite.rule.text), *_sources(rewrite)])


@cache
def whole_hash_of(rewrite: type[RuleRewrite]) -> str:
    """Return the hash of a rule with its `not for` examples."""
    return _hash([rewrite.rule.text, *_sources(rewrite)])


@cache
def hash_of_prover() -> str:
    """Return the hash of the prover; a changed prover may give other answers."""
    files = sorted(Path(__file__).parent.glob("*.py"))
    return _hash(_code(file.read_text()) for file in files if file.name not in _KEEPERS)


def _code(text: str) -> str:
    """Return a Python text without docstrings, comments and layout, on which no proof depends."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        body: Any = getattr(node, "body", None)
        first = body[0] if isinstance(body, list) and body else None
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
            first.value = ast.Constant(None)
    return ast.unparse(tree)


def _hash(texts: Iterable[str]) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]


def _sources(rewrite: type[RuleRewrite]) -> list[str]:
    """Return the functions that a rule's text names, and those of rewrites that they call."""
    namespace = {**vars(functions), **vars(predicates), **rewrite.namespace}
    waiting = list(_meant(re.findall(r"\w+", rewrite.rule.text), namespace))
    found = set[FunctionType]()
    while waiting:
        function = waiting.pop()
        if function not in found:
            found.add(function)
            if not function.__module__.startswith(_OF_REWRITES):
                continue
            waiting += _meant(names_in(function.__code__), function.__globals__)
    return sorted(map(_source, found))


@cache
def _source(function: FunctionType) -> str:
    return f"{function.__qualname__}\n{_code(dedent(getsource(function)))}"


def _meant(names: Iterable[str], namespace: Mapping[str, Any]) -> Iterator[FunctionType]:
    """Yield the functions to which names refer, including those in classes and modules."""
    known = [*dict.fromkeys(names)]
    held = [namespace[name] for name in known if name in namespace]
    within = [module for module in held if isinstance(module, ModuleType)]
    held += [getattr(module, name) for module in within for name in known if hasattr(module, name)]
    for value in held:
        is_class = isinstance(value, type) and value.__module__.startswith(_OF_REWRITES)
        for each in (value, *(vars(value).values() if is_class else ())):
            function = each.fget if isinstance(each, property) else each
            function = unwrap(getattr(function, "__func__", function))  # pyright: ignore[reportArgumentType]
            if isinstance(function, FunctionType) and _is_written(function):
                yield function


def _is_written(function: FunctionType) -> bool:
    """Whether a function's source is in a stepwell module; generated methods have no source."""
    module = function.__module__
    return module.startswith(_OURS) and function.__code__.co_filename == modules[module].__file__


def names_in(code: CodeType) -> Iterator[str]:
    """Return the global names and attributes that a function and its nested functions read."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from names_in(constant)
