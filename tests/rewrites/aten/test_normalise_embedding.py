"""NormaliseEmbedding: beyond its documented example, and what it leaves alone."""

from typing import Any

from stepwell.translate.rewrites.aten.normalise_embedding import NormaliseEmbedding


def test_an_embedding_of_two_operands_stays(refused: Any, method: Any):
    refused(
        method(
            "%i: tensor<2xi64>, %w: tensor<3x4xf32>",
            "%y = aten.embedding.default(%w, %i) : (tensor<3x4xf32>, tensor<2xi64>) -> tensor<2x4xf32>",
            gives="tensor<2x4xf32>",
        ),
        NormaliseEmbedding(),
    )
