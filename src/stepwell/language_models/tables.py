"""Low-bit embedding tables for ExecuTorch's kernels of quantized embeddings."""

from typing import Any

import torch
from torch import Tensor, nn

from stepwell.ir.compat.torch.lazy_imports import OnDemand
from stepwell.ir.diagnostics import StepwellError

quantization = OnDemand("torchao.quantization")
granularities = OnDemand("torchao.quantization.granularity")
llama_quantize = OnDemand("executorch.examples.models.llama.source_transformation.quantize")


class Scaled(nn.Module):
    """An embedding table whose rows are multiplied by a number, as in Gemma models."""

    def __init__(self, table: nn.Module, scale: Any) -> None:
        super().__init__()
        self.table = table
        self.register_buffer("scale", torch.as_tensor(scale), persistent=False)

    def forward(self, indices: Tensor) -> Tensor:
        """Look up the rows of these indices in the table, and multiply them by the scale."""
        rows = self.table(indices)
        return rows * self.scale.to(rows.dtype)


class OfHalves(nn.Module):
    """An 8-bit table in groups with fp16 scales, as in GGUF's Q8_0.

    ExecuTorch's kernel takes such scales too, but torch's reference of it multiplies in fp16.
    """

    def __init__(self, integers: Tensor, scales: Tensor) -> None:
        """Keep integers `[rows, columns]` and scales `[rows, groups]`."""
        super().__init__()
        self.weight: Tensor
        self.scales: Tensor
        self.register_buffer("weight", integers)
        self.register_buffer("scales", scales)
        self.dtype = torch.float32

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        """Cast the module to another dtype; scales keep the file's dtype."""
        self.dtype = fn(torch.zeros((), dtype=self.dtype)).dtype
        return self

    def forward(self, indices: Tensor) -> Tensor:
        """Look up the rows of these indices in the quantized table, and dequantize them."""
        integers = nn.functional.embedding(indices, self.weight).float()
        scales = nn.functional.embedding(indices, self.scales).float()
        rows = integers.unflatten(-1, (scales.shape[-1], -1)) * scales[..., None]
        return rows.flatten(-2).to(self.dtype)


def quantized_table(table: nn.Module, bits: int, group: int | None) -> nn.Module:
    """Create a low-bit table that replaces an embedding.

    Args:
        table: the embedding.
        bits: 4 or 8.
        group: the count of numbers in a row that share a scale; by default 32 for four bits and a
            row for eight.

    Raises:
        StepwellError: the layer does more than look up rows, or a group does not fit.
    """
    weight: Any = getattr(table, "weight", None)
    if not isinstance(table, nn.Embedding):
        raise StepwellError(
            f"the model's embedding has type {type(table).__name__}, must be torch.nn.Embedding"
        )
    rows, columns = weight.shape
    size = group or (32 if bits == 4 else columns)
    if columns % size:
        raise StepwellError(
            f"the embedding's {columns} columns are not a multiple of the group size {size}"
        )
    plain = nn.Embedding(rows, columns, _weight=weight.detach().float())
    granularity = granularities.PerAxis(0) if size == columns else granularities.PerGroup(size)
    config = quantization.IntxWeightOnlyConfig(
        weight_dtype=getattr(torch, f"int{bits}"),
        granularity=granularity,
    )
    quantization.quantize_(plain, config, _is_table)
    quantized: Any = plain.weight
    return table_of(table, bits, quantized.qdata, quantized.scale, quantized.dequantize())


def _is_table(module: nn.Module, name: str) -> bool:
    return isinstance(module, nn.Embedding)


def table_of(
    table: nn.Embedding, bits: int, integers: Tensor, scales: Tensor, numbers: Tensor
) -> nn.Module:
    """Create a table from integers.

    Args:
        table: the embedding that is replaced.
        bits: 4 or 8.
        integers: the integers `[rows, columns]`, int8, within the range of `bits`.
        scales: the scales, `[rows, groups]`.
        numbers: the dequantized numbers, `[rows, columns]`.

    Raises:
        StepwellError: the embedding does more than look up rows.
    """
    halves = scales.half()
    are_halves = (
        bits == 8 and scales.numel() > len(integers) and torch.equal(halves.float(), scales.float())
    )
    made = OfHalves(integers, halves) if are_halves else _of_kernel(bits, integers, scales)
    scale = getattr(table, "embed_scale", None)
    lookup = made if scale is None else Scaled(made, scale)
    _refuse_another_lookup(table, lookup, numbers)
    return lookup


def _of_kernel(bits: int, integers: Tensor, scales: Tensor) -> nn.Module:
    """Return a table from which ExecuTorch's kernels of quantized embeddings look up."""
    rows, columns = integers.shape
    made: Any = llama_quantize.QuantizedGroupEmbedding(
        "cpu",
        rows,
        columns,
        group_size=columns * rows // scales.numel(),
        dtype=torch.float32,
        packed=bits == 4,
        bitwidth=bits,
        scales_precision=torch.float32,
    )
    if bits == 4:
        shifted = integers.add(8).view(torch.uint8).view(rows, columns // 2, 2)
        integers = shifted[:, :, 0] << 4 | shifted[:, :, 1]
    made.weight, made.scales = integers, scales.reshape(made.scales.shape).float()
    return made


def _refuse_another_lookup(table: nn.Embedding, module: nn.Module, numbers: Tensor) -> None:
    """Compare some rows of both tables: the new table must return the dequantized numbers."""
    tokens = torch.arange(min(16, table.num_embeddings))[None]
    kept = table.weight
    try:
        table.weight = nn.Parameter(numbers, requires_grad=False)
        want = table(tokens)
    finally:
        table.weight = kept
    if not torch.allclose(module(tokens), want.float(), rtol=1e-6, atol=0):
        raise StepwellError(
            f"{type(table).__name__} does more than look up rows, so its table cannot be quantized",
            help="omit --embedding",
        )
