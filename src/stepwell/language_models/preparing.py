"""Preparation of a model for export: its compute dtype, and low-bit weights.

Layers are quantized from the numbers of the file, one at a time. A quantized model computes in
fp32 unless another dtype is requested: XNNPACK's kernels for 4-bit and 8-bit weights take fp32 and
fp16, and bfloat16 is only a storage type there.
"""

from typing import Any

import torch
from torch import nn

from stepwell.ir.compat.torch.lazy_imports import OnDemand
from stepwell.ir.diagnostics import StepwellError
from stepwell.language_models.tables import quantized_table
from stepwell.quantization.quantizers import by_torchao, find_quantizer, is_quantized, unwrapped

pytorch_utils = OnDemand("transformers.pytorch_utils")


DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
ADAPTERS = ".lora_"
"""Part of the names of PEFT's layers: small and replaceable, they are not quantized."""
BITS = {"8da4w": 4, "8da8w": 8}
"""Quantizers of linear layers, whose weights may share a scale by groups."""


@torch.no_grad()
def prepare(
    model: Any,
    *,
    quantize: str | None = None,
    group: int | None = None,
    embedding: int | None = None,
    dtype: str | None = None,
) -> Any:
    """Quantize a causal model's layers and its table, and set its compute dtype.

    Args:
        model: a `PreTrainedModel`, which is changed.
        quantize: the name of a quantizer.
        group: the number of weights of a row that share a scale, for `8da4w` and `8da8w`; by
            default 32 for four bits and a row for eight.
        embedding: the bits of a number in the embedding table: 8 (a scale per row) or 4 (a scale
            per group).
        dtype: `fp32`, `fp16` or `bf16`; by default that of the file, or fp32 if the model is
            quantized.

    Raises:
        StepwellError: the quantizer is unknown or has no layer to quantize, or a group or table
            does not fit.
    """
    has_integers = any(
        isinstance(layer, nn.Linear) and is_quantized(layer) for layer in model.modules()
    )
    if dtype is None and (quantize or embedding or has_integers):
        dtype = None if model.dtype is torch.float32 else "fp32"
    if group is not None and quantize not in BITS:
        raise StepwellError(
            f"{quantize or 'the unquantized model'} has no groups of weights",
            help=f"--group is for --quantize {' and '.join(BITS)}",
        )
    table = model.get_input_embeddings()
    new_table = None if embedding is None else quantized_table(table, embedding, group)
    if quantize is not None and quantize not in BITS:
        model = find_quantizer(quantize)(_computing_in(model, dtype), ())
    elif quantize is not None:
        bits = BITS[quantize]
        one = by_torchao(
            bits, group or (32 if bits == 4 else None), dtype=DTYPES[dtype] if dtype else None
        )
        _spell_linears(model)
        layers = [
            layer
            for name, layer in model.named_modules()
            if isinstance(layer, nn.Linear) and ADAPTERS not in name
        ]
        if not layers:
            raise StepwellError(f"the model has no linear layer that {quantize} would quantize")
        _untie(model, table)
        for layer in layers:
            if not is_quantized(layer):
                one(layer, ())
    model = unwrapped(model)
    if new_table is not None:
        model.set_input_embeddings(new_table)
    return _computing_in(model, dtype)


def _computing_in(module: Any, dtype: str | None) -> Any:
    """Cast a module's floating-point numbers; integers of quantized weights are unchanged."""
    return module if dtype is None else module.to(DTYPES[dtype])


def _untie(model: Any, table: Any) -> None:
    """Give the last layer a separate parameter if it shares its weight with the embedding table."""
    last = model.get_output_embeddings()
    if last is not None and last.weight is table.weight:
        last.weight = nn.Parameter(table.weight.detach(), requires_grad=False)


def _spell_linears(model: Any) -> None:
    """Replace other implementations of linear layers by `torch.nn.Linear`.

    GPT-2's `Conv1D` has a transposed weight; Falcon's own layer transposes it before the product,
    which quantized weights do not support.
    """
    for above in list(model.modules()):
        for name, layer in list(above.named_children()):
            if isinstance(layer, pytorch_utils.Conv1D):
                spelled = nn.Linear(layer.weight.shape[0], layer.weight.shape[1], device="meta")
                spelled.weight = nn.Parameter(layer.weight.T.contiguous(), requires_grad=False)
                spelled.bias = layer.bias
                setattr(above, name, spelled)
            elif isinstance(layer, nn.Linear) and type(layer).forward is not nn.Linear.forward:
                plain = nn.Linear(layer.in_features, layer.out_features, device="meta")
                plain.weight, plain.bias = layer.weight, layer.bias
                given = torch.randn(4, layer.in_features).to(layer.weight.dtype)
                want = layer(given)  # Of a router, more than a tensor.
                if isinstance(want, torch.Tensor) and torch.allclose(
                    plain(given), want, rtol=0, atol=0.02 * float(want.abs().max())
                ):
                    setattr(above, name, plain)
