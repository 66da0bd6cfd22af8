"""The registry of renderers of results and of exporters of programs, which are defined in higher
layers.

A result does not import its renderers, and `ir/` imports no higher layer. The `stepwell` package
registers, for each class, a module that renders it. This module is imported on the first request
and registers its functions.
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
    """Decorate a function that renders instances of these classes as `html`, `page`, `text` or
    `torch`.
    """

    def register(function: _F) -> _F:
        for cls in classes:
            assert (cls, form) not in _FORMS, (cls, form)
            _FORMS[cls, form] = function
        return function

    return register


def register_renderer(home: str, form: str, *names: str) -> None:
    """Register the module that renders classes in a form such as `html`; the classes are given by
    name, so that none is imported.
    """
    for name in names:
        _HOMES[name, form] = home


def form_of(result: object, form: str) -> Form | None:
    """Return the function that renders a result in a form such as `html`; None without one."""
    for cls in type(result).__mro__:
        if (home := _HOMES.get((cls.__name__, form))) is not None:
            importlib.import_module(home)
        if (cls, form) in _FORMS:
            return _FORMS[cls, form]
    return None


class Shown:
    """A mixin for results that a notebook renders."""

    def _repr_html_(self) -> str | None:
        """Return the HTML rendering; None if no renderer is registered, so that the
        text is shown.
        """
        drawing = form_of(self, "html")
        return None if drawing is None else drawing(self)

    def render(self, form: str) -> Any:
        """Render the result in a form such as `html` for which a renderer is registered."""
        found = form_of(self, form)
        assert found is not None, f"no renderer for the {form} of {type(self).__name__}"
        return found(self)
