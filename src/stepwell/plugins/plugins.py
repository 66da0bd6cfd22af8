"""Plug-ins: packages or files that extend stepwell through the registry.

A plug-in is a function that takes the registry:

    def plugin(registry: stepwell.Registry) -> None:
        registry.dialect(Demo, level=Level("demo", belongs))
        registry.step(FormAxpy)
        registry.target(Target("demo", PIPELINE, "axpy", {"axpy": emit}, run))

A package declares it in its entry points (`[project.entry-points."stepwell.plugins.plugins"]`,
`demo = "my_package:plugin"`). It is loaded when a PyTorch program is imported, or when a name is
used that stepwell does not know. A file is loaded by `--load FILE` on every command, or by
`load_plugin`. If a file has no such function, the rewrites, passes, pipelines, dialects and targets
at its top level are registered.

A plug-in is loaded completely or not at all. If it fails, its registrations are undone and its name
is printed on stderr, or is in the error if it was requested by name. Everything else keeps working.
"""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import logging
import os
import sys
import threading
import traceback
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from importlib.metadata import EntryPoint, entry_points
from os import PathLike
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from xdsl.ir import Dialect, Operation
from xdsl.irdl import IRDLOperation
from xdsl.passes import ModulePass
from xdsl.pattern_rewriter import RewritePattern

from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.rewriting.pipeline import Pipeline
from stepwell.ir.rewriting.rewrite import Pass, Rewrite, Step
from stepwell.ir.rewriting.xdsl_passes import needs_arguments
from stepwell.ir.syntax import text
from stepwell.plugins.registry import REGISTRY, Plugin, Registry, unknown
from stepwell.targets.target import Target

LOADED = "STEPWELL_LOAD"
"""The environment variable with further files to load, separated as in PATH."""
GROUP = "stepwell.plugins.plugins"
"""The group of the entry points."""

_LOG = logging.getLogger(__name__)
_LOCK = threading.RLock()
_LOADED = threading.Event()
"""Set once the entry points have been loaded."""


def registry() -> Registry:
    """Return the registry, with every installed plug-in loaded."""
    load_entry_points()
    return REGISTRY


def load_entry_points() -> None:
    """Load every installed plug-in, and the files that `LOADED` names, once.

    An installed plug-in that fails is named on stderr and skipped.
    """
    if _LOADED.is_set():
        return
    with _LOCK:
        if _LOADED.is_set():
            return
        _LOADED.set()  # Set first, because plug-ins may look up names themselves.
        for point in entry_points(group=GROUP):
            _load_entry_point(point)
        for file in filter(None, os.environ.get(LOADED, "").split(os.pathsep)):
            _load_file(Path(file))


@contextmanager
def handed_on(files: Iterable[Path]) -> Generator[None]:
    """Make subprocesses that are started in this context load these files."""
    before = os.environ.get(LOADED)
    held = [before] if before else []
    os.environ[LOADED] = os.pathsep.join((*held, *(str(file.resolve()) for file in files)))
    try:
        yield
    finally:
        del os.environ[LOADED]
        if before is not None:
            os.environ[LOADED] = before


def _load_entry_point(point: EntryPoint) -> None:
    dist = point.dist
    origin = f"{dist.name} {dist.version}" if dist is not None else point.value
    plugin = Plugin(point.name, origin)
    REGISTRY.plugins[point.name] = plugin
    try:
        _bring(plugin, lambda: _call(point.load()))
    except StepwellError as error:
        plugin.failure = error
        _LOG.warning("%s", error)


def load_plugin(source: str | PathLike[str] | ModuleType | Callable[[Registry], None]) -> Plugin:
    """Load a plug-in: a file, a module, or its function. A modified file is loaded again.

    Raises:
        StepwellError: the plug-in fails; the message has the line, and its registrations are
            undone.
    """
    with _LOCK:
        if isinstance(source, str | PathLike):
            return _load_file(Path(source))
        name = source.__name__
        if name in REGISTRY.plugins:
            unload_plugin(name)
        plugin = REGISTRY.plugins[name] = Plugin(name, getattr(source, "__module__", name))
        try:
            _bring(plugin, lambda: _call(source))
        except StepwellError:
            del REGISTRY.plugins[name]
            raise
        return plugin


def _load_file(path: Path) -> Plugin:
    place = str(path.resolve())
    try:
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise StepwellError(f"cannot read {path}: {error.strerror}") from None
    file = REGISTRY.plugins.get(place)
    if file is not None and file.digest == digest:
        return file
    if file is not None:
        unload_plugin(place)
    plugin = Plugin(path.stem, place, digest=digest)
    REGISTRY.plugins[place] = plugin
    try:
        _bring(plugin, lambda: _call(_executed(plugin, path)))
    except StepwellError:
        del REGISTRY.plugins[place]
        raise
    return plugin


