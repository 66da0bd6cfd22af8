"""Find rewrites and passes by name, and wrap each as an xDSL `ModulePass` for `stepwell opt`.

A pass's options are the fields of its dataclass: `lift-constant-scalar{protect_attention=false}`.
A whole pipeline is a pass too (`lower-to-xnnpack`, `lower-to-tosa-1-0-fp`), and so is each of its
groups (`xnnpack-absorb`).
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any, ClassVar, Self, cast, get_type_hints
from weakref import WeakKeyDictionary

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.passes import ModulePass
from xdsl.transforms import get_all_passes
from xdsl.utils.arg_spec import ArgSpec
from xdsl.utils.exceptions import ArgSpecParseError

import stepwell.translate
from stepwell.ir.context import Context as LoweringContext
from stepwell.ir.core import StateOp, UpdateOp, WeightOp
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.dtypes import has_torch_dtype
from stepwell.ir.options import nearest
from stepwell.ir.program import Program
from stepwell.ir.rewriting import cleanup, legalization
from stepwell.ir.rewriting.pipeline import Pipeline
from stepwell.ir.rewriting.rewrite import GreedyRewrites, History, NamedPass, Pass, Rewrite, Step
from stepwell.ir.rewriting.xdsl_passes import as_step
from stepwell.ir.types import AnyTensor, element
from stepwell.ir.weights import WeightStore
from stepwell.plugins.plugins import registry
from stepwell.plugins.registry import REGISTRY
from stepwell.targets.table import PIPELINES
from stepwell.translate.passes import PACKAGES, folder_of, pass_modules

StepMaker = Callable[..., Step]
PassMaker = Callable[[], type[ModulePass]]

WRAPPERS = (GreedyRewrites, NamedPass)
"""Passes that contain other passes and have no name of their own."""


@dataclass
class _Held:
    """The state of a module that was parsed from text: weights, pass context and history."""

    weights: WeightStore = field(default_factory=WeightStore)
    context: LoweringContext = field(default_factory=LoweringContext)
    history: History = field(default_factory=History)


_held: WeakKeyDictionary[ModuleOp, _Held] = WeakKeyDictionary()


@cache
def step_classes() -> dict[str, type[Step]]:
    """Return every rewrite and pass by its kebab-case name.

    If two dialects have a pass of the same name, each is named `<dialect>-<name>`.
    """
    named: dict[str, dict[type[Step], None]] = {}
    for module in _modules():
        for value in (*vars(module).values(), *getattr(module, "RULES", ())):
            if not inspect.isclass(value) or not issubclass(value, Rewrite | Pass):
                continue
            step = cast(type[Step], value)
            is_named = isinstance(
                vars(step).get("name"), str
            )  # A wrapper has the name of its inner pass.
            if is_named and step not in WRAPPERS and not inspect.isabstract(step):
                named.setdefault(step.name, {})[step] = None
    found: dict[str, type[Step]] = {}
    for name, steps in named.items():
        for step in steps:
            full = name if len(steps) == 1 else f"{_owner(step)}-{name}"
            if full in found:
                raise StepwellError(f"two passes have the name {full!r}: {found[full]} and {step}")
            found[full] = step
    return dict(sorted(found.items()))


def _owner(step: type[Step]) -> str:
    """Return the prefix of an ambiguous pass name: its target, or `aten` if all targets use the
    pass.
    """
    folder = folder_of(step.__module__)
    return folder if folder in ("cmsis", "ethosu", "quant", "tosa", "xnnpack") else "aten"


def _modules() -> Iterator[Any]:
    yield cleanup
    yield legalization
    yield importlib.import_module("stepwell.backends.executorch.decompose")
    yield from pass_modules()


def weights_of(module: ModuleOp) -> WeightStore:
    """Return the weight store of a module that was parsed without weights: types without elements.

    A rewrite that depends on an element's value does not match and records the reason; a pass that
    must read an element fails.

    Consecutive passes on a module share its store, so derived keys keep their meaning.
    `use_weights` replaces it by a store with elements.
    """
    store = _held.setdefault(module, _Held()).weights
    for op in module.walk():
        if isinstance(op, WeightOp | StateOp | UpdateOp) and op.key.data not in store:
            stated = op.value.type if isinstance(op, UpdateOp) else op.result.type
            if not has_torch_dtype(element(stated)):
                raise StepwellError(
                    f"weight {op.key.data!r}: torch has no type for its elements, {stated}",
                    help="keep the .safetensors file next to the .mlir",
                )
            store.add_unknown(op.key.data, cast(AnyTensor, stated))
    return store


def given_to(
    module: ModuleOp, weights: WeightStore, context: LoweringContext | None = None
) -> None:
    """Let passes over a module use these weights and this pass context."""
    _held[module] = _Held(weights, context or LoweringContext())


def history_of(module: ModuleOp) -> History:
    """Return the history of a module: the applied rewrites, and the refusals."""
    return _held.setdefault(module, _Held()).history


def statistics_of(module: ModuleOp) -> Mapping[str, Mapping[str, int]]:
    """Return the statistics of the passes over a module, by pass."""
    return _held.setdefault(module, _Held()).context.statistics


def apply_to_module(pipeline: Pipeline, module: ModuleOp) -> None:
    """Run passes on a module that was parsed from text."""
    weights = weights_of(module)
    held = _held[module]
    pipeline.run(Program(module, weights, context=held.context), history=held.history)


def made_of(cls: type[ModulePass], spec: ArgSpec) -> ModulePass:
    """Return the pass with the options of a textual spec.

    Raises:
        StepwellError: the pass has no such option, or the option does not take this value.
    """
    try:
        return cls.from_pass_spec(spec)
    except (ValueError, TypeError, ArgSpecParseError) as error:
        known = [f.name for f in dataclasses.fields(cls)]
        near = "".join(nearest(n, known) for n in spec.parameters if n not in known)
        raise StepwellError(
            f"{spec.name}: {str(error).splitlines()[0]}",
            help=near + (f"its options are {', '.join(known)}" if known else "it has no options"),
        ) from None


@dataclass(frozen=True)
class StepPass(ModulePass):
    """A stepwell pass as an xDSL pass."""

    name = "stepwell-step"
    make: ClassVar[StepMaker]

    @classmethod
    def of_spec(cls, spec: ArgSpec) -> Self:
        """Return the pass with the options of a textual spec.

        Raises:
            StepwellError: the pass has no such option, or the option does not take this value.
        """
        return cast(Self, made_of(cls, spec))

    @property
    def step(self) -> Step:
        """Return the stepwell pass with its options."""
        return type(self).make(**{f.name: getattr(self, f.name) for f in dataclasses.fields(self)})

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Apply the pass to a module."""
        apply_to_module(Pipeline("opt", (self.step,)), op)


