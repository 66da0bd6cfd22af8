"""The six element types of a block-scaled (MX) tensor.

Source: OCP Microscaling Formats (MX) v1.0, and TOSA 1.1's FP8E4M3, FP8E5M2, FP6E2M3, FP6E3M2,
FP4E2M1 and MXINT8. The specification does not define the payload codes inside a block whose scale
is NaN; those here were measured on the TOSA reference model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.diagnostics import StepwellError

BLOCK = 32
"""Elements that share one scale: the only block size TOSA 1.1 defines."""

SCALE_BIAS = 127
"""Exponent bias of the E8M0 scale: code ``c`` means ``2 ** (c - 127)``."""

SCALE_NAN = 255
"""The E8M0 code of NaN."""


@dataclass(frozen=True)
class Payload:
    """An element type that an MX payload can have.

    ``exponent_bits`` is 0 for MXINT8, which is a fixed-point number with six
    fractional bits.  ``minimum_exponent`` is the exponent of the smallest normal
    number, ``maximum`` the largest finite value, ``lowest`` the smallest, and
    ``maximum_exponent`` the exponent of ``maximum``.  ``nan_code`` is the code that the reference
    model stores throughout a block whose scale is NaN.  ``dtype`` is the name of torch's type of
    the same codes, if there is one.
    """

    name: str
    bits: int
    exponent_bits: int
    mantissa_bits: int
    minimum_exponent: int
    maximum_exponent: int
    maximum: float
    lowest: float
    nan_code: int
    dtype: str | None = None

    @property
    def torch_dtype(self) -> torch.dtype | None:
        """Return torch's dtype of the same codes, if it exists."""
        return getattr(torch, self.dtype) if self.dtype else None

    @property
    def is_fixed_point(self) -> bool:
        return self.exponent_bits == 0

    @property
    def step(self) -> float:
        """Return the smallest distance between two values."""
        return 2.0 ** (self.minimum_exponent - self.mantissa_bits)

    def block_dot_is_exact_with(self, other: Payload) -> bool:
        """Whether a dot product of one block with one of ``other`` never rounds in fp32.

        True if every partial sum is a multiple of the product of the two steps and below 2**24 of
        them, so that any order of summation gives the same bits.
        """
        most = BLOCK * (self.lowest / self.step) * (other.lowest / other.step)
        return most < 2.0**24


PAYLOADS: Mapping[str, Payload] = MappingProxyType(
    {
        payload.name: payload
        for payload in (
            Payload("fp8e4m3", 8, 4, 3, -6, 8, 448.0, -448.0, 0x7F, "float8_e4m3fn"),
            Payload("fp8e5m2", 8, 5, 2, -14, 15, 57344.0, -57344.0, 0x7E, "float8_e5m2"),
            Payload("fp6e2m3", 6, 2, 3, 0, 2, 7.5, -7.5, 0x18),
            Payload("fp6e3m2", 6, 3, 2, -2, 4, 28.0, -28.0, 0x1C),
            Payload("fp4e2m1", 4, 2, 1, 0, 2, 6.0, -6.0, 0x06),
            Payload("mxint8", 8, 0, 6, 0, 0, 127 / 64, -2.0, 0x7F),
        )
    }
)
"""Every payload by its name."""


def payload_named(name: str) -> Payload:
    """Return the payload of a name; raises `StepwellError` for any other string."""
    try:
        return PAYLOADS[name]
    except KeyError:
        raise StepwellError(
            f"{name!r} is not an MX payload", help=f"choose one of {', '.join(PAYLOADS)}"
        ) from None
