"""The order of steps from a PT2E program to CMSIS-NN, for a CPU."""

from __future__ import annotations

from stepwell.backends.executorch.decompose import DecomposeForKernels
from stepwell.dialects.cmsis.target import Target
from stepwell.dialects.cmsis.target import target as find_target
from stepwell.ir.cleanup import RemoveDeadCode, ShareCommonSubexpressions
from stepwell.ir.pipeline import Pipeline
from stepwell.ir.rewriting import Together
from stepwell.translate.rewrites.aten.fold_constants import FoldConstants
from stepwell.translate.rewrites.cmsis import (
    TO_CMSIS,
    AbsorbFlatten,
    BiasForm,
    CancelTranspose,
    CollapseReshape,
    ExplainFloats,
    FoldKernelSum,
    IntegerPorts,
    Io,
    LowerBoundary,
    LowerPermute,
    RelabelInput,
    RelabelOutput,
    SinkTranspose,
    StateTarget,
)
from stepwell.translate.rewrites.quant import TYPE_QUANTIZATION
from stepwell.translate.rewrites.quant.cancel_casts import CancelCasts

PLACE_LAYOUTS = Together(
    "place-layouts",
    (
        CancelCasts(),
        LowerPermute(),
        CancelTranspose(),
        SinkTranspose(),
        RelabelInput(),
        RelabelOutput(),
        CollapseReshape(),
    ),
)
"""Layout changes sink and meet; what is left of them is copied, the rest is views."""


def cortex_m_pipeline(
    cpu: Target | str, bias_form: str | None = None, io: Io | None = None
) -> Pipeline:
    """Every step for a CPU.

    Args:
        cpu: `cortex-m55`, `cortex-m4`, …, or `cortex-m55+dsp`.
        bias_form: `bias`, `kernel-sum`, `both` or `run-time`; the CPU's own if None.
        io: the element type of float inputs and outputs, `int8` or `int16`, of all or by name.
    """
    target = cpu if isinstance(cpu, Target) else find_target(cpu)
    form = BiasForm.of(target) if bias_form is None else BiasForm(bias_form)
    return Pipeline(
        str(target),
        (
            TYPE_QUANTIZATION,
            *(() if io is None else (IntegerPorts(io),)),
            ShareCommonSubexpressions(),
            Together("lower-to-cmsis", TO_CMSIS),
            ExplainFloats(),
            LowerBoundary(),
            DecomposeForKernels(),
            FoldConstants(),
            PLACE_LAYOUTS,
            AbsorbFlatten(),
            ShareCommonSubexpressions(),
            FoldKernelSum(form),
            StateTarget(target),
            RemoveDeadCode(),
        ),
    )
