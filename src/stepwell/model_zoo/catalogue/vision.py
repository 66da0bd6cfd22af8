"""Import of torchvision, and of packages that use it, if its operators cannot be loaded."""

import importlib
from functools import cache
from typing import Any

import torch

from stepwell.ir.diagnostics import StepwellError


@cache
def schemas() -> torch.library.Library:
    """Schemas of torchvision's operators.

    PyTorch's CPU build cannot load the operators of the torchvision on the package index, of which
    torchvision needs only the schemas to import.
    """
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        library.define(name + "(Tensor boxes, Tensor scores, float iou_threshold) -> Tensor")
    return library


def imported(package: str) -> Any:
    """Import torchvision, or a package that imports it if installed."""
    try:
        import torchvision  # noqa: F401  # pyright: ignore[reportUnusedImport, reportMissingImports]
    except RuntimeError:
        schemas()
    except ImportError:
        pass
    return importlib.import_module(package)


def needed(extra: str, why: str, package: str) -> Any:
    """Import a package of one of stepwell's extras.

    Raises:
        StepwellError: it is not installed; the message begins with `why`.
    """
    try:
        return imported(package)
    except ImportError as error:
        raise StepwellError(
            f"{why}, and {error.name} is not installed",
            help=f"the extra {extra!r} brings it: pip install 'stepwell[{extra}]'",
        ) from error
