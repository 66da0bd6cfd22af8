"""What a rewrite promises, tried by machine: variants of its documented example.

The example in a rewrite's docstring is one program on which it fires. `draft` makes it editable,
`edits` says how it may be varied (types, shapes, arguments, readers, constants), `trial` applies
the rewrite to a variant: it must refuse in words, not match, or compute what it replaced.
"""

from stepwell.validation.contracts.draft import Draft, Dropped, draft_of
from stepwell.validation.contracts.edits import Edit, edits_of
from stepwell.validation.contracts.trial import Outcome, Verdict, try_variant
from stepwell.validation.contracts.variants import Variant, variants_of

__all__ = [
    "Draft",
    "Dropped",
    "Edit",
    "Outcome",
    "Variant",
    "Verdict",
    "draft_of",
    "edits_of",
    "try_variant",
    "variants_of",
]
