"""Open a `.pt2` without trusting it: nothing in the file is unpickled, evaluated or called.

`torch.export.load` unpickles sample inputs, tensor subclasses and custom objects, evaluates
symbolic expressions as Python (through sympy), and looks up operators by dotted names. Here the
archive is inspected first. Contents that need any of these are refused by name, sample inputs are
dropped, expressions may contain only arithmetic, and call targets must be operators.
"""

from __future__ import annotations

import ast
import json
import os
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import torch
from torch.export import ExportedProgram

from stepwell.dialects.aten.registry import LIBRARIES, overload_of
from stepwell.ir.compat.torch import torch_private
from stepwell.ir.compat.torch.lazy_imports import OnDemand
from stepwell.ir.compat.torch.torch_globals import torch_alone
from stepwell.ir.compat.torch.torch_private import program_of, weights_and_constants
from stepwell.ir.diagnostics import ParseFailure, Problem, StepwellError, quoted

pt2_archive = OnDemand("torch.export.pt2_archive")


_FUNCTIONS = frozenset(
    "Symbol Integer Float Rational Add Mul Pow Max Min Mod Abs Eq Ne Lt Le Gt Ge "
    "Equality Unequality StrictLessThan LessThan StrictGreaterThan GreaterThan "
    "And Or Not Piecewise ExprCondPair Tuple floor ceiling sqrt "
    "FloorDiv CleanDiv CeilDiv ModularIndexing Where PythonMod Identity "
    "FloorToInt CeilToInt TruncToInt TruncToFloat RoundToInt RoundDecimal ToFloat "
    "IntTrueDiv FloatTrueDiv FloatPow PowByNatural LShift RShift".split()
)
"""Functions that sympy may evaluate in a file's expressions."""
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")
_LONGEST = 4096
_TARGET = re.compile(
    r"(?:torch\.ops\.\w+(?:\.\w+)+|_operator\.\w+|math\.\w+|torch\.(?:_sym|sym)_\w+)"
)
_OPERATOR = re.compile(rf"torch\.ops\.((?:{'|'.join(LIBRARIES)})\.\w+\.\w+)")
_PICKLED = ("custom_obj_", "opaque_obj_")
_TRUST = "load it with trust (`--trust`) if you know where it comes from"


def load_pt2(path: str | os.PathLike[str], *, trust: bool = False) -> ExportedProgram:
    """Load an exported program from a file.

    Args:
        path: the path of the `.pt2`.
        trust: let PyTorch unpickle the file's contents, including sample inputs.

    Raises:
        ParseFailure: the file is not a `.pt2`, is damaged, or requires `trust`.
        StepwellError: the file cannot be read.
    """
    place = Path(path)
    try:
        if trust:
            with torch_alone():
                return torch.export.load(place)
        model = _look_through(place)
        return _load(place, model)
    except StepwellError:
        raise
    except OSError as error:
        raise StepwellError(f"cannot read {place.name}: {error.strerror or error}") from None
    except Exception as error:
        # torch's deserializer raises arbitrary exceptions for damaged files.
        lines = str(error).splitlines() or [type(error).__name__]
        raise ParseFailure(f"the program does not read: {lines[0][:200]}", place.name) from error


def _look_through(place: Path) -> str:
    """Check everything that would be executed or unpickled, and return the single model's name."""
    size = place.stat().st_size
    try:
        with zipfile.ZipFile(place) as archive:
            entries = archive.infolist()
            if sum(entry.file_size for entry in entries) > size:
                raise ParseFailure("the archive claims more bytes than it holds", place.name)
            texts = {
                entry.filename.partition("/")[2]: archive.read(entry)
                for entry in entries
                if entry.filename.endswith(".json")
            }
            names = [entry.filename.partition("/")[2] for entry in entries]
            _refuse_names([entry.filename for entry in entries], place)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, ValueError) as error:
        raise ParseFailure(f"no .pt2 archive: {error}", place.name) from None
    models = [n.removeprefix("models/").removesuffix(".json") for n in texts if n[:7] == "models/"]
    if len(models) != 1:
        raise ParseFailure(f"the archive holds {len(models)} models, one is needed", place.name)
    problems = [
        Problem(f"{quoted(name)} contains pickled weights", place.name, _TRUST)
        for name in names
        if name.startswith(("data/weights/", "data/constants/")) and name.endswith(".pt")
    ]
    for name, text in texts.items():
        try:
            content = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ParseFailure(f"{quoted(name)} is no JSON: {error}", place.name) from None
        problems += [Problem(fact, f"{place.name}, {name}", _TRUST) for fact in _dangers(content)]
    if problems:
        raise ParseFailure(problems[:20])
    return models[0]


