"""Files made to harm a reader, each read in a process of few resources.

    python tests/fuzz/hostile.py FOLDER

prints a line for each: its name, `refused` or `read`, and seconds.
"""

import json
import resource
import struct
import sys
import time
import warnings
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import flatbuffers
import torch

import stepwell
from stepwell.backends.tosa.flatbuffer import tosa_schema
from stepwell.loaders.models import open_model

DEEP = 100_000
SIGNATURE = "func.func @forward(%x: tensor<2xf32>) -> tensor<2xf32> {\n"
TAIL = "  func.return %x : tensor<2xf32>\n}\n"

HUGE = "tensor<1000000x1000000xf32>"


def of_type(type_: str) -> str:
    """A function that gives back what it takes."""
    return (SIGNATURE + TAIL).replace("tensor<2xf32>", type_)


def symbolic(size: str) -> str:
    """A type whose one size is an expression."""
    return f'tensor<?xf32, #stepwell.shape<["{size}"]>>'


TEXTS: dict[str, str] = {
    "parentheses": "(" * DEEP,
    "nested lists": SIGNATURE + "  %y = aten.sum.dim_IntList(%x, " + "[" * DEEP,
    "nested regions": '"builtin.module"() ({' * DEEP + "}) : () -> ()" * DEEP,
    "nested attributes": f"module attributes {{a = {'[' * DEEP}{']' * DEEP}}} {{}}",
    "nested dictionaries": f"module attributes {{a = {'{b = ' * DEEP}1{'}' * DEEP}}} {{}}",
    "nested types": of_type("tuple<" * DEEP),
    "nested modules": "module {" * DEEP + "}" * DEEP,
    "a size of 10^18": of_type(f"tensor<{10**18}xf32>"),
    "sizes whose product is 10^72": of_type(f"tensor<{'x'.join([str(10**18)] * 4)}xf32>"),
    "a constant of 10^12 elements": of_type("tensor<2xf32>").replace(
        "  func", f'  %c = "tosa.const"() <{{values = dense<1.0> : {HUGE}}}> : () -> {HUGE}\n  func'
    ),
    "a symbolic size of parentheses": of_type(symbolic("(" * DEEP + "s0" + ")" * DEEP)),
    "a tower of powers": of_type(symbolic("9**9**9**9**9")),
    "a sum of many sizes": of_type(symbolic("+".join(f"s{i}" for i in range(DEEP)))),
    "a number of 10^6 digits": SIGNATURE
    + f"  %y = aten.add.Scalar(%x, {'9' * 10**6}) : (tensor<2xf32>) -> tensor<2xf32>\n"
    + TAIL,
}

WEIGHT = """func.func @forward() -> tensor<2xf32> {
  %w = stepwell.weight <"w"> "parameter" : tensor<2xf32>
  func.return %w : tensor<2xf32>
}
"""


def header(text: str, length: int | None = None, data: bytes = bytes(8)) -> bytes:
    """A safetensors file of a header, which may lie about its length."""
    held = text.encode()
    return struct.pack("<Q", len(held) if length is None else length) + held + data


def entry(dtype: str = "F32", shape: object = (2,), offsets: object = (0, 8)) -> str:
    """One tensor of a safetensors header."""
    return json.dumps({"dtype": dtype, "shape": shape, "data_offsets": offsets})


WEIGHTS: dict[str, bytes] = {
    "a header of 2^63 bytes": header("{}", 2**63),
    "a header of 2^64 - 1 bytes": header("{}", 2**64 - 1),
    "a header longer than the file": header("{}", 1 << 30),
    "overlapping tensors": header(f'{{"v": {entry()}, "w": {entry()}}}'),
    "one key twice": header(f'{{"w": {entry()}, "w": {entry("I32")}}}'),
    "an unknown type": header(f'{{"w": {entry("F33")}}}'),
    "negative offsets": header(f'{{"w": {entry(offsets=(-8, 0))}}}'),
    "offsets backwards": header(f'{{"w": {entry(offsets=(8, 0))}}}'),
    "a shape larger than its data": header(f'{{"w": {entry(shape=(1 << 40,))}}}'),
    "a shape whose size overflows": header(f'{{"w": {entry(shape=(1 << 62, 1 << 62))}}}'),
    "a negative size": header(f'{{"w": {entry(shape=(-2, -1))}}}'),
    "a deep header": header('{"w": ' + "[" * DEEP),
    "data before the first tensor": header(f'{{"w": {entry(offsets=(8, 16))}}}', data=bytes(16)),
    "no data": header(f'{{"w": {entry()}}}', data=b""),
}


