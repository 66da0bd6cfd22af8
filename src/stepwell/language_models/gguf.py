"""Load a `.gguf` file: the model as transformers reads it, with the integers of the file.

transformers dequantizes every matrix, renames it and permutes its rows for the architecture. Rows
are matched by their numbers, so that no mapping of names is needed: the `gguf` package dequantizes
the rows of the file's matrices, and a layer whose rows are all among these gets their integers. The
byte layout of a type is derived from the same package: with all bits of its integers zero, and with
all of them one, a block dequantizes to its least and its greatest numbers.

Before packages that trust the header read the file, each count and length in it is compared with
the bytes that are left, so that reading takes time linear in the file. Source: the GGUF
specification of ggml, versions 2 and 3.
"""

import struct
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from stepwell.ir.diagnostics import ParseFailure, reported
from stepwell.ir.platform.process_settings import kept_stderr
from stepwell.language_models.blocks import Blocks, layer_of, sentence
from stepwell.language_models.tables import table_of
from stepwell.model_zoo.catalogue.vision import needed

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Layout:
    """The position and range of the integers in a block of a GGUF type."""

    integers: slice
    """Their bytes."""
    low: int
    """The byte of which they are all the least integer."""
    least: int
    """The least integer; as many follow as `levels`."""
    levels: int
    group: int
    """Numbers that share a scale."""


LAYOUTS = {
    "Q4_0": Layout(slice(2, 18), 0, -8, 15, 32),
    "Q4_1": Layout(slice(4, 20), 0, 0, 15, 32),
    "Q4_K": Layout(slice(16, 144), 0, 0, 15, 32),
    "Q8_0": Layout(slice(2, 34), 0x80, -128, 255, 32),
    "Q6_K": Layout(slice(0, 192), 0, -32, 63, 16),
}
"""`ggml-quants.c`. Their integers are kept; rows of other types are dequantized."""
OF_LAYERS = ("Q4_0", "Q4_1", "Q4_K")
"""Which XNNPACK multiplies by: four bits, in groups of 32."""
OF_TABLES = {"Q4_0": 4, "Q8_0": 8, "Q6_K": 8}
"""Which ExecuTorch looks up (bits): multiples of a scale, without an offset."""


MOST_NUMBERS, ALWAYS = 16, 1 << 26
"""Greatest number of a model's numbers per byte of its file, and a constant in addition."""

Row = tuple[Any, int]
"""A matrix of the file, and the number of a row."""


def load_gguf(file: Path, notes: list[str] | None = None) -> Any:
    """Load the model of a file; 4-bit layers and the embedding table keep their integers.

    Args:
        file: a `.gguf` file of a causal language model.
        notes: a list that receives a sentence about the kept integers.

    Raises:
        ParseFailure: the header does not fit the file.
        StepwellError: a package is missing, or transformers cannot read the file.
    """
    readers = ("transformers", "gguf", "accelerate")  # transformers needs it for such files.
    transformers, package, _ = (
        needed("gguf", f"{file} is read by {', '.join(readers)}", name) for name in readers
    )
    given: dict[str, Any] = {"gguf_file": file.name, "local_files_only": True}
    size = file.stat().st_size
    check_header(np.memmap(file, mode="r").data if size else memoryview(b""))
    with reported(f"transformers cannot read {file}"), kept_stderr():  # Its bars.
        config = transformers.AutoConfig.from_pretrained(file.parent, **given)
        with torch.device("meta"):
            planned = transformers.AutoModelForCausalLM.from_config(config)
        held = (*planned.parameters(), *planned.buffers())
        if sum(tensor.numel() for tensor in held) > MOST_NUMBERS * size + ALWAYS:
            raise ValueError("the model that its header describes is larger than its tensors")
        model = transformers.AutoModelForCausalLM.from_pretrained(
            file.parent, dtype=torch.float32, **given
        )
        reader = package.GGUFReader(file)
    said = give_integers(model.requires_grad_(False), package, reader.tensors)
    if notes is not None and said is not None:
        notes.append(said)
    return model


def give_integers(model: Any, package: Any, tensors: Sequence[Any]) -> str | None:
    """Replace a model's layers and table by ones with the integers of a file's matrices.

    Args:
        model: a model with the dequantized numbers of the file's matrices.
        package: the module `gguf`.
        tensors: the file's tensors, from its reader.

    Returns:
        A sentence on what was kept; None if the file has no such integers.
    """
    matrices = [one for one in tensors if one.tensor_type.name in LAYOUTS]
    rows = {
        hash(numbers.tobytes()): (one, at)
        for one in matrices
        for at, numbers in enumerate(_unpacked(package, one.data, one.tensor_type))
    }
    kept, left = Counter[str](), Counter[str]()
    table: Any = model.get_input_embeddings()
    last = model.get_output_embeddings()
    if last is not None and last.weight is table.weight:
        last.weight = nn.Parameter(table.weight, requires_grad=False)
    for name, module in list(model.named_modules()):
        is_table = module is table and hasattr(table, "weight")
        if not (is_table or isinstance(module, nn.Linear)):
            continue
        weight: Array = module.weight.detach().numpy()
        from_file = [rows.get(hash(numbers.tobytes())) for numbers in weight]
        known = [one for one in from_file if one is not None]
        kinds = {tensor.tensor_type.name for tensor, _ in known}
        if len(known) < len(weight) or len(kinds) > 1:
            left.update(["mixed"] if kinds else [])
            continue
        (kind,) = kinds
        if kind not in (OF_TABLES if is_table else OF_LAYERS):
            left.update([kind])
            continue
        blocks = _blocks(package, weight, known)
        if is_table:
            integers = (blocks.integers + LAYOUTS[kind].least).to(torch.int8)
            numbers = torch.from_numpy(weight)
            made = table_of(table, OF_TABLES[kind], integers, blocks.scales, numbers)
            model.set_input_embeddings(made)
        else:
            model.set_submodule(name, layer_of(blocks, module.bias))
        kept.update([kind])
    return sentence(kept, left) if matrices else None


