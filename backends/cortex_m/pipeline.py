"""The order of steps from a PT2E program to CMSIS-NN, for a CPU."""

from __future__ import annotations

from stepwell.dialects.cmsis.target import Target
from stepwell.ir.cleanup import RemoveDeadCode, ShareCommonSubexpressions
from stepwell.ir.pipeline import Pipeline
from stepwell.ir.rewriting import Together
from stepwell.translate.rewrites.cmsis import (
    TO_CMSIS,
    BiasForm,
    CancelTranspose,
    FoldKernelSum,
    LowerBoundary,
    LowerPermute,
    SinkTranspose,
    StateTarget,
)
from stepwell.translate.rewrites.quant import TYPE_QUANTIZATION


def cortex_m_pipeline(target: Target, bias_form: BiasForm | None = None) -> Pipeline:
    """Every step for a target; `bias_form` other than its own is for programs of several cores."""
    return Pipeline(
        str(target),
        (
            TYPE_QUANTIZATION,
            ShareCommonSubexpressions(),
            Together("lower-to-cmsis", TO_CMSIS),
            LowerBoundary(),
            Together("place-layouts", (LowerPermute(), CancelTranspose(), SinkTranspose())),
            ShareCommonSubexpressions(),
            FoldKernelSum(bias_form or BiasForm.of(target)),
            StateTarget(target),
            RemoveDeadCode(),
        ),
    )