def module_of_file(path: Path) -> ModuleType | None:
    """Return the module of a file that was loaded as a plug-in, which is not executed again."""
    plugin = REGISTRY.plugins.get(str(path.resolve()))
    return plugin.module if plugin is not None else None


def unload_plugin(name: str) -> None:
    """Undo the registrations of a plug-in, by its name or its path.

    Raises:
        StepwellError: the plug-in is unknown.
    """
    with _LOCK:
        plugin = REGISTRY.plugins.pop(name, None)
        if plugin is None:
            raise unknown("plug-in", name, REGISTRY.plugins)
        plugin.take_back()
        if plugin.module is not None and sys.modules.get(plugin.module.__name__) is plugin.module:
            del sys.modules[plugin.module.__name__]


def _executed(plugin: Plugin, path: Path) -> ModuleType:
    """Execute a file as a module. Its name must be unused: classes look up their module by name."""
    name = path.stem if path.stem not in sys.modules else f"{path.stem}_{plugin.digest[:8]}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise StepwellError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    sys.path.insert(0, str(path.parent))
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    finally:
        sys.path.remove(str(path.parent))
    plugin.module = module
    return module


def _call(held: Any) -> None:
    """Call a plug-in's function, or the one in its module, with the registry."""
    if isinstance(held, ModuleType):
        function = getattr(held, "plugin", None)
        if function is None:
            return _collect(held)
        held = function
    if not callable(held):
        raise StepwellError(
            f"the argument has type {type(held).__name__}, which is not a plug-in",
            help="pass a function that takes the registry",
        )
    cast(Callable[[Registry], None], held)(REGISTRY)
    return None


def _collect(module: ModuleType) -> None:
    """Register the top-level objects of a module that has no `plugin` function."""
    for value in vars(module).values():
        if isinstance(value, Pipeline):
            REGISTRY.pipeline(value)
        elif isinstance(value, Target):
            REGISTRY.target(value)
        elif isinstance(value, Dialect) and not text.is_registered(value.name):
            REGISTRY.dialect(value)
        elif inspect.isclass(value) and value.__module__ == module.__name__:
            is_pattern = issubclass(value, RewritePattern) and not needs_arguments(value)
            is_pass = issubclass(value, Rewrite | Pass | ModulePass)
            is_named = is_pass and isinstance(vars(value).get("name"), str)
            if (is_pattern or is_named) and not inspect.isabstract(value):
                REGISTRY.step(cast("type[Step]", value))
    _collect_ops(module)


def _collect_ops(module: ModuleType) -> None:
    """Register the op classes of a module whose dialect it does not define, as dialects."""
    ops: dict[str, list[type[Operation]]] = {}
    for value in vars(module).values():
        if not isinstance(value, type) or not issubclass(value, IRDLOperation):
            continue
        if value.__module__ == module.__name__ and "name" in vars(value):
            ops.setdefault(value.name.partition(".")[0], []).append(value)
    for name, held in ops.items():
        if not text.is_registered(name):
            REGISTRY.dialect(Dialect(name, held))


def _bring(plugin: Plugin, load: Callable[[], None]) -> None:
    """Load a plug-in; record its registrations, and undo them if it fails."""
    REGISTRY.loading.append(plugin)
    try:
        with plugin.watching():
            load()
    except (Exception, SystemExit) as error:
        plugin.take_back()
        raise _failure(plugin, error) from error
    finally:
        REGISTRY.loading.pop()


def _failure(plugin: Plugin, error: BaseException) -> StepwellError:
    """Return the error of a plug-in that fails: its name, the reason, and its own line."""
    problem = error.problems[0] if isinstance(error, StepwellError) else None
    lines = str(error).strip().splitlines()
    reason = problem.fact if problem else f"{type(error).__name__}: {lines[0] if lines else ''}"
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if not _is_machinery(f.filename)]
    own = [f for f in own if Path(f.filename).resolve() == Path(plugin.origin)] or own
    where = f"{own[-1].filename}:{own[-1].lineno}" if own else plugin.origin
    if isinstance(error, SyntaxError) and error.filename:
        where = f"{error.filename}:{error.lineno}"
    return StepwellError(
        f"plug-in {plugin.name!r} ({plugin.origin}) is not loaded: {reason}",
        where,
        (problem and problem.help) or "fix or remove it; nothing else depends on it",
    )


def _is_machinery(file: str) -> bool:
    """Whether a frame is Python's import system or this package."""
    return "importlib" in file or Path(file).is_relative_to(Path(__file__).parents[1])
