"""The counterpart of the stock flow's final result: `Lowered.to_executorch()`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from stepwell.ir.platform.files import as_path, write_atomically
from stepwell.ir.renderers import Shown

if TYPE_CHECKING:
    from executorch.devtools.etrecord import ETRecord


@dataclass(frozen=True)
class ExecutorchProgram(Shown):
    """A `.pte` with the methods of ExecuTorch's `ExecutorchProgramManager` that scripts call.

    Attributes:
        buffer: the bytes of the file.
        methods: the names of the methods.
    """

    buffer: bytes = field(repr=False)
    methods: frozenset[str]
    record: Any = field(default=None, repr=False)

    def write_to_file(self, open_file: BinaryIO) -> None:
        """Write the bytes to an open file."""
        open_file.write(self.buffer)

    def save(self, path: str | Path) -> None:
        """Write the program to a `.pte` file, completely or not at all."""
        write_atomically(as_path(path), self.buffer)

    def get_etrecord(self) -> ETRecord:
        """Return the data that ExecuTorch's Inspector needs for the method `forward`."""
        return self.record()
