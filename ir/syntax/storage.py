"""A program on disk: `model.mlir`, its text with locations, and `model.safetensors` next to it.

A tensor is stored under its key, so that other tools can read it, if it owns its memory, is dense
and has a dtype that safetensors supports. All other tensors (tied and viewed tensors, other
strides, complex and rare dtypes) are views: the bytes of their memory are stored once, and the
header's metadata describes the view of each key, so that aliases and strides are restored. Reading
parses text, JSON and flat bytes; nothing in the files is executed.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import safetensors
from xdsl.dialects.builtin import ModuleOp

from stepwell.ir.compat.torch import torch_private
from stepwell.ir.compat.torch.lazy_imports import OnDemand, torch
from stepwell.ir.compat.torch.torch_private import memory_of
from stepwell.ir.diagnostics import ParseFailure, StepwellError, quoted
from stepwell.ir.platform.files import as_path, read_bytes, write_atomically
from stepwell.ir.syntax.inline_values import take_values
from stepwell.ir.syntax.text import parse_module, to_text
from stepwell.ir.traversal import walk
from stepwell.ir.types import WeightAttr
from stepwell.ir.weights import WeightStore

safetensors_torch = OnDemand("safetensors.torch")


FORMAT = "stepwell-1"
_VIEWS = "stepwell.views"
_MEMORY = "memory:"
_PLAIN = frozenset(
    "float64 float32 float16 bfloat16 int64 int32 int16 int8 uint8 bool "
    "float8_e4m3fn float8_e5m2".split()
)
"""Dtypes stored under their own name; every safetensors reader supports them."""


def weights_path(path: str | os.PathLike[str]) -> Path:
    """Return the path of the weights: `model.safetensors`, next to `model.mlir`."""
    return Path(path).with_suffix(".safetensors")


def save_module(module: ModuleOp, weights: WeightStore, path: str | os.PathLike[str]) -> None:
    """Write a module's text and the weights that it uses; derived weights are evaluated.

    The weights are written first, so that a text on disk always has its weights.

    Raises:
        StepwellError: `path` ends in `.safetensors`, or the folder cannot be written.
    """
    place = as_path(path)
    if place.suffix == ".safetensors":
        raise StepwellError(
            f"{place.name} names the weights of a program", help="pass the path of its .mlir"
        )
    tensors = {key: weights.get(key) for key in sorted(used_weights(module))}
    write_atomically(weights_path(place), pack_tensors(tensors))
    write_atomically(place, (to_text(module, locations=True) + "\n").encode())


def load_module(path: str | os.PathLike[str]) -> tuple[ModuleOp, WeightStore]:
    """Read a module and its weights, as written by `save_module`.

    Raises:
        StepwellError: a file is missing or unreadable.
        ParseFailure: a file is not what `save_module` writes.
    """
    place = as_path(path)
    try:
        text = read_bytes(place).decode()
    except UnicodeDecodeError as error:
        raise ParseFailure("the text is not UTF-8", f"{place.name}, byte {error.start}") from None
    module = parse_module(text, name=place.name)
    weights = WeightStore()
    held = weights_path(place)
    if held.exists():
        for key, tensor in unpack_tensors(held).items():
            weights.add(key, tensor)
    take_values(module, weights)
    missing = sorted(used_weights(module) - set(weights))
    if missing:
        raise StepwellError(
            f"{len(missing)} weights are missing, the first is {quoted(missing[0])}",
            held.name,
            "keep the .safetensors file next to the .mlir",
        )
    return module, weights


def used_weights(module: ModuleOp) -> set[str]:
    """List the keys of the weights that a module uses."""
    return {
        held.data
        for op in walk(module)
        for held in op.properties.values()
        if isinstance(held, WeightAttr)
    }


def pack_tensors(tensors: dict[str, torch.Tensor]) -> bytes:
    """Build a safetensors file from which tensors can be restored with their aliases and
    strides.
    """
    memories: dict[int, list[str]] = {}
    for key, tensor in tensors.items():
        if tensor.layout != torch.strided or tensor.device.type == "meta":
            raise StepwellError(
                f"weight {quoted(key)} is {tensor.layout} on {tensor.device}",
                help="only dense tensors with data can be stored",
            )
        memories.setdefault(_memory(tensor), []).append(key)
    stored: dict[str, torch.Tensor] = {}
    views: dict[str, dict[str, Any]] = {}
    for keys in memories.values():
        owner = next((key for key in keys if _owns_memory(key, tensors[key])), None)
        if owner is None:
            first, last = _extent([tensors[key] for key in keys])
            owner = f"{_MEMORY}{len(stored)}"
            stored[owner] = _bytes_of(tensors[keys[0]], first, last)
        else:
            first = 0
            stored[owner] = tensors[owner].detach().cpu()
        for key in keys:
            if key != owner:
                views[key] = _view(tensors[key], owner, first)
    metadata = {"format": "pt", "stepwell": FORMAT}
    if views:
        metadata[_VIEWS] = json.dumps(views)
    return _in_one_order(safetensors_torch.save(stored, metadata))


def _in_one_order(data: bytes) -> bytes:
    """Sort the metadata of a safetensors file, because the library's order is not deterministic."""
    size = int.from_bytes(data[:8], "little")
    header = cast(dict[str, Any], json.loads(data[8 : 8 + size]))
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return b"".join((len(text).to_bytes(8, "little"), text, memoryview(data)[8 + size :]))