def _refuse_names(names: list[str], place: Path) -> None:
    """Refuse duplicate entry names, because torch might read the entry that was not inspected."""
    seen: set[str] = set()
    for name in names:
        inner = name.partition("/")[2].casefold()
        if inner and inner in seen:
            raise ParseFailure(f"the archive has {quoted(name)} twice", place.name)
        seen.add(inner)
        parts = re.split(r"[/\\]", name)
        if name.startswith(("/", "\\")) or ".." in parts or "\0" in name:
            raise ParseFailure(f"{quoted(name)} is no name of an archive's entry", place.name)


def _dangers(content: Any) -> Iterator[str]:
    """Yield what would be unpickled, evaluated or called in a JSON document."""
    waiting = [content]
    while waiting:
        value = waiting.pop()
        if isinstance(value, list):
            waiting += cast(list[Any], value)
        if not isinstance(value, dict):
            continue
        held = cast(dict[str, Any], value)
        waiting += held.values()
        if held.get("use_pickle"):
            yield "a tensor is stored as a pickle"
        path = held.get("path_name")
        if isinstance(path, str) and (path.startswith(_PICKLED) or "/" in path or "\\" in path):
            yield f"{quoted(path)} is a pickled object, or not a name"
        expression = held.get("expr_str")
        if isinstance(expression, str) and not is_arithmetic(expression):
            yield f"{quoted(expression)} is no arithmetic expression"
        target = held.get("target")
        if isinstance(target, str) and "inputs" in held and _TARGET.fullmatch(target) is None:
            yield f"{quoted(target)} is no operator"


def is_arithmetic(expression: str) -> bool:
    """Whether sympy, which evaluates Python, can safely evaluate an expression.

    Numbers, symbols, operators are allowed, and calls of sympy's and torch's arithmetic functions,
    in sympy's `srepr` form too: `Mul(Integer(3), Symbol('s77', positive=True, integer=True))`.
    """
    if len(expression) > _LONGEST:
        return False
    try:
        tree = ast.parse(expression.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    functions = {id(n.func) for n in ast.walk(tree) if isinstance(n, ast.Call)}
    return all(_is_harmless(node, id(node) in functions) for node in ast.walk(tree))


_GRAMMAR = (
    ast.Expression, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.Call, ast.keyword,
    ast.operator, ast.unaryop, ast.boolop, ast.cmpop, ast.expr_context, ast.IfExp,
)  # fmt: skip


def _is_harmless(node: ast.AST, called: bool) -> bool:
    match node:
        case ast.BinOp(op=ast.Pow() | ast.LShift(), right=right):
            return _is_small(right)
        case ast.Call(func=ast.Name(id=name), args=arguments) if name in _GROWING:
            return len(arguments) == 2 and _is_small(arguments[1])
        case ast.Name(id=name) if called:
            return name in _FUNCTIONS
        case ast.Name(id=name):
            return _NAME.fullmatch(name) is not None and (name[-1].isdigit() or name in _CONSTANTS)
        case ast.Constant(value=str() as text):
            return _NAME.fullmatch(text) is not None and "__" not in text
        case ast.Constant(value=bool() | int() | float()):
            return True
        case _:
            return isinstance(node, _GRAMMAR)


_GROWING = frozenset({"Pow", "PowByNatural", "FloatPow", "LShift"})


def _is_small(node: ast.expr) -> bool:
    """Whether an exponent is a number small enough for sympy to evaluate quickly."""
    match node:
        case ast.Call(func=ast.Name(id="Integer" | "Float"), args=[inner]):
            return _is_small(inner)
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            return _is_small(inner)
        case ast.Constant(value=int() | float() as value):
            return abs(value) <= 64
        case _:
            return False


_CONSTANTS = frozenset({"True", "False", "oo", "nan", "true", "false", "int_oo"})


def _load(place: Path, model: str) -> ExportedProgram:
    reader = pt2_archive.PT2ArchiveReader(str(place)) if hasattr(
        pt2_archive, "PT2ArchiveReader"
    ) else torch_private.package.PT2ArchiveReader(str(place))  # fmt: skip
    with reader as archive:
        text = archive.read_bytes(f"models/{model}.json")
        for name in sorted(set(_OPERATOR.findall(text.decode(errors="replace")))):
            overload_of(name)  # This imports the library that registers quantized operators.
        program = program_of(text)
        state, constants = weights_and_constants(archive, model)
        no_samples: Any = ((), {})
        return torch_private.serialize.ExportedProgramDeserializer(None).deserialize(
            program, state, constants, no_samples
        )
