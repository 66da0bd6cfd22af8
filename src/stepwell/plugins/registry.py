"""The registry of everything that plug-ins added to stepwell.

This registry is the only global state about plug-ins; `plugins.py` fills it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import ModuleType
from typing import TYPE_CHECKING, Any

from xdsl.ir import Dialect, Operation
from xdsl.passes import ModulePass
from xdsl.pattern_rewriter import RewritePattern

from stepwell.ir import levels, work
from stepwell.ir.declared import inference, interpretation
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.levels import Level
from stepwell.ir.options import nearest
from stepwell.ir.rewriting.pipeline import Pipeline
from stepwell.ir.rewriting.rewrite import Pass, Rewrite, Step, step_name
from stepwell.ir.rewriting.xdsl_passes import Xdsl, as_step, needs_arguments
from stepwell.ir.syntax import text

if TYPE_CHECKING:
    from stepwell.backends.executorch.reading.readers import DelegateReader
    from stepwell.ir.compat.torch.torch_private import OpOverload
    from stepwell.targets.target import Target

HOUSE = ("xnnpack-", "tosa-", "cortex-m", "c-", "ethos-u")
"""The name prefixes of stepwell's own targets, in addition to `xnnpack` and `c`."""

Quantizer = Callable[[Any, Sequence[Any]], Any]
"""(module, example inputs) → the quantized module."""


@dataclass
class Plugin:
    """A plug-in: its name, its package, and what it registered.

    Attributes:
        name: the name of the entry point or of the file.
        origin: the plug-in's distribution or path.
        brings: the registered objects, by kind.
        failure: why the plug-in could not be loaded, in which case `brings` is empty.
    """

    name: str
    origin: str
    brings: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    failure: StepwellError | None = None
    module: ModuleType | None = field(default=None, repr=False)
    digest: str = ""
    added: list[tuple[dict[Any, Any], Any]] = field(
        default_factory=list[tuple[dict[Any, Any], Any]], repr=False
    )
    """Each table to which it added an entry, with the key."""

    @contextmanager
    def watching(self) -> Generator[None]:
        """Record what the plug-in's modules register on import: rules of op classes, dialects,
        levels.
        """
        tables: list[dict[Any, Any]] = [
            text._DIALECTS, levels.LEVELS, inference._INFERENCE, interpretation._INTERPRETERS
        ]  # fmt: skip
        before = [set(table) for table in tables]
        try:
            yield
        finally:
            for table, known in zip(tables, before, strict=True):
                fresh = [key for key in table if key not in known]
                self.added += [(table, key) for key in fresh if not _of_house(key, table[key])]

    def take_back(self) -> None:
        """Undo the plug-in's registrations."""
        for table, key in self.added:
            table.pop(key, None)
        self.added.clear()
        self.brings.clear()

    def __str__(self) -> str:
        if self.failure is not None:
            return str(self.failure)
        rows = [f"  {kind}: {', '.join(names)}" for kind, names in self.brings.items()]
        return "\n".join([f"{self.name}  ({self.origin})", *(rows or ["  nothing"])])


def _of_house(key: Any, value: Any) -> bool:
    """Whether a rule, dialect or level is stepwell's own and was imported in the meantime."""
    named = key if isinstance(key, type) else getattr(value, "refuses", value)
    return f"{getattr(named, '__module__', '')}.".startswith("stepwell.")


