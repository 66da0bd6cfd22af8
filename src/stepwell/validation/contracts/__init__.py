"""Test rewrites on variants of their documented examples.

The example in a rewrite's docstring is one program to which it applies. `draft` makes it editable,
`variants` varies it (types, shapes, arguments, users, constants), and `trial` applies the rewrite
to a variant: it must refuse with a reason, not match, or compute the same values, also where new
nodes treat special values as XNNPACK does on each family of CPUs.
"""

from stepwell.validation.contracts.draft import Draft, Dropped, draft_of
from stepwell.validation.contracts.trial import Outcome, Verdict, try_variant
from stepwell.validation.contracts.variants import Edit, Variant, edits_of, variants_of

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
