"""Constants are computed where the file has them, and the file has the bytes it had otherwise."""

import copy
import importlib
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from dialect_cases import all_cases
from eager import Function, lower

import stepwell
from stepwell.backends.executorch.container import NamedData
from stepwell.backends.executorch.reading.read import read_container
from stepwell.backends.executorch.writing.serialize import to_bytes, to_parts
from stepwell.backends.executorch.writing.weight_segment import Tail
from stepwell.backends.xnnpack.emit import payload, room
from stepwell.backends.xnnpack.pte import to_container, to_pte
from stepwell.dialects.xnnpack import DelegateOp
from stepwell.ir.core import WeightOp
from stepwell.ir.weight_bytes import dense_bytes
from stepwell.ir.weights import Derived, WeightStore

RECIPES_OF = stepwell.PIPELINES["xnnpack"]
"""Its rewrites register the recipes of `DERIVED`."""
KERNEL = torch.randn(500, 125, 2, 2, generator=torch.Generator().manual_seed(0))
"""More rows than are written at a time."""

NORM: dict[str, Any] = {"given": ["running_var", "weight"], "epsilon": 1e-5}


def store() -> WeightStore:
    weights = WeightStore()
    weights.add("kernel", KERNEL)
    weights.add("matrix", KERNEL.reshape(500, 500))
    weights.add("upright", KERNEL.reshape(500, 500).t())
    weights.add("halves", KERNEL.half())
    weights.add("positive", KERNEL[:, 0, 0, 0].abs() + 0.1)
    weights.add("scale", KERNEL[:, 1, 0, 0].clone())
    weights.add("number", torch.tensor(3.0))
    weights.add("nothing", torch.zeros(3, 0))
    return weights


def scaled(weights: WeightStore, transposed_groups: int = 0) -> str:
    statistics = ["positive", "scale"]
    if transposed_groups:
        for index, key in enumerate(statistics):
            statistics[index] = rows(weights, key, 0, 125 * transposed_groups)
    return weights.derive(
        "scale-output-channels",
        ["kernel", *statistics],
        **NORM,
        transposed_groups=transposed_groups,
    )


def rows(weights: WeightStore, key: str, start: int, stop: int) -> str:
    return weights.derive("rows", [key], start=start, stop=stop)


DERIVED: dict[str, Callable[[WeightStore], str]] = {
    "a kernel scaled": scaled,
    "a transposed kernel scaled": lambda w: scaled(w, 4),
    "a kernel scaled and laid out": lambda w: w.derive("filter_ohwi", [scaled(w)]),
    "a kernel scaled and permuted": lambda w: w.derive(
        "transpose", [scaled(w)], order=[0, 2, 3, 1]
    ),
    "rows permuted": lambda w: w.derive("transpose", ["kernel"], order=[1, 0, 2, 3]),
    "columns scaled": lambda w: w.derive("scale_columns", ["matrix", "scale"]),
    "columns scaled, then all": lambda w: w.derive(
        "scale_by_number", [w.derive("scale_columns", ["matrix", "scale"])], factor=0.3
    ),
    "rows": lambda w: rows(w, "kernel", 10, 490),
    "rows of columns scaled": lambda w: rows(
        w, w.derive("scale_columns", ["matrix", "scale"]), 5, 499
    ),
    "rows of rows scaled, laid out": lambda w: w.derive(
        "filter_ohwi", [rows(w, rows(w, scaled(w), 20, 480), 7, 440)]
    ),
    "patches": lambda w: w.derive("filter_rows", ["kernel"], channels_first=True),
    "patches in order": lambda w: w.derive("filter_rows", ["kernel"], channels_first=False),
    "strides": lambda _: "upright",
    "halves": lambda _: "halves",
    "a number": lambda _: "number",
    "no elements": lambda _: "nothing",
}


@pytest.mark.parametrize("name", DERIVED)
def test_a_weight_written_in_place_has_the_bytes_and_the_hash_of_the_tensor(name: str) -> None:
    whole, in_place = store(), store()
    key = DERIVED[name](in_place)
    assert DERIVED[name](whole) == key
    expected = dense_bytes(whole.get(key))
    place = bytearray(len(expected))
    assert in_place.write(key, memoryview(place)) == whole.content_hash(key)
    assert bytes(place) == expected
    assert in_place.content_hash(key) == whole.content_hash(key)
    again = bytearray(len(expected))
    assert in_place.write(key, memoryview(again)) == whole.content_hash(key)
    assert again == place
    assert torch.equal(in_place.get(key), whole.get(key))


def test_what_is_written_in_place_is_kept_nowhere_else() -> None:
    weights = store()
    key = weights.derive("filter_ohwi", [scaled(weights)])
    weights.write(key, memoryview(bytearray(KERNEL.nbytes)))
    assert weights.counts.evaluated == 2
    assert not kept(weights)


def kept(weights: WeightStore) -> set[str]:
    """The derived entries whose tensors are in memory."""
    entries = weights.entries.items()
    return {key for key, e in entries if isinstance(e, Derived) and e.tensor is not None}


