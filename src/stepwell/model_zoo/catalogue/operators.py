"""PyTorch's OpInfo database: each operator as its tests call it, in up to three calls."""

import warnings
from collections.abc import Iterator
from itertools import islice
from typing import Any

import torch

from stepwell.ir.compat.torch import torch_private
from stepwell.ir.compat.torch.torch_private import pytree
from stepwell.model_zoo.catalogue.models import Entry, Made
from stepwell.model_zoo.catalogue.modules import call

SAMPLES = 2
"""Number of calls per operator: the first ones with tensors are used."""
UNINITIALIZED = ("empty", "empty_like", "empty_permuted", "empty_strided", "new_empty")
"""Operators whose result is uninitialized memory."""


def entries() -> Iterator[Entry]:
    """Yield an entry for each of the first calls of each operator that takes floats on a CPU."""
    for info in torch_private.op_db:
        if not info.supports_dtype(torch.float32, "cpu") or info.name.startswith(UNINITIALIZED):
            continue
        name = info.name + (f".{info.variant_test_name}" if info.variant_test_name else "")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            count = len(list(islice(samples(info), SAMPLES)))
        for index in range(count):
            yield Entry(
                f"operators/{name}/{index}",
                info.name,
                "operator",
                lambda info=info, index=index: make(info, index),
                size=0.1 + 0.05 * index,
            )


def samples(info: Any) -> Iterator[tuple[Any, Any]]:
    """Return the arguments of an operator's calls in PyTorch's tests, with at least one dense
    tensor.
    """
    torch.manual_seed(0)
    for sample in islice(info.sample_inputs_func(info, "cpu", torch.float32, False), 12):
        given = ((sample.input, *sample.args), sample.kwargs)
        tensors = [leaf for leaf in pytree.tree_leaves(given) if isinstance(leaf, torch.Tensor)]
        if tensors and all(tensor.layout == torch.strided for tensor in tensors):
            yield given


def make(info: Any, index: int) -> Made:
    """Create a model that makes one call of an operator."""
    return call(info.op, *next(islice(samples(info), index, None)))
