"""Embeddings: beyond their examples, and what stays."""

from rewrite_cases import cases

from stepwell.translate.canonicalize.normalize_embedding import RULES

test_normalize_embedding = cases(
    RULES,
    """
an embedding of two operands -> unchanged
    %y = aten.embedding.default(%w: f32[3, 4], %i: i64[2])
""",
)
