"""Lower and save language models whose weights stay in their file: time, and anonymous memory.

    python bench/out_of_core.py                       # one billion parameters, fp32 and 8da4w
    python bench/out_of_core.py --models 3b --keep FOLDER --table docs/language_models.md

Writes random weights into a `.safetensors` file, maps it into ExecuTorch's own Llama, exports, and
measures `lower` and `save` in a separate process: CPU seconds (the least of `--rounds` saves) and
the peak *anonymous* memory (Linux, `RssAnon`: memory without files) above that before. `before` is
the memory before `lower`: torch, the caches' first values, and the memory of torch.export, which
with `strict=True` is each weight twice (Dynamo keeps clones of its inputs), and with `strict=False`
none.

A row takes the checkpoint and the file on disk (3b: 23 GB in fp32, 5 GB in 8da4w). Rows are kept in
`bench/results`, from where `--table` writes all of them; `--keep` is a folder in which checkpoints
stay for another run.
"""

from __future__ import annotations

import argparse
import json
import os
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from _memory import MEGABYTE, resident
from _report import between_markers, markdown, prepare, read, show, write
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

import stepwell
from executorch_llama import Size, Variant, example, llama_of, transforms_of

SIZES = {
    "tiny": Size(256, 704, 2, 4, 2, 1000, 256),
    "0.3b": Size(1024, 2816, 20, 16, 4, 32000, 2048),
    "1b": Size(2048, 5632, 22, 32, 4, 32000, 2048),
    "3b": Size(3072, 8192, 28, 24, 8, 32000, 2048),
    "7b": Size(4096, 11008, 32, 32, 32, 32000, 2048),
}
WEIGHTS = ("fp32", "8da4w")
_SAFETENSORS = {torch.float32: "F32", torch.int8: "I8"}
_BLOCK = 1 << 22


@contextmanager
def untouched() -> Generator[None]:
    """Layers made here ask for memory and never write to it, so that they have none."""
    with (
        mock.patch.object(nn.Linear, "reset_parameters", lambda self: None),  # pyright: ignore
        mock.patch.object(nn.Embedding, "reset_parameters", lambda self: None),  # pyright: ignore
    ):
        yield