@dataclass(frozen=True)
class PipelinePass(ModulePass):
    """A stepwell pipeline as an xDSL pass."""

    name = "stepwell-pipeline"
    pipeline: ClassVar[Pipeline]

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Run the pipeline on a module.

        Raises:
            StepwellError: a function is only declared, or has several blocks.
        """
        for func in (each for each in op.ops if isinstance(each, FuncOp)):
            if len(func.body.blocks) != 1:
                name, count = func.sym_name.data, len(func.body.blocks) or "no"
                fact = f"{self.name} takes functions of one block; @{name} has {count}"
                raise StepwellError(fact, help="passes over single ops take such functions too")
        apply_to_module(self.pipeline, op)


def as_module_pass(step: type[Step | ModulePass] | Step, name: str) -> type[ModulePass]:
    """Return an xDSL pass class for a pass class, whose fields become options, or for a pass; it
    runs with the weights and the context of a module.
    """
    if isinstance(step, type):
        cls = step
        hints = get_type_hints(cls)
        fields = [
            (f.name, hints[f.name], field(default=f.default, default_factory=f.default_factory))
            for f in dataclasses.fields(cast(Any, cls))
        ]
        make: StepMaker = partial(_made, cls)
    else:
        fields = []
        held = step
        make = lambda: held  # noqa: E731
    namespace = {"name": name, "make": staticmethod(make), "__doc__": step.__doc__}
    spelled = "".join(word.title() for word in name.split("-")) + "Pass"
    return dataclasses.make_dataclass(
        spelled, fields, bases=(StepPass,), namespace=namespace, frozen=True
    )


def _made(cls: type[Step | ModulePass], **options: Any) -> Step:
    return as_step(cls(**options))


def _pipeline_pass(name: str, pipeline: Pipeline) -> type[ModulePass]:
    namespace = {"name": name, "pipeline": pipeline, "__doc__": f"The steps of {pipeline.name!r}."}
    spelled = "".join(word.title() for word in name.split("-")) + "Pass"
    return dataclasses.make_dataclass(
        spelled, [], bases=(PipelinePass,), namespace=namespace, frozen=True
    )


class Passes(dict[str, PassMaker]):
    """A mapping from pass names to factories; stepwell's own passes are imported on first use.

    Importing every rewrite and pipeline takes seconds, and a textual pipeline may need none of
    them. Most passes are in a file that contains their name.
    """

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or (isinstance(name, str) and self._find(name))

    def __missing__(self, name: str) -> PassMaker:
        if not self._find(name):
            raise KeyError(name)
        return self[name]

    def _find(self, name: str) -> bool:
        if super().__contains__(name):
            return True
        found = find_pass(name)
        if found is not None:
            self[name] = lambda: found
        return found is not None


def find_pass(name: str) -> type[ModulePass] | None:
    """Return the pass with a name: of a plug-in, of stepwell, a group, a pipeline, or of xDSL."""
    if name in REGISTRY.steps:
        return as_module_pass(REGISTRY.steps[name], name)
    step = _step_of_one_file(name)
    if step is not None:
        return as_module_pass(step, name)
    if name in registry().steps:
        return as_module_pass(REGISTRY.steps[name], name)
    if (made := all_passes().get(name)) is not None:
        return made()
    others = get_all_passes()
    return as_module_pass(others[name](), name) if name in others else None


def name_of(cls: type[Step]) -> str | None:
    """Return the name under which `find_pass` finds a pass class; None if it does not."""
    for name in (cls.name, f"{cls.__module__.split('.')[-2:][0]}-{cls.name}"):
        if REGISTRY.steps.get(name, step_classes().get(name)) is cls:
            return name
    return None


def _step_of_one_file(name: str) -> type[Step] | None:
    """Return the pass with a name if exactly one file contains the name."""
    word = re.escape(name)
    whole = name.replace("-", "_")
    function = re.sub(r"^lower_|_to_[a-z]+$", "", whole)
    pattern = re.compile(
        rf'( = "{word}"$)|(^rule {word}$)|^def ({re.escape(function)}|{re.escape(whole)})_?\(', re.M
    )
    root = Path(stepwell.translate.__path__[0])
    found = [
        file
        for package in PACKAGES
        for file in (root / package).rglob("*.py")
        if pattern.search(file.read_text(encoding="utf-8"))
    ]
    if len(found) != 1:
        return None
    place = ".".join(found[0].relative_to(root).with_suffix("").parts)
    module = importlib.import_module(f"stepwell.translate.{place}")
    for value in (*vars(module).values(), *getattr(module, "RULES", ())):
        is_step = inspect.isclass(value) and issubclass(value, Rewrite | Pass)
        if is_step and vars(value).get("name") == name:
            return cast(type[Step], value)
    return None


def all_passes() -> dict[str, PassMaker]:
    """Return pass name → factory: every pass, every group of a pipeline, every pipeline."""
    pass_makers: dict[str, PassMaker] = {}
    for name, cls in {**step_classes(), **registry().steps}.items():
        pass_makers.setdefault(name, lambda c=cls, n=name: as_module_pass(c, n))
    for name, pipeline in PIPELINES.items():
        target = re.sub(r"[^a-z0-9]+", "-", name)
        pass_makers[f"lower-to-{target}"] = lambda t=target, p=pipeline: _pipeline_pass(
            f"lower-to-{t}", p
        )
        for step in pipeline.steps:
            if isinstance(step, GreedyRewrites):
                group = f"{target}-{step.label}"
                pass_makers[group] = lambda s=step, n=group: as_module_pass(s, n)
    return pass_makers
