"""What statements there are: forms by family, written as tables or as functions."""

import importlib
import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .drawing import Draw

KINDS = (
    "views pointwise whole indexing layers products reductions mutation control losses state writes"
).split()


class UnsuitableError(Exception):
    """No value so far fits what a form wants."""


Form = Callable[["Draw"], str]
FORMS: dict[str, list[Form]] = {}
"""By family; a family is drawn first, so that large ones do not crowd out small ones."""


def form(family: str) -> Callable[[Form], Form]:
    """Enter a form, which writes an expression, or lines that give `out` a value."""

    def enter(written: Form) -> Form:
        FORMS.setdefault(family, []).append(written)
        return written

    return enter


def table(entries: str) -> list[str]:
    """The templates of a table: two spaces or the end of a line separate them."""
    return re.split(r"\s{2,}", entries.strip())


def operators(names: dict[str, Any], text: str) -> None:
    """Enter a table of operators: for each form its family, its argument drawers, and templates.

        family: x = d.ranked(); y = d.partner(x)
        : z = d.axis(x)
            torch.maximum({x}, {y})  {x}.cumsum({z})

    A line of drawers that begins with `+` continues the one before it.

    Args:
        names: what drawers call.
        text: the table.
    """
    for block in re.split(r"\n(?=\w)", text.strip()):
        head, _, entries = block.partition("\n    ")
        family, _, drawers = head.replace("\n: ", "; ").replace("\n+ ", " ").partition(":")
        drawers = drawers.strip()
        code, templates = compile(drawers, family, "exec"), table(entries)

        def written(d: "Draw", code: Any = code, templates: Sequence[str] = templates) -> str:
            space = {**names, "d": d}
            exec(code, space)
            return d.pick(*templates, **space)

        form(family)(written)


@cache
def enter_all() -> None:
    """Import every module of forms, in a fixed order."""
    for kind in KINDS:
        importlib.import_module(f"{__package__}.{kind}")
