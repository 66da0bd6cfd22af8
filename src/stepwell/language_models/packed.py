"""Load folders with packed layers (GPTQ, AWQ, torchao), and keep the layers' integers.

A GPTQ or AWQ layer is a matrix of integers in 32-bit words, with scales and zeros by groups of a
row. transformers needs GPU kernel packages to read such folders. Here transformers reads only the
unpacked tensors, and `blocks` creates a layer from the integers of each packed layer. Folders of
torchao are read by transformers, as torchao tensors.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from stepwell.ir.compat.torch.lazy_imports import OnDemand
from stepwell.ir.diagnostics import StepwellError
from stepwell.language_models.blocks import Blocks, has_kernel, layer_of, sentence
from stepwell.language_models.tables import table_of
from stepwell.quantization.quantizers import is_quantized

safetensors_torch = OnDemand("safetensors.torch")
transformers = OnDemand("transformers")


Told = Mapping[str, Any]
"""`quantization_config` of a folder."""
Unpacked = tuple[Blocks, Tensor | None]
"""The blocks of a layer, and the order in which they have its columns where that is another."""


def _fields(words: Tensor, bits: int, axis: int, order: Sequence[int]) -> Tensor:
    """Unpack the unsigned integers of 32-bit words.

    Args:
        words: the words, `[…, words, …]`.
        bits: the bits of an integer.
        axis: the axis along which adjacent integers share a word.
        order: the index of the integer in each field of a word, from the lowest bits on.
    """
    shifts = torch.empty(len(order), dtype=torch.int32)
    shifts[list(order)] = torch.arange(len(order), dtype=torch.int32) * bits
    shifts = shifts.view([-1 if at == axis + 1 else 1 for at in range(words.dim() + 1)])
    fields = words.unsqueeze(axis + 1) >> shifts & (1 << bits) - 1
    return fields.flatten(axis, axis + 1).to(torch.int16)


def _blocks(integers: Tensor, scales: Tensor, zeros: Tensor, bits: int) -> Blocks:
    """Return a matrix from integers `[columns, rows]`, scales and zeros `[groups, rows]`."""
    steps = scales.T.float().contiguous()
    return Blocks(integers.T.contiguous(), steps, -steps * zeros.T, bits)


def _gptq(layer: Mapping[str, Tensor], told: Told) -> Unpacked:
    """Unpack GPTQ: `qweight` `[columns / n, rows]`, `qzeros` `[groups, rows / n]`, `g_idx`
    `[columns]`.

    In the first version of the format, stored zeros are one too small.
    """
    bits = told["bits"]
    straight = range(32 // bits)
    integers = _fields(layer["qweight"], bits, 0, straight)
    zeros = _fields(layer["qzeros"], bits, 1, straight)
    if told.get("checkpoint_format", "gptq") == "gptq":
        zeros = zeros + 1
    in_turn = torch.arange(len(integers))
    of_group = layer.get("g_idx", in_turn * len(zeros) // len(integers))
    order = torch.argsort(of_group, stable=True)
    if torch.equal(order, in_turn):
        return _blocks(integers, layer["scales"], zeros, bits), None
    return _blocks(integers[order], layer["scales"], zeros, bits), order


def _awq(layer: Mapping[str, Tensor], told: Told) -> Unpacked:
    """Unpack AWQ: `qweight` `[columns, rows / 8]`, `qzeros` `[groups, rows / 8]`, interleaved."""
    order = (0, 2, 4, 6, 1, 3, 5, 7)
    integers, zeros = (_fields(layer[name], 4, 1, order) for name in ("qweight", "qzeros"))
    return _blocks(integers, layer["scales"], zeros, 4), None


def _bits_across_words(told: Told) -> str | None:
    bits = told.get("bits")
    return None if bits in (2, 4, 8) else f"weights of {bits} bits, which lie across words"


def _no_gemm(told: Told) -> str | None:
    version, bits = str(told.get("version", "gemm")).lower(), told.get("bits", told.get("w_bit"))
    if version != "gemm":
        return f"the layout of {version}"
    return None if bits == 4 else f"weights of {bits} bits"


@dataclass(frozen=True)
class Packing:
    """How a quantization method packs a layer."""

    unpack: Callable[[Mapping[str, Tensor], Told], Unpacked]
    lacks: Callable[[Told], str | None]
    """Settings of a folder that are ignored."""


PACKINGS = {"gptq": Packing(_gptq, _bits_across_words), "awq": Packing(_awq, _no_gemm)}
"""By `quant_method`."""


def packing_of(folder: Path, told: Told) -> Packing | None:
    """Return how a folder's layers are packed; None if transformers reads them.

    Raises:
        StepwellError: the packing is not supported.
    """
    method = told.get("quant_method")
    if not told or method == "torchao":
        return None
    packing = PACKINGS.get(str(method))
    lacks = None if packing is None else packing.lacks(told)
    if packing is None or lacks is not None:
        raise StepwellError(
            f"{folder} is packed by {method}" + (f" with {lacks}" if lacks else ""),
            help=f"{', '.join(PACKINGS)} and torchao are read",
        )
    return packing


def load_packed(
    folder: Path, packing: Packing, told: Told, kind: Any, notes: list[str] | None
) -> Any:
    """Load the model of a folder with packed layers.

    Args:
        folder: a folder written by `save_pretrained`.
        packing: the packing of its layers.
        told: the folder's `quantization_config`.
        kind: the class of the model.
        notes: a list that receives a sentence on the kept integers.
    """
    tensors: dict[str, Tensor] = {}
    for file in sorted(folder.glob("*.safetensors")):
        tensors |= safetensors_torch.load_file(file)
    config: Any = transformers.AutoConfig.from_pretrained(folder, local_files_only=True)
    del config.quantization_config
    with torch.device("meta"):
        known = dict(kind(config).named_modules())
    name_of = f"{told['quant_method'].upper()}, {told.get('bits', 4)} bits"
    kept, left = Counter[str](), Counter[str]()
    made: dict[str, nn.Module] = {}
    for name in [key.removesuffix(".qweight") for key in tensors if key.endswith(".qweight")]:
        ends = ("qweight", "qzeros", "scales", "g_idx")
        own = {end: tensors.pop(key) for end in ends if (key := f"{name}.{end}") in tensors}
        blocks, order = packing.unpack(own, told)
        if isinstance(known.get(name), nn.Linear) and has_kernel(blocks):
            bias = tensors.get(f"{name}.bias")
            made[name] = layer_of(blocks, bias, order)
            numbers = torch.zeros(()).expand(blocks.integers.shape)  # Of a layer that is replaced.
            kept.update([name_of])
        else:
            numbers = blocks.numbers()
            numbers = numbers if order is None else numbers[:, torch.argsort(order)]
            left.update([name_of])
        tensors[f"{name}.weight"] = numbers
    model = kind.from_pretrained(None, config=config, state_dict=tensors, dtype=torch.float32)
    if (folder / "generation_config.json").is_file():
        model.generation_config = transformers.GenerationConfig.from_pretrained(
            folder, local_files_only=True
        )
    for name, layer in made.items():
        model.set_submodule(name, layer)
    if notes is not None:
        notes.append(sentence(kept, left))
    return model.requires_grad_(False)


@torch.no_grad()
def give_kernels(model: Any, notes: list[str] | None) -> Any:
    """Replace layers and tables of torchao tensors by ones for which kernels exist.

    Args:
        model: the model that transformers read.
        notes: a list that receives a sentence on the kept integers, if there are any.

    Raises:
        StepwellError: a tensor is of an unsupported kind.
    """
    kept, left = Counter[str](), Counter[str]()
    for name, module in list(model.named_modules()):
        if not hasattr(module, "weight") or not is_quantized(module):
            continue
        blocks = _of_torchao(name, module.weight)
        what = f"torchao, {blocks.bits} bits"
        if isinstance(module, nn.Linear) and has_kernel(blocks):
            model.set_submodule(name, layer_of(blocks, module.bias))
        elif module is model.get_input_embeddings() and blocks.is_symmetric:
            integers = (blocks.integers - blocks.middle).to(torch.int8)
            table = table_of(
                cast(nn.Embedding, module), blocks.bits, integers, blocks.scales, blocks.numbers()
            )
            model.set_input_embeddings(table)
        else:
            module.weight = nn.Parameter(blocks.numbers(), requires_grad=False)
            left.update([what])
            continue
        kept.update([what])
    if notes is not None and (kept or left):
        notes.append(sentence(kept, left))
    return model


def _of_torchao(name: str, weight: Any) -> Blocks:
    kind = type(weight).__name__
    bits = {"torch.int2": 2, "torch.int4": 4, "torch.int8": 8}.get(
        str(getattr(weight, "target_dtype", torch.int8))
    )
    is_known = kind in ("IntxUnpackedToInt8Tensor", "Int8Tensor")
    if bits is None or not is_known or getattr(weight, "act_pre_scale", None) is not None:
        raise StepwellError(
            f"layer {name} has a torchao {kind}, which is not supported",
            help="supported are Int8DynamicActivationIntxWeightConfig, IntxWeightOnlyConfig, "
            "Int8Tensor",
        )
    scales = weight.scale.float().reshape(len(weight.qdata), -1)
    zeros = weight.zero_point
    zeros = 0 if zeros is None else zeros.float().reshape(scales.shape)
    middle = 1 << bits - 1
    least = -scales * (zeros + middle)
    return Blocks(weight.qdata.to(torch.int16) + middle, scales, least, bits)
