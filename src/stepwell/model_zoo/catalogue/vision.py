"""Import torchvision, and packages that use it, even if its operators cannot be loaded."""

import importlib
from functools import cache
from typing import Any

import torch

from stepwell.ir.diagnostics import StepwellError


@cache
def schemas() -> torch.library.Library:
    """Return the schemas of torchvision's operators.

    PyTorch's CPU build cannot load the operators of the torchvision package on PyPI, but importing
    torchvision only needs their schemas.
    """
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        library.define(name + "(Tensor boxes, Tensor scores, float iou_threshold) -> Tensor")
    return library


def imported(package: str) -> Any:
    """Import torchvision, or a package that imports torchvision if installed."""
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
        StepwellError: the package is not installed; the message begins with `why`.
    """
    try:
        return imported(package)
    except ImportError as error:
        raise StepwellError(
            f"{why}, but {error.name} is not installed",
            help=f"install the extra {extra!r}: pip install 'stepwell[{extra}]'",
        ) from error
