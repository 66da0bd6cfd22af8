"""How far a right result of block-scaled products may be.

Products are the same to the last bit wherever they are computed: the order of their sums is part of
what an operator means (`dialects/tosa_mxfp/products.py`), and so is the cast before them.
"""

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from stepwell.dialects.tosa_mxfp import numerics, operators
from stepwell.dialects.tosa_mxfp.numerics import SCALE_BIAS, cast_to_block_scaled
from stepwell.dialects.tosa_mxfp.payloads import BLOCK, Payload

from .oracle import Expected, Skipping, denormals_as_zero, ran, shaken, tensors
from .stepping import Exact


def expected(
    graph: torch.nn.Module, given: Any, coarse: Mapping[str, float] | None = None
) -> Expected:
    """What a right result of a graph with block-scaled products may be.

    Args:
        graph: the graph, with the operators of `dialects/tosa_mxfp/operators.py`.
        given: its inputs, nested.
        coarse: operators that are right to within units of a number this large.
    """
    runs = [ran(graph, given), ran(graph, given, Exact(0)), ran(graph, given, Skipping())]
    with denormals_as_zero():
        runs.append(ran(graph, given))
    return Expected(tensors(runs + shaken(lambda _: copy.deepcopy(graph), given, coarse)))


@contextmanager
def as_the_model_casts() -> Iterator[None]:
    """Let MXINT8 be cast as the reference model of tosa-tools 2026.8 does it, mistake included.

    It shifts a mantissa by 17 bits and the number's exponent below its block's, modulo 64, and so
    makes a code of 1 of some numbers 2⁻⁴⁸ of the greatest and less, that are 0 by any rounding.
    """
    with (
        patch.object(operators, "cast_to_block_scaled", _cast_by_wrapped_shift),
        patch.object(numerics, "cast_to_block_scaled", _cast_by_wrapped_shift),
    ):
        yield


def _cast_by_wrapped_shift(x: Tensor, payload: Payload) -> tuple[Tensor, Tensor]:
    codes, scales = cast_to_block_scaled(x, payload)
    if not payload.is_fixed_point:
        return codes, scales
    exponents = (scales.int() - SCALE_BIAS).repeat_interleave(BLOCK, -1)
    parts = torch.ldexp(x.double(), -exponents).float().double()  # Which flushes what is too small.
    mantissa, below = torch.frexp(parts.abs())
    below = 1 - below
    shift = 17 + below - (below >= 127).int()  # Of denormal numbers one less.
    unit = torch.ldexp(torch.ones_like(mantissa), shift % 64)
    wraps = (shift >= 64) & parts.isfinite() & (parts != 0)
    rounded = wraps & (torch.ldexp(mantissa, torch.tensor(24)).remainder(unit) > unit / 2)
    one = torch.where(parts > 0, 1, 255).to(torch.uint8)
    return torch.where(rounded, one, codes), scales
