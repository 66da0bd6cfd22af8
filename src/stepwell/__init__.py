"""stepwell: a multi-level IR for ExecuTorch.

A PyTorch program walks down through readable, verified levels of IR to what a device runs,
and each of those can be read back up.

    program = stepwell.from_exported_program(torch.export.export(model, inputs))
    print(program)                                   # MLIR text
    lowered = stepwell.lower(program, "xnnpack")
    print(lowered.report)
    open("model.pte", "wb").write(lowered.to_pte())
"""

from __future__ import annotations

import importlib
from types import FunctionType
from typing import TYPE_CHECKING, Any

from stepwell.ir.above import form_stands_in

_HOME = {
    "Bound": "ir.rewriting.rewrite",
    "History": "ir.rewriting.rewrite",
    "Lowered": "lowering",
    "PIPELINES": "lowering",
    "Pass": "ir.rewriting.rewrite",
    "Pipeline": "lowering",
    "Program": "program",
    "Refusal": "ir.rewriting.rewrite",
    "Report": "reporting.report",
    "Rewrite": "ir.rewriting.rewrite",
    "Rewriter": "ir.rewriting.rewrite",
    "Session": "program",
    "StepwellError": "program",
    "StepwellPartitioner": "partitioner",
    "Together": "ir.rewriting.rewrite",
    "VerificationError": "program",
    "accuracy": "attributing",
    "budget": "weighing.budgeting",
    "check": "checking",
    "emit": "lowering",
    "explain": "reporting.explaining",
    "from_exported_program": "program",
    "Level": "ir.levels",
    "Option": "ir.options",
    "Plugin": "plugging.registry",
    "Registry": "plugging.registry",
    "Target": "target",
    "infers": "ir.declared.inference",
    "interprets": "ir.declared.interpretation",
    "join_ptds": "reading.artifacts",
    "load": "reading.loading",
    "load_plugin": "plugins",
    "set_level": "ir.levels",
    "unload_plugin": "plugins",
    "xdsl_interpreter": "xdsl_interpreter",
    "lower": "lowering",
    "open_sizes": "opening",
    "parse": "program",
    "quantize": "quantizing",
    "read_pte": "reading.artifacts",
    "read_tosa": "reading.artifacts",
    "read_vgf": "reading.artifacts",
    "register_op": "plugging.registering",
    "run_pte": "reading.artifacts",
    "mx_accuracy": "translate.mxfp.accuracy",
    "to_mxfp": "translate.mxfp",
    "sweep": "sweeping",
    "torch_alone": "ir.outside.torch_globals",
    "transform_pass": "transform_pass",
    "tune": "weighing.tuning",
}
"""Public names and the module of each, imported on first use: `import stepwell` stays cheap."""

form_stands_in("stepwell.translate.to_torch", "torch", "Program")
form_stands_in("stepwell.translate.raising", "aten", "Program")
form_stands_in("stepwell.translate.upstream.coming_in", "brought-in", "Program")
form_stands_in("stepwell.translate.upstream.going_out", "torch-mlir", "Program")
form_stands_in("stepwell.translate.upstream.linalg_out.going_out", "linalg", "Program")
form_stands_in("stepwell.checking.page", "html", "CheckResult")
form_stands_in("stepwell.checking.page", "page", "CheckResult")
form_stands_in("stepwell.attributing.page", "html", "Accuracy")
form_stands_in("stepwell.replaying.table", "text", "Replay")
form_stands_in("stepwell.sweeping.drawing", "text", "Sweep")
form_stands_in("stepwell.sweeping.drawing", "html", "Sweep")
form_stands_in(
    "stepwell.showing.tables",
    "html",
    *"Program Pipeline Pipelines Report Lowered Explanation Profile MxAccuracy".split(),
)

__all__ = sorted(_HOME)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return importlib.import_module("importlib.metadata").version("stepwell")
    if name not in _HOME:
        raise AttributeError(f"module 'stepwell' has no attribute {name!r}")
    # With xDSL: half of what help takes.
    from stepwell.ir.calls.arguments import takes_what_it_says
    from stepwell.ir.outside.switches import without_collection

    with without_collection(lives_on=True):
        value = getattr(importlib.import_module(f"stepwell.{_HOME[name]}"), name)
    if isinstance(value, FunctionType):
        value = takes_what_it_says(value)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return ["__version__", *__all__]


if TYPE_CHECKING:
    __version__: str
    from stepwell.attributing import accuracy as accuracy
    from stepwell.checking import check as check
    from stepwell.ir.declared.inference import infers as infers
    from stepwell.ir.declared.interpretation import interprets as interprets
    from stepwell.ir.levels import Level as Level
    from stepwell.ir.levels import set_level as set_level
    from stepwell.ir.options import Option as Option
    from stepwell.ir.outside.torch_globals import torch_alone as torch_alone
    from stepwell.ir.rewriting.rewrite import Bound as Bound
    from stepwell.ir.rewriting.rewrite import History as History
    from stepwell.ir.rewriting.rewrite import Pass as Pass
    from stepwell.ir.rewriting.rewrite import Refusal as Refusal
    from stepwell.ir.rewriting.rewrite import Rewrite as Rewrite
    from stepwell.ir.rewriting.rewrite import Rewriter as Rewriter
    from stepwell.ir.rewriting.rewrite import Together as Together
    from stepwell.lowering import PIPELINES as PIPELINES
    from stepwell.lowering import Lowered as Lowered
    from stepwell.lowering import Pipeline as Pipeline
    from stepwell.lowering import emit as emit
    from stepwell.lowering import lower as lower
    from stepwell.opening import open_sizes as open_sizes
    from stepwell.partitioner import StepwellPartitioner as StepwellPartitioner
    from stepwell.plugging.registering import register_op as register_op
    from stepwell.plugging.registry import Plugin as Plugin
    from stepwell.plugging.registry import Registry as Registry
    from stepwell.plugins import load_plugin as load_plugin
    from stepwell.plugins import unload_plugin as unload_plugin
    from stepwell.program import Program as Program
    from stepwell.program import Session as Session
    from stepwell.program import StepwellError as StepwellError
    from stepwell.program import VerificationError as VerificationError
    from stepwell.program import from_exported_program as from_exported_program
    from stepwell.program import parse as parse
    from stepwell.quantizing import quantize as quantize
    from stepwell.reading.artifacts import join_ptds as join_ptds
    from stepwell.reading.artifacts import read_pte as read_pte
    from stepwell.reading.artifacts import read_tosa as read_tosa
    from stepwell.reading.artifacts import read_vgf as read_vgf
    from stepwell.reading.artifacts import run_pte as run_pte
    from stepwell.reading.loading import load as load
    from stepwell.reporting.explaining import explain as explain
    from stepwell.reporting.report import Report as Report
    from stepwell.sweeping import sweep as sweep
    from stepwell.target import Target as Target
    from stepwell.transform_pass import transform_pass as transform_pass
    from stepwell.translate.mxfp import to_mxfp as to_mxfp
    from stepwell.translate.mxfp.accuracy import mx_accuracy as mx_accuracy
    from stepwell.weighing.budgeting import budget as budget
    from stepwell.weighing.tuning import tune as tune
    from stepwell.xdsl_interpreter import xdsl_interpreter as xdsl_interpreter