def test_what_an_emitter_reads_is_kept_for_other_entries_only() -> None:
    weights = store()
    first = scaled(weights)
    second = weights.derive("filter_depthwise", [first])
    weights.read(second)
    assert weights.counts.kept == 0 == len(kept(weights))
    third = weights.derive("scale_by_number", [first], factor=2.0)
    weights.read(second)
    assert kept(weights) == {first}
    assert weights.counts.kept == KERNEL.nbytes
    weights.read(third)
    assert weights.counts.evaluated == 5


def test_rows_of_a_large_weight_are_computed_some_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole, by_rows = store(), store()
    assert [some.shape[0] for some in whole.rows(scaled(whole))] == [500]
    monkeypatch.setattr("stepwell.ir.weights.KEPT", 0)
    key = scaled(by_rows)
    parts = list(by_rows.rows(key))
    assert len(parts) > 1 and not kept(by_rows)
    assert torch.equal(torch.cat(parts), whole.get(key))


MODELS = [
    ("resnet:resnet18", "xnnpack"),
    ("mobilevit:mobilevit_xxs", "xnnpack"),
    ("deit:deit_small_depth2", "xnnpack"),
    ("llama:llama_block", "xnnpack"),
    ("mobilevit:mobilevit_xxs", "tosa-1.0+fp"),
]


@pytest.mark.parametrize(("name", "target"), MODELS)
def test_each_element_of_a_derived_weight_is_computed_once(name: str, target: str) -> None:
    file, function = name.split(":")
    module, inputs = getattr(importlib.import_module(file), function)()
    lowered = stepwell.lower(torch.export.export(module, inputs), target)
    weights = lowered.program.weights
    if file == "resnet":
        read = weights.counts.elements.values()
        assert max(read, default=0) <= 512, "a pass read more than biases, and nothing came of it"
    lowered.emit()
    computed = {key: count for key, count in weights.counts.elements.items() if key in weights}
    assert {key: weights.get(key).numel() for key in computed} == computed
    if file == "resnet":
        recipes = Counter(recipe[0] for key in computed if (recipe := weights.recipe_of(key)))
        assert recipes["scale-output-channels"] == 20


def test_a_payload_and_its_constants_are_the_same_in_place() -> None:
    kinds: set[bool] = set()
    for case in all_cases():
        apart, trial = case.trial(), case.trial()
        if not any(isinstance(op, WeightOp) for op in apart.delegate.block.ops):
            continue
        expected = payload(apart.delegate, apart.weights, embed_unpacked_constants=True)
        tail = Tail(room(trial.delegate))
        found = payload(trial.delegate, trial.weights, embed_unpacked_constants=True, tail=tail)
        assert found.payload == expected.payload, case.name
        assert contents(found.named_data) == contents(expected.named_data), case.name
        kinds.update(name.endswith(".int4") for name in found.named_data)
    assert kinds == {True, False}


def contents(named: Mapping[str, NamedData]) -> list[tuple[str, bytes]]:
    return [(name, bytes(held.data)) for name, held in named.items()]


