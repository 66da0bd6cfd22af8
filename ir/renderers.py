"""What stands above a folder and is called from it: drawings of results, and ways out of a program.

A result imports none of its drawings, and `ir/` names nothing above it. The front door says which
module holds them, of which classes; it is imported when a result is first asked for one, and
registers there what it draws.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, TypeVar

Form = Callable[[Any], Any]
_FORMS: dict[tuple[type, str], Form] = {}
_HOMES: dict[tuple[str, str], str] = {}
_F = TypeVar("_F", bound=Form)


def gives(form: str, *classes: type) -> Callable[[_F], _F]:
    """Register what gives a form of results of these classes: `html`, `page`, `text`, `torch`."""

    def register(function: _F) -> _F:
        for cls in classes:
            assert (cls, form) not in _FORMS, (cls, form)
            _FORMS[cls, form] = function
        return function

    return register


def register_renderer(home: str, form: str, *names: str) -> None:
    """Say which module registers a form of classes (by name), which need not be imported for it."""
    for name in names:
        _HOMES[name, form] = home


def form_of(result: object, form: str) -> Form | None:
    """What gives a form of a result; None where nobody registered one."""
    for cls in type(result).__mro__:
        if (home := _HOMES.get((cls.__name__, form))) is not None:
            importlib.import_module(home)
        if (cls, form) in _FORMS:
            return _FORMS[cls, form]
    return None


class Shown:
    """Mixed into results that a notebook draws."""

    def _repr_html_(self) -> str | None:
        """The drawing; None where nobody registered one, and the text is shown."""
        drawing = form_of(self, "html")
        return None if drawing is None else drawing(self)

    def render(self, form: str) -> Any:
        """A form that somebody has registered."""
        found = form_of(self, form)
        assert found is not None, f"nobody gives the {form} of a {type(self).__name__}"
        return found(self)