@dataclass
class Registry:
    """The registrations of all plug-ins; `stepwell.plugins.registry.REGISTRY` is the instance."""

    steps: dict[str, type[Step]] = field(default_factory=dict[str, type[Step]])
    pipelines: dict[str, Pipeline] = field(default_factory=dict[str, Pipeline])
    pipeline_targets: dict[str, str] = field(default_factory=dict[str, str])
    targets: dict[str, Target | Callable[[], Target]] = field(
        default_factory=dict[str, "Target | Callable[[], Target]"]
    )
    delegates: dict[str, Callable[[], DelegateReader]] = field(
        default_factory=dict[str, "Callable[[], DelegateReader]"]
    )
    quantizers: dict[str, Quantizer] = field(default_factory=dict[str, Quantizer])
    plugins: dict[str, Plugin] = field(default_factory=dict[str, Plugin])
    loading: list[Plugin] = field(default_factory=list[Plugin], repr=False)
    """The plug-ins that are being loaded, the innermost last."""

    def identity(self) -> list[str]:
        """Return each plug-in with its version or digest, for the key of a cache of results."""
        return sorted(
            f"{plugin.name} {plugin.origin} {plugin.digest}" for plugin in self.plugins.values()
        )

    def dialect(
        self,
        dialect: Dialect | Callable[[], Dialect],
        *,
        name: str = "",
        level: Level | None = None,
    ) -> None:
        """Register a dialect for the parser, and the level of its programs.

        Args:
            dialect: the dialect, or a function that creates it when a text first names it.
            name: the name of a dialect that is created later.
            level: the level of programs of the dialect, if it has one.
        """
        loader = (lambda: dialect) if isinstance(dialect, Dialect) else dialect
        spelled = dialect.name if isinstance(dialect, Dialect) else name
        text.register_dialect(spelled, loader)
        self._note("dialects", spelled, text._DIALECTS)
        if level is not None:
            levels.register_level(level)
            self._note("levels", level.name, levels.LEVELS)

    def step(self, *classes: type[Step] | type[Xdsl]) -> None:
        """Register rewrites and passes by their names, for `opt -p`, `--pipeline` and `--after`.

        A class of xDSL's passes is registered with its options, one of its patterns by the name of
        `as_step`.

        Raises:
            StepwellError: a class is of another kind, or a pattern needs arguments.
        """
        for cls in classes:
            given: Any = cls
            if inspect.isclass(given) and issubclass(given, ModulePass):
                self._put("steps", self.steps, given.name, given)  # Its fields are options.
                continue
            if inspect.isclass(given) and issubclass(given, RewritePattern):
                if needs_arguments(given):
                    fact = f"the pattern {given.__name__} needs arguments"
                    raise StepwellError(fact, help="register a ModulePass that applies it")
                held = as_step(given)
                self._put("steps", self.steps, step_name(held), held)
                continue
            if not (inspect.isclass(given) and issubclass(given, Rewrite | Pass)):
                raise StepwellError(f"{cls!r} is not a subclass of Rewrite or Pass")
            self._put("steps", self.steps, given.name, cls)

    def pipeline(self, pipeline: Pipeline, target: str | None = None) -> None:
        """Register a pipeline by its name: `--pipeline NAME`.

        Args:
            pipeline: the pipeline.
            target: the target whose emitter and runner are used after it; then `lower(program,
                NAME)` works too.
        """
        self._put("pipelines", self.pipelines, pipeline.name, pipeline)
        if target is not None:
            self.pipeline_targets[pipeline.name] = target
            if self.loading:
                self.loading[-1].added.append((self.pipeline_targets, pipeline.name))

    def target(self, target: Target | Callable[[], Target], *, name: str = "") -> None:
        """Register a target: its pipeline, its emitters, and the engine that runs its artifacts.

        Args:
            target: the target, or a function that creates it on first use.
            name: the name of a target that is created later.
        """
        spelled = name or getattr(target, "name", "")
        if not spelled:
            raise StepwellError(
                "a function that creates a target needs a name", help="pass name='…'"
            )
        if spelled in ("xnnpack", "c") or spelled.startswith(HOUSE):
            raise StepwellError(
                f"{spelled!r} is a target of stepwell's own", help="choose another name"
            )
        self._put("targets", self.targets, spelled, target)

    def op(self, overload: OpOverload, **says: Any) -> None:
        """Register a custom operator, as `stepwell.register_op` does."""
        from stepwell.plugins.register_op import entries_of, register_op

        register_op(overload, **says)
        for kind, name, table, key in entries_of(overload, says.get("kernel") is not None):
            self._note(kind, name, table, key)

    def kernel(self, op: str, schema: str, library: str | None = None) -> None:
        """Register the kernel of ExecuTorch's runtime that computes an op.

        Args:
            op: the op's name in the IR.
            schema: the kernel's name, or its complete schema.
            library: a module that registers it with this machine's runtime when it is imported.
        """
        from stepwell.backends.executorch.kernels import kernel_tables

        found = kernel_tables.schema_of_kernel(schema)
        kernel_tables.register_kernel(op, found, library)
        self._note("kernels", op, kernel_tables._CHOSEN)

    def delegate(self, backend: str, reader: Callable[[], DelegateReader]) -> None:
        """Register the function that creates the reader of a backend's delegates in a `.pte`."""
        self._put("delegates", self.delegates, backend, reader)

    def quantizer(self, name: str, quantize: Quantizer) -> None:
        """Register a quantizer, for `--quantize NAME`: (module, example inputs) → module."""
        self._put("quantizers", self.quantizers, name, quantize)

    def cost(self, op: type[Operation], operations: Callable[[Any], int]) -> None:
        """Register an op's cost, in multiply-adds or elements written; `explain` sorts by it."""
        self._put("costs", work.BY_CLASS, op, operations, op.name)

    def _put(
        self, kind: str, table: dict[Any, Any], key: Any, value: Any, name: str | None = None
    ) -> None:
        if key in table:
            raise StepwellError(f"{kind}: {name or key!r} is registered already")
        table[key] = value
        self._note(kind, name or key, table, key)

    def _note(self, kind: str, name: str, table: dict[Any, Any], key: Any = None) -> None:
        if self.loading:
            if name:
                self.loading[-1].brings.setdefault(kind, []).append(name)
            self.loading[-1].added.append((table, name if key is None else key))


REGISTRY = Registry()
"""The registry of the process: only plug-ins add to it, `unload_plugin` removes from it."""


def unknown(kind: str, name: str, known: Iterable[str]) -> StepwellError:
    """Return the error for an unknown name, with the plug-ins that failed to load."""
    names = list(known)
    help = f"{nearest(name, names)}{kind}s are {', '.join(names) or 'none'}"
    lost = [plugin.name for plugin in REGISTRY.plugins.values() if plugin.failure]
    if lost:
        help += f"; left out, as they fail to load: {', '.join(lost)} (stepwell plugins)"
    return StepwellError(f"there is no {kind} {name!r}", help=help)
