"""ATen operators, declared from PyTorch's own schemas."""

from xdsl.ir import Dialect

from stepwell.dialects.aten import interpretation as _interpretation  # noqa: F401
from stepwell.dialects.aten.attributes import ComplexArg, Dynamic, NoneArg

Aten = Dialect("aten", [], [NoneArg, Dynamic, ComplexArg])
"""The attributes of schema ops; the ops themselves are found by name (`registry.find`)."""
