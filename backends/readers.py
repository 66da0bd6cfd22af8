"""The delegates that a `.pte` reader opens, and the kernels besides ATen's that it supports."""

from __future__ import annotations

from stepwell.backends.ethos_u.emit import TOSA_BACKEND
from stepwell.backends.ethos_u.read import EthosuReader
from stepwell.backends.ethos_u.read_tosa import TosaReader
from stepwell.backends.ethos_u.vela import BACKEND
from stepwell.backends.executorch.reading.lift import Readers
from stepwell.backends.xnnpack.read import XnnpackReader

PTE_READERS = Readers(
    delegates={
        "XnnpackBackend": XnnpackReader(),
        BACKEND: EthosuReader(),
        TOSA_BACKEND: TosaReader(),
    }
)
"""All readers; delegates of other backends stay opaque."""
