"""Which delegates a `.pte` reader opens, and which kernels beside ATen's it understands."""

from __future__ import annotations

from stepwell.backends.executorch.lift import Readers
from stepwell.backends.xnnpack.read import XnnpackReader

PTE_READERS = Readers(delegates={"XnnpackBackend": XnnpackReader()})
"""Every reader there is; delegates of other backends stay opaque."""