def _blocks(package: Any, weight: Array, rows: Sequence[Row]) -> Blocks:
    """Collect the integers of a matrix from its rows in the file."""
    kind = rows[0][0].tensor_type
    layout = LAYOUTS[kind.name]
    raw = np.stack([tensor.data.reshape(-1, tensor.data.shape[-1])[at] for tensor, at in rows])
    size = package.GGML_QUANT_SIZES[kind][1]
    blocks = raw.reshape(len(raw), -1, size)
    ends = []
    for byte in (layout.low, 0xFF - layout.low):
        blocks[:, :, layout.integers] = byte
        ends.append(_unpacked(package, raw, kind)[:, :: layout.group])
    least, scales = ends[0], (ends[1] - ends[0]) / layout.levels
    wide, begins = (np.repeat(x, layout.group, 1) for x in (scales, least))
    steps = np.divide(weight - begins, wide, out=np.zeros_like(weight), where=wide != 0)
    integers = np.rint(steps)
    if not np.abs(steps - integers).max() < 0.01:
        raise ParseFailure(
            f"a block of {kind.name} in the .gguf has no integers: "
            "its scale is not finite, or lost beside its least number"
        )
    parts = [torch.from_numpy(part) for part in (integers.astype(np.int16), scales, least)]
    return Blocks(parts[0], parts[1], parts[2])


def _unpacked(package: Any, data: Array, kind: Any) -> Array:
    """Return the dequantized numbers of matrices, `[rows, columns]`."""
    return package.dequantize(data.reshape(-1, data.shape[-1]), kind)


_SCALARS = dict(zip((0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12), "BbHhIif?Qqd", strict=True))
_TEXT, _ARRAY = 8, 9
_DEPTH = 4
MOST_AXES = 4
MOST_PARTS = 4096
"""Heads, experts and other parts of a layer; of layers there are no more than tensors."""


def check_header(data: memoryview) -> None:
    """Check that a header's counts and lengths fit the file, and that each layer has a tensor.

    Raises:
        ParseFailure: the counts do not fit the file, or the file is not a `.gguf`.
    """
    _Header(data).check()


class _Header:
    def __init__(self, data: memoryview) -> None:
        self.data, self.at = data, 0

    def check(self) -> None:
        magic, version = self.number("I"), self.number("I")
        if magic != 0x46554747 or version not in (2, 3):
            raise ParseFailure("the file is no .gguf of version 2 or 3, little-endian")
        tensors, entries = self.count(16), self.count(16)
        for _ in range(entries):
            name, value = self.text(), self.value(self.number("I"))
            most = tensors if name.endswith(".block_count") else max(tensors, MOST_PARTS)
            if name.endswith("_count") and isinstance(value, int | float) and not value <= most:
                raise ParseFailure(f"the .gguf says {name} = {value}, and has {tensors} tensors")
        for _ in range(tensors):
            self.text()
            axes = self.number("I")
            if axes > MOST_AXES:
                raise ParseFailure(f"a tensor of the .gguf has {axes} axes")
            self.take(8 * axes + 12)

    def take(self, size: int) -> memoryview:
        if size > len(self.data) - self.at:
            raise ParseFailure(f"the .gguf has {len(self.data)} bytes, too few for its header")
        self.at += size
        return self.data[self.at - size : self.at]

    def number(self, code: str) -> Any:
        return struct.unpack("<" + code, self.take(struct.calcsize("<" + code)))[0]

    def count(self, least: int) -> int:
        """Read a count, checked for items that take at least a certain number of bytes each."""
        count: int = self.number("Q")
        if count * least > len(self.data) - self.at:
            raise ParseFailure(f"the .gguf has {len(self.data)} bytes, too few for {count} entries")
        return count

    def text(self) -> str:
        try:
            return bytes(self.take(self.count(1))).decode()
        except UnicodeDecodeError:
            raise ParseFailure("a name in the .gguf is no UTF-8") from None

    def value(self, kind: int, depth: int = 0) -> Any:
        """Read a number or a string; skip the entries of arrays."""
        if kind == _TEXT:
            return self.text()
        if kind in _SCALARS:
            return self.number(_SCALARS[kind])
        if kind != _ARRAY or depth == _DEPTH:
            raise ParseFailure(
                f"the .gguf holds a value of type {kind}, or arrays nested too deeply"
            )
        of = self.number("I")
        if of in _SCALARS:
            size = struct.calcsize("<" + _SCALARS[of])
            self.take(self.count(size) * size)
        else:
            for _ in range(self.count(8)):
                self.value(of, depth + 1)
        return None
