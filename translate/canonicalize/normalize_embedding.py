"""Remove the arguments of embeddings that only training reads.

rule normalize-embedding
    Padding index, frequency scaling and sparsity act on gradients alone.
Before:
    %y = aten.embedding.default(%w, %i, $?p, $?g, $?s) : (tensor<$V x $D x f32>, tensor<$*S x $I>) -> …
After:
    %y = aten.embedding.default(%w, %i)
where states_options(%y) for termination
for $V = 9, $I = i64, $p = 0, $g = true, $s = false
"""

from __future__ import annotations

from xdsl.ir import Operation, SSAValue

from stepwell.translate.rules import read_rules


def states_options(rows: SSAValue) -> bool:
    """Whether the embedding has more than its two operands."""
    assert isinstance(rows.owner, Operation)
    return bool({"padding_idx", "scale_grad_by_freq", "sparse"} & set(rows.owner.properties))


RULES = read_rules(__doc__, globals())
