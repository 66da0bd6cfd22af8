"""A program on disk comes back the same: text, locations, tensors, aliases and strides."""

import json
import os
from pathlib import Path

import pytest
import safetensors.torch
import torch
from xdsl.dialects.builtin import FileLineColLoc, IntAttr, ModuleOp, NameLoc, StringAttr
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Region

import stepwell
from stepwell.ir.core import WeightOp
from stepwell.ir.diagnostics import ParseFailure, StepwellError
from stepwell.ir.dtypes import ELEMENT_TYPES
from stepwell.ir.program import Program
from stepwell.ir.syntax.storage import pack_tensors, unpack_tensors
from stepwell.ir.syntax.text import structurally_equal, to_text
from stepwell.ir.types import tensor_like
from stepwell.ir.weights import WeightStore, recipe


@recipe("test.storage.double")
def _double(source: torch.Tensor) -> torch.Tensor:
    return source * 2


def program_over(tensors: dict[str, torch.Tensor], store: WeightStore | None = None) -> Program:
    """A method that reads every tensor of a store."""
    weights = store if store is not None else WeightStore()
    block = Block()
    for key, tensor in tensors.items():
        if key not in weights:
            weights.add(key, tensor)
        op = WeightOp(key, tensor_like(tensor), "parameter")
        op.location = NameLoc(
            StringAttr(key), FileLineColLoc(StringAttr("m.py"), IntAttr(7), IntAttr(0))
        )
        block.add_op(op)
    block.add_op(ReturnOp())
    return Program(ModuleOp([FuncOp("forward", ([], []), Region(block))]), weights)


