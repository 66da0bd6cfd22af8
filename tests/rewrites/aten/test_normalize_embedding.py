"""Embeddings: beyond their examples, and what stays."""

from typing import Any

from stepwell.translate.canonicalize.normalize_embedding import RULES

ALL = {rule.name: rule() for rule in RULES}


def test_an_embedding_of_two_operands_stays(refused: Any, method: Any):
    refused(
        method(
            "%i: tensor<2xi64>, %w: tensor<3x4xf32>",
            "%y = aten.embedding.default(%w, %i) : (tensor<3x4xf32>, tensor<2xi64>) -> tensor<2x4xf32>",
            gives="tensor<2x4xf32>",
        ),
        ALL["normalize-embedding"],
    )
