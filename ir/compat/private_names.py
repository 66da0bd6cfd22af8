"""Private names of other packages: a table lists each of them with the features that
depend on it.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from stepwell.ir.diagnostics import StepwellError


@dataclass(frozen=True)
class PrivateName:
    """A name that a package may remove in any version.

    Attributes:
        place: `module` or `module:attribute.of.it`.
        serves: the feature of stepwell that needs it.
    """

    place: str
    serves: str

    def found(self) -> Any:
        """Return the object of this name in the installed version.

        Raises:
            StepwellError: the installed version does not have it.
        """
        module, _, path = self.place.partition(":")
        try:
            value: Any = importlib.import_module(module)
            for attribute in path.split(".") if path else ():
                value = getattr(value, attribute)
        except (ImportError, AttributeError) as error:
            package = module.partition(".")[0]
            try:
                installed = f"{package} {version(package)}"
            except PackageNotFoundError:
                installed = f"{package}, which is not installed,"
            raise StepwellError(
                f"{installed} has no {self.place.replace(':', '.')}: {self.serves} needs it",
                help="install the versions that stepwell asks for: pip install --upgrade stepwell",
            ) from error
        return value


def look_up(names: Mapping[str, PrivateName], name: str) -> Any:
    """Look up a name of a table; the implementation of a module's `__getattr__`.

    Raises:
        AttributeError: the table has no such name.
        StepwellError: the installed package does not have it.
    """
    if name not in names:
        raise AttributeError(name)
    return names[name].found()