class Twins(torch.nn.Module):
    """An embedding, which stays outside, and three layers, the first two of them equal."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(50, 33)
        layer, relu = torch.nn.Linear(33, 33), torch.nn.ReLU()
        last = torch.nn.Linear(33, 5)
        self.layers = torch.nn.Sequential(layer, relu, copy.deepcopy(layer), relu, last)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.layers(self.embedding(tokens).relu())


@pytest.fixture(scope="module")
def twins() -> stepwell.Lowered:
    exported = torch.export.export(Twins().eval(), (torch.arange(7),))
    return stepwell.lower(exported, "xnnpack")


def test_a_pte_and_a_saved_file_are_what_joining_the_container_gives(
    twins: stepwell.Lowered, tmp_path: Path
) -> None:
    joined = to_bytes(to_container(twins.program))
    assert twins.to_pte() == twins.to_pte() == joined
    twins.save(tmp_path / "twins.pte")
    assert (tmp_path / "twins.pte").read_bytes() == joined
    assert len(to_container(twins.program).named_data) == 4


def room_for_nothing(delegate: DelegateOp) -> int:
    return 0


@pytest.mark.parametrize(
    ("where", "value"),
    [("executorch.writing.weight_segment._HEADER", 0), ("xnnpack.pte.room", room_for_nothing)],
)
def test_a_pte_that_needs_more_room_than_expected_is_the_same(
    where: str, value: Any, twins: stepwell.Lowered, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(f"stepwell.backends.{where}", value)
    joined = to_bytes(to_container(twins.program))
    assert to_pte(twins.program) == joined
    twins.save(tmp_path / "twins.pte")
    assert (tmp_path / "twins.pte").read_bytes() == joined


def test_the_end_of_a_large_file_stays_where_it_was_written(
    twins: stepwell.Lowered, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("stepwell.backends.executorch.writing.weight_segment._LARGE", 0)
    pte = twins.to_pte()
    assert len(pte) > 1 << 20
    twins.save(tmp_path / "twins.pte")
    assert (tmp_path / "twins.pte").read_bytes() == pte
    found, expected = read_container(pte).named_data, to_container(twins.program).named_data
    assert contents(found) == contents(expected)


@pytest.mark.skipif(not hasattr(os, "posix_fadvise"), reason="this system takes no advice on files")
def test_a_file_too_large_for_the_memory_leaves_it_as_it_is_written(
    twins: stepwell.Lowered, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tail, stretch = "stepwell.backends.executorch.writing.weight_segment", 4096
    advised: list[tuple[int, int]] = []
    monkeypatch.setattr(f"{tail}._STRETCH", stretch)
    monkeypatch.setattr(
        os, "posix_fadvise", lambda _, begin, size, __: advised.append((begin, size))
    )
    twins.save(tmp_path / "kept.pte")
    assert not advised
    monkeypatch.setattr(f"{tail}._memory", lambda: 0)
    twins.save(tmp_path / "twins.pte")
    assert (tmp_path / "twins.pte").read_bytes() == twins.to_pte()
    written, end = advised[::2], 0
    for begin, size in written:
        assert begin == end and size % stretch == 0
        end += size
    assert end > 33 * 33 * 4 // stretch * stretch


def filled(tail: Tail, name: str, data: bytes) -> memoryview:
    place = tail.place(len(data))
    place[:] = data
    return tail.keep(name, place)


def parts(front: bytes, segments: Sequence[memoryview], paddings: Sequence[int]) -> list[Any]:
    gaps = [bytes(size) for size in paddings]
    return [front, segments[0], *(p for pair in zip(gaps, segments[1:], strict=True) for p in pair)]


def test_a_tail_has_every_name_once_and_its_segments_at_multiples_of_128() -> None:
    tail = Tail(3 * 256)
    first = filled(tail, "a", b"a" * 130)
    assert filled(tail, "a", b"x" * 130) is first
    second = tail.keep("b", b"bb")
    third = filled(tail, "c", b"c" * 5)
    data = tail.file(parts(b"front" * 100, [first, second, third], [126, 126]))
    assert data == b"front" * 100 + b"a" * 130 + bytes(126) + b"bb" + bytes(126) + b"c" * 5


def test_a_tail_with_too_little_room_gives_the_same_file() -> None:
    tail = Tail(100)
    segments = [filled(tail, name, name.encode() * 70) for name in "abc"]
    data = tail.file(parts(b"front", segments, [58, 58]))
    assert data == b"front" + b"a" * 70 + bytes(58) + b"b" * 70 + bytes(58) + b"c" * 70


def test_named_data_that_is_not_in_the_tail_stands_before_it(twins: stepwell.Lowered) -> None:
    """A kernel's constant that a delegate reads, too, is not written again into the tail."""
    container, tail = to_container(twins.program), Tail(3 * 256)
    first, second = (NamedData(filled(tail, name, name.encode() * 70), 16) for name in "ab")
    named = {"a": first, **container.named_data, "b": second}
    expected = contents(named)
    data = tail.file(to_parts(replace(container, named_data=named), tail=tail.segments))
    assert dict(contents(read_container(data).named_data)) == dict(expected)


def test_a_tail_without_segments_is_its_front() -> None:
    assert Tail(0).file([b"front", b"", b" and more"]) == b"front and more"


def three(x: torch.Tensor, *layers: torch.nn.Module) -> torch.Tensor:
    return torch.cat([layer(x) for layer in layers], -1)


def test_large_weights_are_stored_once_where_they_are_equal_throughout(tmp_path: Path) -> None:
    """Three large layers: one like the first, and one that differs where no sample is taken."""
    layer = torch.nn.Linear(500, 600, bias=False)
    layers = [layer, copy.deepcopy(layer), copy.deepcopy(layer)]
    layers[2].weight.data.view(-1)[5] += 1
    model, x = Function(three, *layers).eval(), torch.randn(2, 500)
    lowered = lower(model, x)
    lowered.save(tmp_path / "three.pte")
    pte = lowered.to_pte()
    assert (tmp_path / "three.pte").read_bytes() == pte
    size = 500 * 600 * 4
    assert 2 * size < len(pte) < 2.1 * size
    torch.testing.assert_close(lowered.run(x)[0], model(x), rtol=1e-5, atol=1e-5)


def test_a_saved_file_tells_each_weight_before_it_is_written(tmp_path: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.Linear(32, 16))
    exported = torch.export.export(model, (torch.randn(2, 64),))
    told: list[tuple[str, int, int]] = []
    lowered = stepwell.lower(exported, "xnnpack")
    lowered.save(tmp_path / "m.pte", progress=lambda *said: told.append(said))
    assert len(told) >= 4
    done, of = [said[1] for said in told], {said[2] for said in told}
    assert done == sorted(done) and done[0] == 0 and len(of) == 1
    assert 4 * 64 * 32 <= done[-1] <= of.pop()
    assert (tmp_path / "m.pte").read_bytes() == lowered.to_pte()
