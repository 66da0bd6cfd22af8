"""The order of steps from a PT2E program to CMSIS-NN, for a CPU."""

from __future__ import annotations

from stepwell.backends.executorch.decompose import DecomposeForKernels
from stepwell.dialects.cmsis.target import Target
from stepwell.ir.cleanup import RemoveDeadCode, ShareCommonSubexpressions
from stepwell.ir.pipeline import Pipeline
from stepwell.ir.rewriting import Together
from stepwell.translate.rewrites.cmsis import (
    TO_CMSIS,
    BiasForm,
    CancelTranspose,
    CollapseReshape,
    FoldKernelSum,
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


def cortex_m_pipeline(target: Target, bias_form: BiasForm | None = None) -> Pipeline:
    """Every step for a target; `bias_form` other than its own is for programs of several cores."""
    return Pipeline(
        str(target),
        (
            TYPE_QUANTIZATION,
            ShareCommonSubexpressions(),
            Together("lower-to-cmsis", TO_CMSIS),
            LowerBoundary(),
            DecomposeForKernels(),
            PLACE_LAYOUTS,
            ShareCommonSubexpressions(),
            FoldKernelSum(bias_form or BiasForm.of(target)),
            StateTarget(target),
            RemoveDeadCode(),
        ),
    )