def same(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Equal in type, shape, strides, laziness and bytes."""
    return (
        left.dtype == right.dtype
        and left.shape == right.shape
        and left.stride() == right.stride()
        and left.is_conj() == right.is_conj()
        and left.is_neg() == right.is_neg()
        and dense(left) == dense(right)
    )


def dense(tensor: torch.Tensor) -> bytes:
    flat = tensor.resolve_conj().resolve_neg().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""


def awkward() -> dict[str, torch.Tensor]:
    base = torch.randn(10, 4)
    lazy = torch.randn(3, dtype=torch.complex64)
    return {
        "base": base,
        "tied": base,
        "transposed": base.t(),
        "row": base[2:5, 1],
        "bytes": base.view(torch.int32)[3],
        "permuted": torch.randn(3, 4).t(),
        "window of a large memory": torch.randn(1000)[500:510],
        "expanded": torch.randn(3).expand(4, 3),
        "channels last": torch.randn(1, 3, 4, 4).to(memory_format=torch.channels_last),
        "complex": lazy,
        "conjugate": lazy.conj(),
        "imaginary, negated": lazy.conj().imag,
        "scalar": torch.tensor(3.0),
        "nothing": torch.empty(0, 3),
        "nothing transposed": torch.empty(3, 0).t(),
        'é\n"key"': torch.zeros(1, dtype=torch.bool),
        "memory:0": torch.arange(3),
        "blocks.0.weight": torch.randn(2, 2).to(torch.bfloat16),
    }


def test_tensors_come_back_with_strides_and_aliases(tmp_path: Path) -> None:
    tensors = awkward()
    program = program_over(tensors)
    program.save(tmp_path / "model.mlir")
    back = stepwell.load(tmp_path / "model.mlir")
    assert set(back.weights) == set(tensors)
    for key, tensor in tensors.items():
        assert same(back.weights.get(key), tensor), key
    held = {key: back.weights.get(key) for key in tensors}
    for left, one in tensors.items():
        for right, two in tensors.items():
            shared = one.untyped_storage()._cdata == two.untyped_storage()._cdata
            again = held[left].untyped_storage()._cdata == held[right].untyped_storage()._cdata
            assert shared == again, (left, right)
    held["base"][2, 1] = 42.0
    assert held["tied"][2, 1] == held["transposed"][1, 2] == held["row"][0] == 42.0


@pytest.mark.parametrize("dtype", [getattr(torch, name) for name in ELEMENT_TYPES], ids=str)
def test_every_type_comes_back(dtype: torch.dtype, tmp_path: Path) -> None:
    raw = torch.arange(64, dtype=torch.uint8)
    tensor = (raw % 2).bool() if dtype == torch.bool else raw.view(dtype)
    (tmp_path / "w.safetensors").write_bytes(pack_tensors({"w": tensor}))
    back = unpack_tensors(tmp_path / "w.safetensors")["w"]
    assert back.dtype == dtype and back.shape == tensor.shape
    assert torch.equal(back.view(torch.uint8), tensor.view(torch.uint8))


def test_text_and_locations_come_back(tmp_path: Path) -> None:
    program = program_over(awkward())
    program.save(tmp_path / "model.mlir")
    back = stepwell.load(tmp_path / "model.mlir")
    assert structurally_equal(program.module, back.module, locations=True)
    assert 'loc("base"("m.py":7:0))' in (tmp_path / "model.mlir").read_text()


def test_plain_tensors_are_read_by_any_safetensors_reader(tmp_path: Path) -> None:
    weight = torch.randn(3, 4)
    program_over({"fc.weight": weight}).save(tmp_path / "m.mlir")
    assert torch.equal(safetensors.torch.load_file(tmp_path / "m.safetensors")["fc.weight"], weight)


def test_only_the_bytes_that_are_used_are_stored() -> None:
    assert len(pack_tensors({"w": torch.randn(100_000)[50_000:50_010]})) < 1_000


def test_derived_weights_are_evaluated_once_and_unused_ones_are_not_stored(tmp_path: Path) -> None:
    store = WeightStore()
    store.add("w", torch.ones(3))
    store.add("unused", torch.ones(3))
    key = store.derive("test.storage.double", ["w"])
    program = program_over({key: torch.ones(3)}, store)
    program.save(tmp_path / "m.mlir")
    program.save(tmp_path / "m.mlir")
    assert store.counts.evaluated == 1
    back = stepwell.load(tmp_path / "m.mlir")
    assert set(back.weights) == {key}
    assert back.weights.get(key).tolist() == [2.0, 2.0, 2.0]


def test_print_parse_and_clone_touch_no_weight() -> None:
    weight = torch.randn(4, 4)
    store = WeightStore()
    store.add("w", weight)
    key = store.derive("test.storage.double", ["w"])
    program = program_over({"w": weight, key: weight}, store)
    address, version = weight.data_ptr(), weight._version
    back = stepwell.parse(str(program), program.weights)
    twin = program.clone()
    assert to_text(back.module) == to_text(twin.module) == str(program)
    assert back.weights.get("w") is weight and twin.weights.get("w") is weight
    assert weight.data_ptr() == address and weight._version == version
    assert store.counts.evaluated == store.counts.hashed == 0


def test_a_missing_weights_file_is_named(tmp_path: Path) -> None:
    program_over({"w": torch.ones(2)}).save(tmp_path / "m.mlir")
    os.unlink(tmp_path / "m.safetensors")
    with pytest.raises(StepwellError, match=r'first is "w"\n  at m\.safetensors'):
        stepwell.load(tmp_path / "m.mlir")
    with pytest.raises(StepwellError, match="cannot read"):
        stepwell.load(tmp_path / "none.mlir")


def test_a_folder_that_is_not_there_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(StepwellError, match="cannot write"):
        program_over({"w": torch.ones(2)}).save(tmp_path / "none" / "m.mlir")
    with pytest.raises(StepwellError, match=r"pass the path of its \.mlir"):
        program_over({}).save(tmp_path / "m.safetensors")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "views",
    [
        "[",
        '{"v": {}}',
        '{"v": 5}',
        "[1]",
        '{"v": {"memory": "no", "dtype": "float32", "shape": [], "stride": [], "offset": 0}}',
        '{"v": {"memory": "w", "dtype": "float32", "shape": [9], "stride": [1], "offset": 0}}',
        '{"v": {"memory": "w", "dtype": "float32", "shape": [2], "stride": [1], "offset": 7}}',
        '{"v": {"memory": "w", "dtype": "float32", "shape": [2], "stride": [-1], "offset": 2}}',
        '{"v": {"memory": "w", "dtype": "float32", "shape": [2], "stride": [1], "offset": -1}}',
        '{"v": {"memory": "w", "dtype": "float32", "shape": [1e99], "stride": [1], "offset": 0}}',
        '{"v": {"memory": "w", "dtype": "nn", "shape": [1], "stride": [1], "offset": 0}}',
        '{"v": {"memory": "w", "dtype": "no_such", "shape": [1], "stride": [1], "offset": 0}}',
    ],
)
def test_a_view_outside_its_memory_is_refused(views: str, tmp_path: Path) -> None:
    data = safetensors.torch.save({"w": torch.ones(8)}, {"stepwell.views": views})
    (tmp_path / "w.safetensors").write_bytes(data)
    with pytest.raises(ParseFailure, match="views cannot be read"):
        unpack_tensors(tmp_path / "w.safetensors")


def test_damaged_files_are_parse_failures(tmp_path: Path) -> None:
    place = tmp_path / "m.mlir"
    program_over(awkward()).save(place)
    data = (tmp_path / "m.safetensors").read_bytes()
    for length in (0, 4, 100, len(data) - 1):
        (tmp_path / "m.safetensors").write_bytes(data[:length])
        with pytest.raises(ParseFailure):
            stepwell.load(place)
    place.write_bytes(b"\xff\xfe")
    with pytest.raises(ParseFailure, match="not UTF-8"):
        stepwell.load(place)


def test_metadata_is_json_that_names_its_format() -> None:
    packed = pack_tensors({"w": torch.ones(2, 2).t()})
    header = json.loads(packed[8 : 8 + int.from_bytes(packed[:8], "little")])
    assert header["__metadata__"]["stepwell"] == "stepwell-1"