def shared_subtree(count: int = 2000) -> bytes:
    """A TOSA flatbuffer of few bytes that unfolds to `count`³ operators."""
    tables = tosa_schema().tables

    def slot(table: str, field: str) -> int:
        return [f.name for f in tables[table]].index(field)

    b = flatbuffers.Builder()

    def table(name: str, **vectors: int) -> int:
        b.StartObject(len(tables[name]))
        for field, offset in vectors.items():
            b.PrependUOffsetTRelativeSlot(slot(name, field), offset, 0)
        return b.EndObject()

    def many(item: int) -> int:
        b.StartVector(4, count, 4)
        for _ in range(count):
            b.PrependUOffsetTRelative(item)
        return b.EndVector()

    block = table("TosaBasicBlock", operators=many(table("TosaOperator")))
    region = table("TosaRegion", blocks=many(block))
    b.Finish(table("TosaGraph", regions=many(region)), file_identifier=b"TOSA")
    return bytes(b.Output())


def archives(folder: Path) -> dict[str, Path]:
    """`.pt2` files with names that climb, lie or stand twice."""
    linear = torch.nn.Linear(3, 2)
    good = folder / "good.pt2"
    torch.export.save(torch.export.export(linear, (torch.randn(1, 3),)), good)
    made: dict[str, Path] = {}

    def archive(name: str, *more: tuple[str, bytes], compression: int = zipfile.ZIP_STORED) -> None:
        place = folder / f"{name.replace(' ', '_')}.pt2"
        place.write_bytes(good.read_bytes())
        with warnings.catch_warnings(), zipfile.ZipFile(place, "a", compression) as file:
            warnings.simplefilter("ignore")
            for entry_name, data in more:
                file.writestr(entry_name, data)
        made[name] = place

    with zipfile.ZipFile(good) as file:
        model = next(n for n in file.namelist() if "/models/" in n)
        text = file.read(model)
    root = model.partition("/")[0]
    archive("a name that climbs", (f"{root}/../../escaped", b"x"))
    archive("a name that climbs the other way", (f"{root}/..\\escaped", b"x"))
    archive("an absolute name", (str(folder / "escaped"), b"x"))
    archive("a second model of the same name", (model, text))
    archive("a second model under another root", (model.replace(root, "other", 1), text))
    archive("a second model in capitals", (model.replace("models", "MODELS"), text))
    bomb = (f"{root}/bomb.json", bytes(1 << 28))
    archive("a bomb", bomb, compression=zipfile.ZIP_DEFLATED)
    deep = (f"{root}/deep.json", b"[" * DEEP)
    archive("deep JSON", deep)
    data = good.read_bytes()
    lying = folder / "lying.pt2"
    at = data.rindex(b"PK\x01\x02")
    lying.write_bytes(data[: at + 20] + struct.pack("<II", 1 << 31, 1 << 31) + data[at + 28 :])
    made["an entry that lies about its size"] = lying
    return made


def cases(folder: Path) -> Iterator[tuple[str, Callable[[], object]]]:
    """Each file and how it is read."""
    for name, text in TEXTS.items():
        yield f"text: {name}", partial(read_text, text)
    for name, data in WEIGHTS.items():
        yield f"weights: {name}", partial(read_weights, folder, data)
    yield "tosa: a subtree shared without end", partial(stepwell.read_tosa, shared_subtree())
    for name, path in archives(folder).items():
        yield f"pt2: {name}", partial(open_model, str(path))


def read_text(text: str) -> object:
    """Parse, verify, print, run."""
    program = stepwell.parse(text)
    program.verify()
    return str(program), program.run(torch.ones(2))


def read_weights(folder: Path, data: bytes) -> object:
    """A program beside its weights, every one of which is looked at."""
    (folder / "m.mlir").write_text(WEIGHT)
    (folder / "m.safetensors").write_bytes(data)
    program = stepwell.load(folder / "m.mlir")
    program.verify()
    return program.run()


def main(folder: Path) -> None:
    """Read each, with a gigabyte more than the libraries hold."""
    every = list(cases(folder))
    held = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (held + (1 << 30),) * 2)
    for name, read in every:
        started = time.perf_counter()
        try:
            read()
            outcome = "read"
        except stepwell.StepwellError as error:
            assert all(problem.fact for problem in error.problems)
            assert len(str(error)) < 20_000, f"{name}: an error of {len(str(error))} letters"
            outcome = "refused"
        print(f"{name}\t{outcome}\t{time.perf_counter() - started:.2f}", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
