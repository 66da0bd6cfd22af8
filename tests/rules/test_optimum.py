"""The best of equal programs: a rewrite that a pipeline lacks is told, one that it has is not."""

import pytest
import torch
from eager import exported

import stepwell
from stepwell.cost_model.optimum import WORTH, optimum


@pytest.fixture(scope="module")
def program() -> stepwell.Program:
    return stepwell.from_exported_program(
        exported(lambda x: torch.sigmoid(x * 2.0 * 3.0), torch.randn(4, 8))
    )


def test_a_rewrite_that_the_pipeline_lacks_is_shown_with_the_better_program(
    program: stepwell.Program,
) -> None:
    pipeline = stepwell.PIPELINES["xnnpack"]
    lacking = pipeline.without(*(p for p in pipeline.paths if "merge-scalar-products" in p))
    best = optimum(program, "xnnpack", 8, pipeline=lacking)
    assert best.gain > WORTH and "merge-scalar-products" in best.steps
    assert str(best.program).count("aten.mul") == 1


def test_the_whole_pipeline_leaves_nothing_to_gain_there(program: stepwell.Program) -> None:
    best = optimum(program, "xnnpack", 8)
    assert best.gain == 0 and best.applications > 0
    assert "nothing better" in str(best)
