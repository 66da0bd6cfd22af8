"""Wrap a rewrite as a pass of the stock flow: `to_edge_transform_and_lower(transform_passes=…)`.

The stock flow runs such passes on programs of its edge dialect and verifies the result against it,
so the rewritten program is converted back to the edge dialect's own operators.
"""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any

from stepwell.dialects.aten.registry import find
from stepwell.ir.compat.torch.lazy_imports import OnDemand
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.rewriting.rewrite import (
    History,
    Pass,
    Rewrite,
    Step,
    apply_step,
    parts_of,
    step_name,
)
from stepwell.pipelines.pass_pipeline.named_passes import step_classes
from stepwell.targets.table import PIPELINES
from stepwell.translate.edge import apply_to_edge, is_of_edge
from stepwell.translate.lowerings.lowering import Lowering
from stepwell.translate.lowerings.samples import examples_of

if TYPE_CHECKING:
    from executorch.exir.pass_base import ExportedProgramPassBase
    from torch.export import ExportedProgram

pass_base = OnDemand("executorch.exir.pass_base")


def transform_pass(rewrite: str | Step, **options: object) -> ExportedProgramPassBase:
    """Return a pass of the stock flow that applies one rewrite; its `call` can be used alone as
    well.

        to_edge_transform_and_lower(
            exported,
            transform_passes=[stepwell.transform_pass("lift-constant-scalar")],
            partitioner=[XnnpackPartitioner()],
        )

    Args:
        rewrite: a pass, or the name of one (`lift-constant-scalar`). A name in the xnnpack
            pipelines means the pass with its options there.
        options: fields of the pass's class to override.

    Raises:
        StepwellError: no pass has that name, the pass has no such option, or creates operations
            that edge programs cannot have.
    """
    step: Any = _named(rewrite, options) if isinstance(rewrite, str) else rewrite
    if not isinstance(step, Rewrite | Pass):
        raise StepwellError(
            f"the argument has type {type(step).__name__}, which is not a rewrite",
            help="pass the name of a rewrite, or an instance",
        )

    foreign = _makes_beyond_edge(type(step)) if not parts_of(step) else []
    if foreign:
        raise StepwellError(
            f"{step_name(step)} creates {', '.join(foreign)}, which edge programs cannot contain",
            help=f"StepwellPartitioner() runs all rewrites; alone run {', '.join(edge_safe())}",
        )

    def apply(exported: ExportedProgram) -> ExportedProgram | None:
        return apply_to_edge(exported, lambda program: apply_step(step, program, History()))

    return _pass_class()(step_name(step), apply)


def _pass_class() -> Any:
    """Create the pass class on demand: importing its base takes seconds."""

    class StepwellPass(pass_base.ExportedProgramPassBase):
        """A pass of the stock flow that applies one rewrite to an `ExportedProgram`."""

        def __init__(self, name: str, apply: Any) -> None:
            self.name, self.apply = name, apply

        def call(self, exported_program: ExportedProgram) -> Any:
            """Apply the rewrite; a program that it does not change is returned itself."""
            done = self.apply(exported_program)
            return pass_base.ExportedProgramPassResult(done or exported_program, done is not None)

    return StepwellPass


def edge_safe() -> list[str]:
    """Return the names of rewrites whose results, by their examples, are valid in edge programs."""
    return [name for name, step in step_classes().items() if not _makes_beyond_edge(step)]


_OPERATION = re.compile(r"\b(?:aten|cmsis|ethosu|quant|tosa|tosa_mxfp|xnnpack)\.[\w$]+(?:\.\w+)?")


def _makes_beyond_edge(step: type[Step]) -> list[str]:
    """Return the operations in a rewrite's text that edge programs cannot have.

    A rule's text does not name an operation that it creates through a variable; then the result
    is checked.
    """
    home, _, place = step.__module__.partition(".rewrites.")
    room = place.partition(".")[0]
    if room in ("cmsis", "ethosu", "tosa") or (room == "xnnpack" and not issubclass(step, Rewrite)):
        return [f"operations of {room}"]
    if not issubclass(step, Rewrite) or not home.startswith("stepwell.translate"):
        return []
    if issubclass(step, Lowering) and step.to != "aten":
        return [f"operations of {step.to}"]
    found: dict[str, None] = {}
    for before, after in _examples(step):
        held = _OPERATION.findall(before)
        names = [name for name in _OPERATION.findall(after) if name not in held]
        classes = [(name, find(name)) for name in names if name.startswith("aten.")]
        found |= dict.fromkeys(n for n in (*held, *names) if not n.startswith("aten."))
        found |= dict.fromkeys(n for n, cls in classes if cls is not None and not is_of_edge(cls))
    return list(found)


def _examples(step: type[Rewrite[Any]]) -> list[tuple[str, str]]:
    """Return the pattern and the result of a rewrite, from its text or a lowering's sample."""
    if issubclass(step, Lowering):
        return examples_of(step) if step.sample is not None else []
    rule: Any = getattr(step, "rule", None)
    text = str(rule.text) if rule is not None else sys.modules[step.__module__].__doc__ or ""
    parts = [example.partition("After:") for example in text.split("Before:")[1:]]
    return [(before, after) for before, _, after in parts]


def _named(name: str, options: dict[str, Any]) -> Step:
    if not options:
        for pipeline in (PIPELINES["xnnpack-published"], PIPELINES["xnnpack"]):
            for step in pipeline.steps:
                for held in (step, *parts_of(step)):
                    if step_name(held) == name:
                        return held
    found = step_classes().get(name)
    if found is None:
        raise StepwellError(
            f"rewrite {name!r} is unknown", help="one of " + ", ".join(step_classes())
        )
    try:
        return found(**options)
    except TypeError as error:
        raise StepwellError(f"rewrite {name!r}: {error}") from None
