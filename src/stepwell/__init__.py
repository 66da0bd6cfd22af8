"""stepwell: a multi-level IR for ExecuTorch.

A PyTorch program is lowered through readable, verified levels of IR to the format of a device. A
program at any level can also be raised to a PyTorch program again.

    program = stepwell.from_exported_program(torch.export.export(model, inputs))
    print(program)                                   # MLIR text
    lowered = stepwell.lower(program, "xnnpack")
    print(lowered.report)
    open("model.pte", "wb").write(lowered.to_pte())
"""

import importlib
from types import FunctionType
from typing import TYPE_CHECKING, Any

from stepwell.ir.extensions import provide
from stepwell.ir.renderers import register_renderer

_HOME = {
    "Bound": "ir.rewriting.rewrite",
    "History": "ir.rewriting.rewrite",
    "Lowered": "lowering",
    "PIPELINES": "lowering",
    "Pass": "ir.rewriting.rewrite",
    "Pipeline": "lowering",
    "Program": "program",
    "Refusal": "ir.rewriting.rewrite",
    "Report": "report.report",
    "Rewrite": "ir.rewriting.rewrite",
    "Rewriter": "ir.rewriting.rewrite",
    "Session": "program",
    "StepwellError": "program",
    "StepwellPartitioner": "integrations.executorch.partitioner",
    "GreedyRewrites": "ir.rewriting.rewrite",
    "VerificationError": "program",
    "accuracy": "quantization.sensitivity.measure",
    "budget": "cost_model.budgets",
    "check": "validation.check",
    "emit": "lowering",
    "explain": "inspection.reports.explaining",
    "from_exported_program": "program",
    "Level": "ir.levels",
    "Option": "ir.options",
    "Plugin": "plugins.registry",
    "Registry": "plugins.registry",
    "Target": "targets.target",
    "infers": "ir.declared.inference",
    "interprets": "ir.declared.interpretation",
    "join_ptds": "loaders.artifacts",
    "load": "loaders.load",
    "load_plugin": "plugins.plugins",
    "set_level": "ir.levels",
    "unload_plugin": "plugins.plugins",
    "xdsl_interpreter": "integrations.xdsl.interpreter",
    "lower": "lowering",
    "dynamic_shapes": "loaders.dynamic_shapes",
    "parse": "program",
    "quantize": "quantization.quantizers",
    "read_pte": "loaders.artifacts",
    "read_tosa": "loaders.artifacts",
    "read_vgf": "loaders.artifacts",
    "register_op": "plugins.register_op",
    "run_pte": "loaders.artifacts",
    "mx_accuracy": "translate.mxfp.accuracy",
    "to_mxfp": "translate.mxfp",
    "sweep": "model_zoo.sweep",
    "torch_alone": "ir.compat.torch.torch_globals",
    "transform_pass": "integrations.executorch.transform_pass",
    "tune": "cost_model.tuning",
    "validate": "validation.artifacts",
}
"""Public names and their modules, imported on first use so that `import stepwell` is fast."""

register_renderer("stepwell.translate.exporter.to_torch", "torch", "Program")
register_renderer("stepwell.translate.raising.raising", "aten", "Program")
register_renderer("stepwell.translate.upstream.importer", "brought-in", "Program")
register_renderer("stepwell.translate.upstream.exporter", "torch-mlir", "Program")
register_renderer("stepwell.translate.upstream.linalg_exporter.exporter", "linalg", "Program")
register_renderer("stepwell.validation.page", "html", "CheckResult")
register_renderer("stepwell.validation.page", "page", "CheckResult")
register_renderer("stepwell.quantization.sensitivity.page", "html", "Accuracy")
register_renderer("stepwell.quantization.sensitivity.page", "page", "Accuracy")
register_renderer("stepwell.model_zoo.regression.table", "text", "Replay")
register_renderer("stepwell.model_zoo.sweep.renderers", "text", "Sweep")
register_renderer("stepwell.model_zoo.sweep.renderers", "html", "Sweep")
register_renderer(
    "stepwell.inspection.viewer.tables",
    "html",
    *"Program Pipeline Pipelines Report Lowered Explanation Profile MxAccuracy".split(),
)

