"""The single edits of an example.

Each edit changes one property of a draft independently of the rewrite. Many edits do not give a
valid program; building the draft detects this.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Operation

from stepwell.validation.contracts.argument_edits import argument_edits, operator_edits
from stepwell.validation.contracts.draft import Draft
from stepwell.validation.contracts.edit import (
    Edit,
)
from stepwell.validation.contracts.reader_edits import blind_edits, constant_edits, reader_edits
from stepwell.validation.contracts.type_edits import (
    dtype_edits,
    layout_edits,
    quantization_edits,
    shape_edits,
    symbol_edits,
)


def edits_of(draft: Draft, anchors: Sequence[type[Operation]] = ()) -> list[Edit]:
    """Return every single edit of a draft, in a fixed order."""
    return [
        *dtype_edits(draft),
        *shape_edits(draft),
        *argument_edits(draft),
        *reader_edits(draft),
        *constant_edits(draft),
        *quantization_edits(draft),
        *layout_edits(draft),
        *operator_edits(draft, anchors),
        *symbol_edits(draft),
        *blind_edits(draft),
    ]