def tables(model: nn.Module, weights: str, group: int) -> dict[str, tuple[torch.dtype, list[int]]]:
    """What a checkpoint of the model holds: names, types and shapes."""
    held: dict[str, tuple[torch.dtype, list[int]]] = {}
    linear = {name for name, child in model.named_modules() if isinstance(child, nn.Linear)}
    for name, tensor in model.named_parameters():
        layer, shape = name.rpartition(".")[0], list(tensor.shape)
        if weights == "8da4w" and layer in linear:
            held[name] = torch.int8, shape
            held[f"{layer}.scales"] = torch.float32, [shape[0], shape[1] // group]
        else:
            held[name] = torch.float32, shape
    return held


def write_random(path: Path, held: Mapping[str, tuple[torch.dtype, list[int]]]) -> None:
    """A `.safetensors` file of random numbers, a few at a time."""
    header: dict[str, Any] = {}
    end = 0
    for name, (dtype, shape) in held.items():
        begin, end = end, end + prod(shape) * dtype.itemsize
        header[name] = {
            "dtype": _SAFETENSORS[dtype],
            "shape": shape,
            "data_offsets": [begin, end],
        }
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    generator = torch.Generator().manual_seed(0)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for dtype, shape in held.values():
            for count in _blocks(prod(shape)):
                if dtype is torch.int8:
                    made = torch.randint(-8, 8, (count,), dtype=dtype, generator=generator)
                else:
                    made = torch.rand(count, generator=generator).mul_(0.02).add_(1e-3)
                file.write(made.numpy().data)


def _blocks(count: int) -> Iterator[int]:
    for begin in range(0, count, _BLOCK):
        yield min(_BLOCK, count - begin)


def mapped(path: Path) -> dict[str, torch.Tensor]:
    """Map the tensors of a `.safetensors` file."""
    (size,) = struct.unpack("<Q", path.open("rb").read(8))
    with path.open("rb") as file:
        file.seek(8)
        header = json.loads(file.read(size))
    dtypes = {name: dtype for dtype, name in _SAFETENSORS.items()}
    whole = torch.from_file(str(path), shared=False, size=path.stat().st_size, dtype=torch.uint8)
    held: dict[str, torch.Tensor] = {}
    for name, entry in header.items():
        begin, end = (8 + size + offset for offset in entry["data_offsets"])
        held[name] = whole[begin:end].view(dtypes[entry["dtype"]]).view(entry["shape"])
    return held


def load(model: Any, checkpoint: Mapping[str, torch.Tensor], group: int) -> None:
    """Give a model what is mapped; layers of weights in groups are made one block at a time.

    torchao fills the weights of each such layer with zeros before they are loaded.
    """
    from executorch.examples.models.llama.source_transformation import pre_quantization

    for prefix in (*(f"layers.{index}." for index in range(len(model.layers))), ""):
        block = model.get_submodule(prefix.removesuffix("."))
        held = {
            name.removeprefix(prefix): tensor
            for name, tensor in checkpoint.items()
            if name.startswith(prefix)
        }
        if group:
            pre_quantization.transform_linear_for_pre_quantization(
                block, held, group, torch.float32
            )
        missing = block.load_state_dict(held, strict=False, assign=True)
        assert not missing.unexpected_keys, missing


def anonymous() -> float:
    """Megabytes of this process's memory without files."""
    return (resident("RssAnon") or 0) / MEGABYTE


class Peak:
    """The most anonymous megabytes of this process, looked at every few milliseconds."""

    def __enter__(self) -> Peak:
        self.before = self.most = anonymous()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def _watch(self) -> None:
        while not self._stop.wait(0.005):
            self.most = max(self.most, anonymous())

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self.most = max(self.most, anonymous())

    @property
    def added(self) -> float:
        return self.most - self.before


def seconds(work: Callable[[], object]) -> float:
    """CPU seconds that something takes."""
    began = time.process_time()
    work()
    return time.process_time() - began


def measure(size: str, weights: str, folder: Path, rounds: int) -> dict[str, Any]:
    """One row, in a process of its own."""
    prepare()
    variant, shape = Variant("fp32"), replace(SIZES[size], group=32)
    with untouched():
        model = llama_of(variant, shape)
    file = folder / f"{size}-{weights}.safetensors"
    if not file.exists():
        write_random(file, tables(model, weights, shape.group))
    checkpoint = mapped(file)
    load(model, checkpoint, shape.group if weights == "8da4w" else 0)
    for transform in transforms_of(variant, shape):
        model = transform(model)
    model = model.eval().requires_grad_(False)
    inputs, dynamic = example(variant, shape)
    with torch.no_grad(), sdpa_kernel([SDPBackend.MATH]):
        program = torch.export.export(model, inputs, dynamic_shapes=dynamic, strict=False)
        program = program.run_decompositions({})
    del model
    out = folder / f"{size}-{weights}.pte"
    small = torch.export.export(nn.Linear(2, 2), (torch.zeros(1, 2),))
    stepwell.lower(small, "xnnpack").save(out)  # Imports what lowering and saving need.
    out.unlink()
    with Peak() as lowering:
        began = time.process_time()
        lowered = stepwell.lower(program, "xnnpack")
        lower_seconds = time.process_time() - began
    print(f"lowered in {lower_seconds:.1f} s, {anonymous():.0f} MB", file=sys.stderr, flush=True)
    with Peak() as saving:
        times = [seconds(lambda: lowered.save(out))]
    for _ in range(rounds - 1):
        out.unlink()  # The disk need not hold two.
        times.append(seconds(lambda: lowered.save(out)))
    shapes = [held.shape for name, held in checkpoint.items() if "scales" not in name]
    largest = max(held.nbytes for held in checkpoint.values())
    return {
        "model": size,
        "weights": weights,
        "parameters": sum(map(prod, shapes)),
        "file_mb": out.stat().st_size / 2**20,
        "largest_mb": largest / 2**20,
        "lower_s": lower_seconds,
        "save_s": min(times),
        "source_mb": file.stat().st_size / 2**20,
        "before_mb": lowering.before,
        "lower_anonymous_mb": lowering.added,
        "save_anonymous_mb": saving.added,
    }


def row_of(size: str, weights: str, folder: Path, rounds: int) -> dict[str, Any]:
    """A row, measured in a process of its own; the checkpoint may be in the folder already."""
    command = [sys.executable, __file__, "--row", size, weights, str(folder)]
    command += ["--rounds", str(rounds)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=os.environ)
    if done.returncode:
        raise SystemExit(f"{size} {weights} was not measured")
    return json.loads(done.stdout.splitlines()[-1])


def merged(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """These rows and those of other models and weights that were measured before."""
    found = {(row["model"], row["weights"]): row for row in (*read("out_of_core"), *rows)}
    order = [*SIZES]
    return sorted(found.values(), key=lambda r: (r["weights"], order.index(r["model"])))


HEADS = (
    *("model", "checkpoint MB", "file MB", "lower s", "save s", "before MB", "lower +MB"),
    *("save +MB", "allowed MB"),
)
KEYS = (
    *("source_mb", "file_mb", "lower_s", "save_s", "before_mb", "lower_anonymous_mb"),
    "save_anonymous_mb",
)


def cells(row: Mapping[str, Any]) -> list[Any]:
    """A row as the table has it."""
    name = f"{row['parameters'] / 1e9:.2g} billion, {row['weights']}"
    return [name, *(row[key] for key in KEYS), 3 * row["largest_mb"] + 300]


def digits(value: Any) -> str:
    """A number as a document has it."""
    if isinstance(value, str):
        return value
    return f"{value:.0f}" if value >= 100 else f"{value:.2f}" if value < 10 else f"{value:.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="*", choices=SIZES, default=["1b"])
    parser.add_argument("--weights", nargs="+", choices=WEIGHTS, default=WEIGHTS)
    parser.add_argument("--rounds", type=int, default=2, help="of saving")
    parser.add_argument("--keep", type=Path, help="a folder for checkpoints that stay")
    parser.add_argument("--table", type=Path, help="write all rows between a document's markers")
    parser.add_argument("--row", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.row:
        size, weights, folder = arguments.row
        print("\n" + json.dumps(measure(size, weights, Path(folder), arguments.rounds)))
        return
    rows: list[dict[str, Any]] = []
    for size in arguments.models:
        for weights in arguments.weights:
            with tempfile.TemporaryDirectory() as beside:
                rows.append(row_of(size, weights, arguments.keep or Path(beside), arguments.rounds))
            write("out_of_core", merged(rows))
    show(
        "Weights that stay in their file",
        HEADS,
        [cells(row) for row in merged(rows)],
        note="CPU seconds of one thread; anonymous megabytes, those of `lower` and `save` above "
        "what stood before; allowed is three times the largest weight and 300 MB",
    )
    if arguments.table:
        lines = markdown(HEADS, [[digits(value) for value in cells(row)] for row in merged(rows)])
        between_markers(arguments.table, "out-of-core", lines)


if __name__ == "__main__":
    main()
