"""Validation of the arguments of public functions against their annotations, before anything runs.

`validate_arguments` reads the annotations of a function and refuses other arguments by name.
Annotations are read as text, so that nothing is imported for them. A class that is known here is
checked, `A | B` accepts either, and any other name is left to the function.
"""

from __future__ import annotations

import ast
import functools
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ParamSpec, TypeGuard, TypeVar

from stepwell.ir.diagnostics import Problem, StepwellError

_P = ParamSpec("_P")
_R = TypeVar("_R")

_KINDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "str": (lambda v: isinstance(v, str), "a string"),
    "bytes": (lambda v: isinstance(v, bytes | bytearray), "bytes"),
    "bool": (lambda v: isinstance(v, bool), "True or False"),
    "int": (lambda v: isinstance(v, int) and not isinstance(v, bool), "an integer"),
    "float": (lambda v: isinstance(v, int | float) and not isinstance(v, bool), "a number"),
    "None": (lambda v: v is None, "None"),
    "Mapping": (lambda v: isinstance(v, Mapping), "a mapping"),
    "dict": (lambda v: isinstance(v, dict), "a dictionary"),
    "Sequence": (lambda v: isinstance(v, Sequence) and not isinstance(v, str | bytes), "a list"),
    "list": (lambda v: isinstance(v, list), "a list"),
    "Callable": (callable, "a function"),
    "Path": (lambda v: isinstance(v, os.PathLike), "a path"),
    "PathLike": (lambda v: isinstance(v, os.PathLike), "a path"),
}

_Check = tuple[tuple[str, tuple[tuple[Callable[[Any], bool], str], ...]], ...]


def validate_arguments(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Decorate a function to refuse arguments that contradict its annotations."""
    signature = inspect.signature(function)
    checks: _Check = tuple(
        (name, kinds)
        for name, parameter in signature.parameters.items()
        if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        and (kinds := _kinds(_text_of(parameter.annotation), getattr(function, "__globals__", {})))
    )

    @functools.wraps(function)
    def checked(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError:
            return function(*args, **kwargs)  # Python's own message is the best.
        problems = [
            problem
            for name, kinds in checks
            if name in bound.arguments
            and (problem := _problem(function, name, bound.arguments[name], kinds)) is not None
        ]
        if problems:
            raise StepwellError(problems)
        return function(*args, **kwargs)

    return checked


def exactly(make: Callable[..., Any], row: Any) -> Any:
    """Call a function with arguments of its types and names, and no others or fewer.

    Args:
        make: the function, or a class.
        row: the arguments by name, as read from a file.

    Raises:
        ValueError: an argument is missing or unknown.
        StepwellError: an argument has another type.
    """
    names = set(inspect.signature(make).parameters)
    if not isinstance(row, dict) or set(row) != names:  # pyright: ignore
        raise ValueError(f"a JSON object must have the fields {sorted(names)}, and no others")
    return validate_arguments(make)(**row)


def takes(function: Any, count: int) -> TypeGuard[Callable[..., Any]]:
    """Whether an object can be called with this number of positional arguments."""
    if not callable(function):
        return False
    try:
        inspect.signature(function).bind(*range(count))
    except TypeError:
        return False
    except ValueError:  # A built-in function that does not say what it takes, such as `max`.
        return True
    return True


def _problem(
    function: Callable[..., Any],
    name: str,
    value: Any,
    kinds: tuple[tuple[Callable[[Any], bool], str], ...],
) -> Problem | None:
    if any(is_one(value) for is_one, _ in kinds):
        return None
    wanted = " or ".join(dict.fromkeys(description for _, description in kinds))
    text = "None" if value is None else f"of type {type(value).__name__}"
    help = f"the call is {function.__name__}{_bare(function)}"
    if "a list" in wanted and type(value).__name__ == "Tensor":
        help = "pass a tuple, also of one tensor: (x,)"
    return Problem(f"{name} is {text}, not {wanted}", f"{function.__qualname__}()", help)


def _bare(function: Callable[..., Any]) -> inspect.Signature:
    """Return the signature of a function without annotations."""
    signature = inspect.signature(function)
    parameters = signature.parameters.values()
    return signature.replace(
        parameters=[parameter.replace(annotation=parameter.empty) for parameter in parameters],
        return_annotation=signature.empty,
    )


def _text_of(annotation: Any) -> str:
    """Return an annotation as text, even if its module evaluates annotations."""
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


def _kinds(
    annotation: str, scope: Mapping[str, Any]
) -> tuple[tuple[Callable[[Any], bool], str], ...]:
    """Return (predicate, name) of each class that an annotation allows; empty: not checked."""
    try:
        tree = ast.parse(annotation, mode="eval").body
    except SyntaxError:
        return ()
    found: list[tuple[Callable[[Any], bool], str]] = []
    for name in _alternatives(tree):
        if name.startswith("Callable of "):
            count = int(name.rpartition(" ")[2])
            found.append((partial(_takes, count), f"a function of {count} arguments"))
            continue
        kind = scope.get(name)
        if kind is Any:
            return ()
        if name in _KINDS:
            found.append(_KINDS[name])
        elif name_of(kind) in _KINDS:
            found.append(_KINDS[name_of(kind)])
        elif isinstance(kind, type):
            found.append((partial(_is_of, kind), f"of type {name}"))
        else:
            return ()
    return tuple(found)


def name_of(kind: Any) -> str:
    """Return the class name of a generic alias: `Sequence` for `Samples = Sequence[Tensor]`."""
    return str(getattr(getattr(kind, "__origin__", None), "__name__", ""))


def _takes(count: int, value: Any) -> bool:
    return takes(value, count)


def _is_of(kind: type, value: Any) -> bool:
    return isinstance(value, kind)


def _alternatives(tree: ast.expr) -> list[str]:
    """List the names of the classes of a union."""
    if isinstance(tree, ast.BinOp) and isinstance(tree.op, ast.BitOr):
        return [*_alternatives(tree.left), *_alternatives(tree.right)]
    if isinstance(tree, ast.Subscript):
        (name,) = _alternatives(tree.value)
        given = tree.slice.elts[0] if isinstance(tree.slice, ast.Tuple) else None
        if name == "Callable" and isinstance(given, ast.List):
            return [f"Callable of {len(given.elts)}"]
        return [name]
    if isinstance(tree, ast.Constant) and tree.value is None:
        return ["None"]
    return [ast.unparse(tree).rpartition(".")[2]]
