"""Parse textual pass lists for `stepwell opt`: names with options, and groups of rewrites."""

from __future__ import annotations

from collections.abc import Mapping

from xdsl.passes import ModulePass
from xdsl.utils.arg_spec import parse_spec
from xdsl.utils.exceptions import ArgSpecParseError

from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.options import nearest
from stepwell.ir.rewriting.rewrite import step_name
from stepwell.pipelines.pass_pipeline.named_passes import (
    PassMaker,
    all_passes,
    as_module_pass,
    made_of,
)
from stepwell.pipelines.pass_pipeline.pipeline_text import GROUP, parse_steps, split
from stepwell.plugins.registry import unknown


def parse_passes(text: str, available: Mapping[str, PassMaker]) -> tuple[ModulePass, ...]:
    """Parse a list of passes, with groups of rewrites (`label(a,b)`).

    Raises:
        StepwellError: a pass or one of its options is unknown; the nearest name is suggested.
    """
    module_passes: list[ModulePass] = []
    for item in split(text):
        if GROUP.fullmatch(item):
            module_passes += [as_module_pass(step, step_name(step))() for step in parse_steps(item)]
            continue
        try:
            spec = parse_spec(item)
        except ArgSpecParseError as error:
            raise StepwellError(
                f"{item!r} is not a pass: {str(error).splitlines()[0]}", help=_LIST
            ) from None
        if spec.name not in available:
            known = {**available, **all_passes()}
            error = unknown("pass", spec.name, [])
            lost = (error.problems[0].help or "").partition("; left out")
            help = f"{nearest(spec.name, known)}{_LIST}{lost[1]}{lost[2]}"
            raise StepwellError(f"pass {spec.name!r} is unknown", help=help)
        cls = available[spec.name]()
        module_passes.append(made_of(cls, spec))
    return tuple(module_passes)


_LIST = "stepwell opt --list-passes lists them"
