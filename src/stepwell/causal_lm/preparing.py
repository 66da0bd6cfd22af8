"""A model before it is exported: the type it computes in, and weights of few bits.

Layers are quantised from the numbers of the file, one at a time, and what is quantised computes in
single precision unless another type is asked for: XNNPACK's kernels for weights of 4 and 8 bits
take singles and halves, and bfloat16 is a type of storage there.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from stepwell.ir.diagnostics import StepwellError
from stepwell.quantising import by_torchao, find_quantiser, unwrapped

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
BITS = {"8da4w": 4, "8da8w": 8}
"""Quantisers of linear layers, whose weights may share a scale by groups."""


@torch.no_grad()
def prepare(
    model: Any,
    *,
    quantise: str | None = None,
    group: int | None = None,
    embedding: int | None = None,
    dtype: str | None = None,
) -> Any:
    """Quantise a causal model's layers and its table, and let it compute in a type.

    Args:
        model: a `PreTrainedModel`; it is changed.
        quantise: the name of a quantiser.
        group: weights of a row that share a scale, for `8da4w` and `8da8w`; by default 32 for four
            bits and a row for eight.
        embedding: bits of a number of the table that tokens are looked up in: 8 (a scale a row) or
            4 (a scale a group).
        dtype: `fp32`, `fp16` or `bf16`; by default that of the file, and single precision where
            something is quantised.

    Raises:
        StepwellError: there is no such quantiser, nothing for it, or a group or table does not fit.
    """
    if dtype is None and (quantise or embedding) and model.dtype is not torch.float32:
        dtype = "fp32"
    if group is not None and quantise not in BITS:
        raise StepwellError(
            f"{quantise or 'no quantiser'} has no groups of weights",
            help=f"--group is for --quantise {' and '.join(BITS)}",
        )
    table = model.get_input_embeddings()
    quantised_table = None if embedding is None else _table(table, embedding, group)
    if quantise is not None and quantise not in BITS:
        model = find_quantiser(quantise)(_computing_in(model, dtype), ())
    elif quantise is not None:
        bits = BITS[quantise]
        one = by_torchao(bits, group or (32 if bits == 4 else None))
        _spell_linears(model)
        layers = [layer for layer in model.modules() if isinstance(layer, nn.Linear)]
        if not layers:
            raise StepwellError(f"the model has no linear layer that {quantise} would quantise")
        _untie(model, table)
        for layer in layers:
            one(_computing_in(layer, dtype), ())
        model = unwrapped(model)
    if quantised_table is not None:
        model.set_input_embeddings(quantised_table)
    return _computing_in(model, dtype)


def _computing_in(module: Any, dtype: str | None) -> Any:
    """A module whose floating-point numbers are of a type; integers of quantised weights stay."""
    return module if dtype is None else module.to(DTYPES[dtype])


def _untie(model: Any, table: Any) -> None:
    """A last layer that shares its weight with the table gets a parameter of its own."""
    last = model.get_output_embeddings()
    if last is not None and last.weight is table.weight:
        last.weight = nn.Parameter(table.weight.detach(), requires_grad=False)


def _spell_linears(model: Any) -> None:
    """GPT-2's `Conv1D` is a linear layer whose weight lies the other way round."""
    from transformers.pytorch_utils import Conv1D

    for above in list(model.modules()):
        for name, layer in list(above.named_children()):
            if isinstance(layer, Conv1D):
                spelled = nn.Linear(layer.weight.shape[0], layer.weight.shape[1], device="meta")
                spelled.weight = nn.Parameter(layer.weight.T.contiguous(), requires_grad=False)
                spelled.bias = layer.bias
                setattr(above, name, spelled)


class _Scaled(nn.Module):
    """A table whose rows are multiplied by a number, as Gemma's."""

    def __init__(self, table: nn.Module, scale: Any) -> None:
        super().__init__()
        self.table = table
        self.register_buffer("scale", torch.as_tensor(scale), persistent=False)

    def forward(self, indices: torch.Tensor) -> torch.Tensor:
        """Rows, scaled."""
        rows = self.table(indices)
        return rows * self.scale.to(rows.dtype)


def _table(table: nn.Module, bits: int, group: int | None) -> nn.Module:
    """A table of few bits in the place of an embedding, as ExecuTorch's kernels look it up.

    Raises:
        StepwellError: the layer does something else than look rows up.
    """
    from executorch.examples.models.llama.source_transformation.quantize import (
        QuantizedGroupEmbedding,
    )
    from torchao.quantization import IntxWeightOnlyConfig, quantize_
    from torchao.quantization.granularity import PerAxis, PerGroup

    weight: Any = getattr(table, "weight", None)
    if not isinstance(table, nn.Embedding):
        raise StepwellError(f"the model looks tokens up in a {type(table).__name__}, not a table")
    rows, columns = weight.shape
    size = group or (32 if bits == 4 else columns)
    if columns % size:
        raise StepwellError(f"rows of {columns} numbers are no whole groups of {size}")
    plain = nn.Embedding(rows, columns, _weight=weight.detach().float())
    granularity = PerAxis(0) if size == columns else PerGroup(size)
    config = IntxWeightOnlyConfig(
        weight_dtype=getattr(torch, f"int{bits}"),
        granularity=granularity,
    )
    quantize_(plain, config, lambda module, _: isinstance(module, nn.Embedding))
    quantised: Any = plain.weight
    made = QuantizedGroupEmbedding(
        "cpu",
        rows,
        columns,
        group_size=size,
        dtype=torch.float32,
        packed=bits == 4,
        bitwidth=bits,
        scales_precision=torch.float32,
    )
    integers, scales = quantised.qdata, quantised.scale
    if bits == 4:
        shifted = integers.add(8).view(torch.uint8).view(rows, columns // 2, 2)
        integers = shifted[:, :, 0] << 4 | shifted[:, :, 1]
    made.weight, made.scales = integers, scales.reshape(made.scales.shape).float()
    scale = getattr(table, "embed_scale", None)
    found = made if scale is None else _Scaled(made, scale)
    _refuse_another_lookup(table, found, quantised.dequantize())
    return found


def _refuse_another_lookup(table: nn.Embedding, module: nn.Module, numbers: torch.Tensor) -> None:
    """Look some rows up in both, the table holding what the bits stand for."""
    tokens = torch.arange(min(16, table.num_embeddings))[None]
    kept = table.weight
    try:
        table.weight = nn.Parameter(numbers, requires_grad=False)
        want = table(tokens)
    finally:
        table.weight = kept
    if not torch.allclose(module(tokens), want.float(), rtol=1e-6, atol=0):
        raise StepwellError(
            f"{type(table).__name__} does more than look rows up, and its table stays as it is",
            help="leave --embedding out",
        )
