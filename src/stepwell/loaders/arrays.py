"""Read the arrays of a `.npz` as tensors."""

import io
from pathlib import Path
from zipfile import BadZipFile

import numpy
import torch

from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.platform.files import read_bytes


def read_npz(path: Path) -> dict[str, torch.Tensor]:
    """Return the arrays of a `.npz` by name, in the file's order.

    Raises:
        StepwellError: the file is missing, or is not a `.npz` of arrays.
    """
    data = io.BytesIO(read_bytes(path))
    try:
        with numpy.load(data) as held:
            return {name: torch.from_numpy(held[name]) for name in held.files}
    except (OSError, ValueError, TypeError, EOFError, AttributeError, BadZipFile) as error:
        raise StepwellError(f"{path} is no .npz of arrays: {error}") from error
