"""TOSA flatbuffers: reading, writing, running on the reference model."""

from stepwell.backends.tosa.emit import to_tosa
from stepwell.backends.tosa.read import read_tosa
from stepwell.backends.tosa.reference_model import run_reference_model

__all__ = ["read_tosa", "run_reference_model", "to_tosa"]
