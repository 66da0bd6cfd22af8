"""DeiT-Tiny's delegates, counted: the published result, with attention recognized, and everything.

The stock flow makes 62 delegates with 207 ops outside. The upstream change (executorch #20515)
reports 50; recognizing attention as well reached 38 in a prototype.
"""

from typing import Any

import pytest
import torch
from torch.export import ExportedProgram, export

import stepwell
from deit import deit_tiny
from stepwell.ir.rewriting.pipeline import Pipeline
from stepwell.translate.decompositions import attention
from stepwell.translate.lowerings.lowering import step
from stepwell.translate.rewrites.attention.recognize_attention import recognize_attention

PUBLISHED = stepwell.PIPELINES["xnnpack-published"]
ATTENTION = Pipeline(
    "published-with-attention",
    (step(recognize_attention), step(attention.expand_attention), *PUBLISHED.steps),
)


@pytest.fixture(scope="module")
def exported() -> tuple[ExportedProgram, torch.Tensor, Any]:
    module, (image,) = deit_tiny()
    return export(module.eval(), (image,)), image, module(image)


@pytest.mark.parametrize(
    ("pipeline", "delegates"),
    [(PUBLISHED, 50), (ATTENTION, 38), (None, 1)],
    ids=["published", "attention", "everything"],
)
def test_deit_tiny_needs_no_more_delegates_than(
    exported: tuple[ExportedProgram, torch.Tensor, Any], pipeline: Pipeline | None, delegates: int
) -> None:
    program, image, expected = exported
    lowered = stepwell.lower(program, "xnnpack", pipeline)
    assert lowered.report.stages <= delegates
    assert not lowered.report.outside["aten.mul.Scalar"]
    (output,) = lowered.run(image)
    torch.testing.assert_close(output, expected, rtol=1e-4, atol=1e-4)