def _memory(tensor: torch.Tensor) -> int:
    return memory_of(tensor.untyped_storage())


def _owns_memory(key: str, tensor: torch.Tensor) -> bool:
    return (
        str(tensor.dtype).removeprefix("torch.") in _PLAIN
        and not key.startswith(_MEMORY)
        and tensor.storage_offset() == 0
        and tensor.stride() == torch.empty(tensor.shape, device="meta").stride()
        and tensor.nbytes == tensor.untyped_storage().nbytes()
        and not tensor.is_neg()
    )


def _extent(tensors: Sequence[torch.Tensor]) -> tuple[int, int]:
    """Return the range of bytes of a memory that some tensors use: first, and one past the last."""
    starts: list[int] = []
    ends: list[int] = []
    for tensor in tensors:
        size = tensor.element_size()
        start = int(tensor.storage_offset())
        reach = sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True))
        if tensor.numel():
            starts.append(start * size)
            ends.append((start + reach + 1) * size)
    if not starts:
        return 0, 0
    return min(starts) // 16 * 16, max(ends)


def _bytes_of(tensor: torch.Tensor, first: int, last: int) -> torch.Tensor:
    whole = torch.empty(0, dtype=torch.uint8, device=tensor.device)
    whole.set_(tensor.untyped_storage(), first, (last - first,), (1,))  # pyright: ignore
    return whole.cpu()


def _view(tensor: torch.Tensor, owner: str, first: int) -> dict[str, Any]:
    view: dict[str, Any] = {
        "memory": owner,
        "dtype": str(tensor.dtype).removeprefix("torch."),
        "shape": list(tensor.shape),
        "stride": list(tensor.stride()),
        "offset": tensor.storage_offset() - first // tensor.element_size() if tensor.numel() else 0,
    }
    if tensor.is_conj():
        view["conj"] = True
    if tensor.is_neg():
        view["neg"] = True
    return view


def unpack_bytes(data: bytes) -> dict[str, torch.Tensor]:
    """Read the tensors of a safetensors file in memory."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "weights.safetensors"
        place.write_bytes(data)
        return unpack_tensors(place)


def unpack_tensors(path: Path) -> dict[str, torch.Tensor]:
    """Read the tensors of a safetensors file, written by stepwell or another tool.

    Raises:
        ParseFailure: the file is damaged, or its views exceed their memory.
    """
    stored: dict[str, torch.Tensor] = {}
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            metadata = cast(dict[str, str] | None, file.metadata()) or {}
            for key in file.keys():  # noqa: SIM118
                # The reader's tensors share one mapping of the file; weights own their memory.
                stored[key] = file.get_tensor(key).clone()
    except (OSError, safetensors.SafetensorError) as error:
        raise ParseFailure(f"not a safetensors file: {error}", path.name) from None
    try:
        views = json.loads(metadata.get(_VIEWS, "{}"))
        viewed = {key: _look(stored, view) for key, view in views.items()}
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError, StepwellError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ParseFailure(f"its views cannot be read: {reason}", path.name) from None
    plain = {key: t for key, t in stored.items() if not key.startswith(_MEMORY)}
    return {**plain, **viewed}


def _look(stored: dict[str, torch.Tensor], view: dict[str, Any]) -> torch.Tensor:
    memory = stored[view["memory"]].untyped_storage()
    dtype = getattr(torch, view["dtype"])
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"{view['dtype']} is not a dtype")
    shape, stride = [int(n) for n in view["shape"]], [int(n) for n in view["stride"]]
    offset = int(view["offset"])
    if min([*shape, *stride, offset, 0]) < 0 or len(shape) != len(stride):
        raise ValueError("a negative size, stride or offset")
    reach = sum((n - 1) * step for n, step in zip(shape, stride, strict=True))
    empty = 0 in shape
    if not empty and (offset + reach + 1) * dtype.itemsize > memory.nbytes():
        raise ValueError(f"a view reaches past its {memory.nbytes()} bytes of memory")
    tensor = torch.empty(0, dtype=dtype)
    tensor.set_(memory, offset, shape, stride)  # pyright: ignore
    if view.get("conj"):
        tensor = tensor.conj()
    return _negated(tensor) if view.get("neg") else tensor


def _negated(tensor: torch.Tensor) -> torch.Tensor:
    """Return the view that torch creates for a conjugate's imaginary part: the same memory,
    negated.
    """
    return torch_private.neg_view(tensor)