provide("check-steps", "stepwell.validation.check:check_steps")
provide("record-applications", "stepwell.validation.certificates.recorder:StatementRecorder")
provide("certificate", "stepwell.validation.certificates.certificate:certificate")
provide("reproduce-failure", "stepwell.validation.reducer.reproducer:explained")
provide("deployment", "stepwell.inspection.reports.deployment:deployment_of")
provide("profile", "stepwell.inspection.reports.profiling:profile")
provide("bundled-program", "stepwell.integrations.executorch.bundled_program:to_bpte")
provide("saturate-by-rules", "stepwell.integrations.xdsl.pdl_patterns:SaturateByRules")
provide("program-manager", "stepwell.integrations.executorch.program_manager:ExecutorchProgram")

__all__ = sorted(_HOME)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return importlib.import_module("importlib.metadata").version("stepwell")
    if name not in _HOME:
        raise AttributeError(f"module 'stepwell' has no attribute {name!r}")
    from stepwell.ir.calls.arguments import validate_arguments
    from stepwell.ir.platform.process_settings import without_collection

    with without_collection(lives_on=True):
        value = getattr(importlib.import_module(f"stepwell.{_HOME[name]}"), name)
    if isinstance(value, FunctionType):
        value = validate_arguments(value)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return ["__version__", *__all__]


if TYPE_CHECKING:
    __version__: str
    from stepwell.cost_model.budgets import budget as budget
    from stepwell.cost_model.tuning import tune as tune
    from stepwell.inspection.reports.explaining import explain as explain
    from stepwell.integrations.executorch.partitioner import (
        StepwellPartitioner as StepwellPartitioner,
    )
    from stepwell.integrations.executorch.transform_pass import transform_pass as transform_pass
    from stepwell.integrations.xdsl.interpreter import xdsl_interpreter as xdsl_interpreter
    from stepwell.ir.compat.torch.torch_globals import torch_alone as torch_alone
    from stepwell.ir.declared.inference import infers as infers
    from stepwell.ir.declared.interpretation import interprets as interprets
    from stepwell.ir.levels import Level as Level
    from stepwell.ir.levels import set_level as set_level
    from stepwell.ir.options import Option as Option
    from stepwell.ir.rewriting.rewrite import Bound as Bound
    from stepwell.ir.rewriting.rewrite import GreedyRewrites as GreedyRewrites
    from stepwell.ir.rewriting.rewrite import History as History
    from stepwell.ir.rewriting.rewrite import Pass as Pass
    from stepwell.ir.rewriting.rewrite import Refusal as Refusal
    from stepwell.ir.rewriting.rewrite import Rewrite as Rewrite
    from stepwell.ir.rewriting.rewrite import Rewriter as Rewriter
    from stepwell.loaders.artifacts import join_ptds as join_ptds
    from stepwell.loaders.artifacts import read_pte as read_pte
    from stepwell.loaders.artifacts import read_tosa as read_tosa
    from stepwell.loaders.artifacts import read_vgf as read_vgf
    from stepwell.loaders.artifacts import run_pte as run_pte
    from stepwell.loaders.dynamic_shapes import dynamic_shapes as dynamic_shapes
    from stepwell.loaders.load import load as load
    from stepwell.lowering import PIPELINES as PIPELINES
    from stepwell.lowering import Lowered as Lowered
    from stepwell.lowering import Pipeline as Pipeline
    from stepwell.lowering import emit as emit
    from stepwell.lowering import lower as lower
    from stepwell.model_zoo.sweep import sweep as sweep
    from stepwell.plugins.plugins import load_plugin as load_plugin
    from stepwell.plugins.plugins import unload_plugin as unload_plugin
    from stepwell.plugins.register_op import register_op as register_op
    from stepwell.plugins.registry import Plugin as Plugin
    from stepwell.plugins.registry import Registry as Registry
    from stepwell.program import Program as Program
    from stepwell.program import Session as Session
    from stepwell.program import StepwellError as StepwellError
    from stepwell.program import VerificationError as VerificationError
    from stepwell.program import from_exported_program as from_exported_program
    from stepwell.program import parse as parse
    from stepwell.quantization.quantizers import quantize as quantize
    from stepwell.quantization.sensitivity.measure import accuracy as accuracy
    from stepwell.report.report import Report as Report
    from stepwell.targets.target import Target as Target
    from stepwell.translate.mxfp import to_mxfp as to_mxfp
    from stepwell.translate.mxfp.accuracy import mx_accuracy as mx_accuracy
    from stepwell.validation.check import check as check
