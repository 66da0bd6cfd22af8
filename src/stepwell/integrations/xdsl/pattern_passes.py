"""What `stepwell opt` needs for passes that apply patterns: xDSL's, and ours for proved rules."""

from xdsl.context import Context
from xdsl.passes import ModulePass
from xdsl.universe import Universe

READING = ("apply-pdl", "apply-eqsat-pdl")
"""How the names of xDSL's passes begin that parse patterns from a file."""


def register_all(context: Context) -> None:
    """Register every dialect for a pass that parses a file; this imports torch."""
    known = {*context.registered_dialect_names}
    for name, make in Universe.get_multiverse().all_dialects.items():
        if name not in known:
            context.register_dialect(name, make)


def saturation() -> type[ModulePass]:
    """Return the pass that saturates a program by proved rules."""
    from stepwell.integrations.xdsl.pdl_patterns import SaturateByRules

    return SaturateByRules
