"""Call model factories (`file.py:callable`), normalize their results and report their errors."""

import importlib.util
import sys
import traceback
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.diagnostics import StepwellError, first_line
from stepwell.ir.options import nearest
from stepwell.plugins.plugins import module_of_file

FORMS = (
    "return (module, example_inputs), or as many of module, args, kwargs and dynamic_shapes as "
    "torch.export.export is given, in this order, or "
    "{'module': …, 'args': …, 'kwargs': …, 'dynamic_shapes': …}"
)
_NAMES = ("module", "args", "kwargs", "dynamic_shapes")


def made_by(name: str) -> Any:
    """Call the callable of a `file.py:callable` and return its result.

    Raises:
        StepwellError: the file or the callable does not exist, or fails.
    """
    factory = named(name)
    file, _, attribute = name.rpartition(":")
    if isinstance(factory, torch.nn.Module):
        raise StepwellError(
            f"{attribute} in {file} is a module without example inputs",
            help=f"def with_inputs(): return {attribute}, (inputs,), and {file}:with_inputs",
        )
    with users_code(f"{attribute}() fails", Path(file)):
        return factory()


def named(name: str) -> Callable[..., Any]:
    """Return the callable of a `file.py:callable` without calling it.

    Raises:
        StepwellError: the file or the callable does not exist, or the file fails.
    """
    file, _, attribute = name.rpartition(":")
    path = Path(file)
    if not file:
        raise StepwellError(f"{name!r} names no callable", help="the form is file.py:callable")
    if not path.is_file():
        raise StepwellError(f"the file {path} does not exist", help="the form is file.py:callable")
    module = module_of_file(path) or _run_file(path)
    factory = getattr(module, attribute, None)
    if not callable(factory):
        near = nearest(attribute, [n for n, v in vars(module).items() if callable(v)])
        raise StepwellError(f"{path} has no callable {attribute!r}", help=near.strip() or None)
    return factory


def _run_file(path: Path) -> ModuleType:
    with _importable(path.parent):
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules.setdefault(path.stem, module)
        with users_code(f"{path} cannot be imported", path):
            spec.loader.exec_module(module)
    return module


def parts_of(name: str, made: Any) -> tuple[Any, tuple[Any, ...], dict[str, Any], Any]:
    """Normalize a factory's result to (module, args, kwargs, dynamic shapes).

    Raises:
        StepwellError: the result has another form.
    """
    if isinstance(made, Mapping):
        held = cast("Mapping[str, Any]", made)
        wrong = [key for key in held if key not in _NAMES]
        if wrong or "module" not in held:
            fact = f"has {wrong[0]!r}" if wrong else "has no 'module'"
            raise StepwellError(f"{name} returned a mapping that {fact}", help=FORMS)
        args, kwargs = held.get("args") or (), held.get("kwargs") or {}
        return held["module"], tuple(args), dict(kwargs), held.get("dynamic_shapes")
    if not isinstance(made, tuple) or len(cast("tuple[Any, ...]", made)) not in (2, 3, 4):
        fact = f"{name} returned {type(made).__name__}, which is not a module with inputs"
        raise StepwellError(fact, help=FORMS)
    module, inputs, *rest = cast("tuple[Any, ...]", made)
    kwargs: Any = rest.pop(0) if rest and (len(rest) == 2 or _holds_tensors(rest[0])) else {}
    dynamic = rest[0] if rest else None
    if isinstance(inputs, Mapping):
        return module, (), dict(cast("Mapping[str, Any]", inputs)), dynamic
    return module, tuple(inputs), dict(kwargs or {}), dynamic


def _holds_tensors(value: Any) -> bool:
    """Whether the third item of a factory's result is inputs by keyword, not dynamic shapes."""
    values = cast("Mapping[str, Any]", value).values() if isinstance(value, Mapping) else ()
    return any(isinstance(held, torch.Tensor) for held in values)


@contextmanager
def users_code(fact: str, path: Path | None = None) -> Generator[None]:
    """Report an exception in a model's own code as the model's error, with its line."""
    try:
        yield
    except StepwellError:
        raise
    except (Exception, SystemExit) as error:
        frames = traceback.extract_tb(error.__traceback__)
        own = [f for f in frames if path is not None and Path(f.filename) == path.resolve()]
        own = own or [f for f in frames if path is not None and Path(f.filename) == path]
        where = f"{path}:{own[-1].lineno}" if own else None
        if isinstance(error, SyntaxError) and error.lineno:
            where = f"{error.filename}:{error.lineno}"
        message = f"{fact}: {type(error).__name__}: {first_line(error)}"
        raise StepwellError(message, where) from error


@contextmanager
def _importable(folder: Path) -> Generator[None]:
    """Let a model's file import the modules next to it."""
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
