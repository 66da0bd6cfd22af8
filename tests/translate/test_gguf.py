"""Files of GGUF: their integers, as the `gguf` package unpacks them, and what their models say."""

from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from stepwell.backends.executorch.running.runner import PteSession
from stepwell.cli.main import main
from stepwell.ir.diagnostics import ParseFailure
from stepwell.language_models import load_causal_lm, prepare
from stepwell.language_models.blocks import BlockLinear
from stepwell.language_models.gguf import LAYOUTS, OF_LAYERS, check_header, give_integers
from stepwell.model_zoo.catalogue.vision import imported

from .language_models import largest_error, logits_of, model_of, needed

needed("transformers", "gguf", "accelerate")
gguf: Any = import_module("gguf")

SCALES_AT = {"Q4_0": [0], "Q4_1": [0, 2], "Q4_K": [0, 2], "Q8_0": [0], "Q6_K": [208]}
"""Where halves stand in a block, of either sign (`ggml-common.h`)."""


def random_matrix(kind: str, rows: int, columns: int) -> Any:
    """A matrix as a reader gives it, its bits random and its scales numbers."""
    seeded = np.random.default_rng(0)
    of = getattr(gguf.GGMLQuantizationType, kind)
    count, size = gguf.GGML_QUANT_SIZES[of]
    blocks = seeded.integers(0, 256, (rows, columns // count, size), dtype=np.uint8)
    for at in SCALES_AT[kind]:
        halves = seeded.normal(size=(*blocks.shape[:2], 1)).astype(np.float16)
        blocks[:, :, at : at + 2] = halves.view(np.uint8)
    data = blocks.reshape(rows, -1)
    return SimpleNamespace(tensor_type=of, data=data, shape=[columns, rows])


class OneLayer(torch.nn.Module):
    """A model of one layer, and a table where there is to be one."""

    def __init__(self, numbers: Any, is_table: bool) -> None:
        super().__init__()
        rows, columns = numbers.shape
        self.table = torch.nn.Embedding(rows, columns) if is_table else torch.nn.Identity()
        self.layer = torch.nn.Identity() if is_table else torch.nn.Linear(columns, rows, bias=False)
        held: Any = self.table if is_table else self.layer
        held.weight = torch.nn.Parameter(torch.from_numpy(numbers), requires_grad=False)

    def get_input_embeddings(self) -> Any:
        return self.table

    def set_input_embeddings(self, table: Any) -> None:
        self.table = table

    def get_output_embeddings(self) -> None:
        """It has none."""


@pytest.mark.parametrize("kind", OF_LAYERS)
def test_a_layer_has_the_integers_of_the_file_and_scales_of_its_kernel(kind: str):
    matrix = random_matrix(kind, 40, 512)
    numbers = gguf.dequantize(matrix.data, matrix.tensor_type)[np.random.permutation(40)]
    model = OneLayer(numbers, is_table=False)
    assert give_integers(model, gguf, [matrix]) == (
        f"matrices with the integers of the file: 1 of {kind}"
    )
    layer: Any = model.layer
    assert isinstance(layer, BlockLinear)
    weight: Any = layer.products.weight
    scales, offsets = weight.scale.float(), layer.offsets.weight.dequantize()
    groups = torch.from_numpy(numbers).unflatten(1, (-1, 32))
    integers = weight.qdata.unflatten(1, (-1, 32))
    ours = scales[..., None] * integers + offsets[..., None]
    # A scale is half a bfloat16's step off, an offset half a step of its row's eight bits.
    step = scales / 256 * 8 + offsets.abs().amax(1, keepdim=True) / 127
    assert scales.min() > 0
    assert ((ours - groups).abs() <= step[..., None]).all()
    # Differences of two numbers of a group are differences of the file's integers.
    apart, steps = groups.diff(dim=-1), integers.int().diff(dim=-1)
    exact = apart.abs().amax(-1, keepdim=True) / steps.abs().amax(-1, keepdim=True).clamp(min=1)
    torch.testing.assert_close(apart, steps * exact, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["Q4_0", "Q8_0", "Q6_K"])
def test_a_table_has_the_numbers_of_the_file(kind: str):
    matrix = random_matrix(kind, 40, 512)
    numbers = gguf.dequantize(matrix.data, matrix.tensor_type)
    model = OneLayer(numbers, is_table=True)
    give_integers(model, gguf, [matrix])
    names = {"Q8_0": "OfHalves"}
    assert type(model.table).__name__ == names.get(kind, "QuantizedGroupEmbedding")
    got = model.table(torch.arange(40)[None])[0]
    torch.testing.assert_close(got, torch.from_numpy(numbers), rtol=0, atol=0)


def test_types_that_no_kernel_has_stay_as_numbers_and_are_named():
    matrix = random_matrix("Q6_K", 40, 512)
    numbers = gguf.dequantize(matrix.data, matrix.tensor_type)
    model = OneLayer(numbers, is_table=False)
    said = give_integers(model, gguf, [matrix])
    assert said is not None and "as floats: 1 of Q6_K" in said
    layer: Any = model.layer
    assert torch.equal(layer.weight, torch.from_numpy(numbers))


def test_every_layout_is_of_the_size_that_the_package_says():
    for kind, layout in LAYOUTS.items():
        count, size = gguf.GGML_QUANT_SIZES[getattr(gguf.GGMLQuantizationType, kind)]
        bits = (layout.integers.stop - layout.integers.start) * 8 // count
        assert 1 << bits == layout.levels + 1
        assert layout.integers.stop <= size and count % layout.group == 0


def write_llama(file: Path) -> None:
    """A small Llama in Q4_0, its table in Q8_0, as llama.cpp's converter lays it out."""
    model = model_of("Llama", scale=1)
    writer = gguf.GGUFWriter(file, "llama")
    writer.add_context_length(64)
    writer.add_embedding_length(64)
    writer.add_block_count(2)
    writer.add_feed_forward_length(96)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_dimension_count(16)
    writer.add_vocab_size(96)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, 2)
    for name, tensor in model.state_dict().items():
        numbers = tensor.detach().numpy() * (3 if tensor.dim() > 1 else 1)
        if ".q_proj" in name or ".k_proj" in name:  # Halves of heads become neighbors.
            heads = len(numbers) // 16
            numbers = numbers.reshape(heads, 2, 8, 64).swapaxes(1, 2).reshape(numbers.shape)
        there = names.get_name(name, try_suffixes=(".weight",))
        if tensor.dim() == 1:
            writer.add_tensor(there, numbers)
            continue
        kind = gguf.GGMLQuantizationType["Q8_0" if "embed" in name else "Q4_0"]
        writer.add_tensor(there, gguf.quantize(numbers, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_a_header_that_does_not_fit_its_file_is_refused(tmp_path: Path):
    """Before any package reads it: a number of 2**32 - 1 layers, or of 2**60 entries."""
    file = tmp_path / "llama.gguf"
    write_llama(file)
    data = file.read_bytes()
    check_header(memoryview(data))
    layers = data.index(b"llama.block_count") + len(b"llama.block_count") + 4
    faults = {
        "llama.block_count = 4294967295": (layers, b"\xff\xff\xff\xff"),
        "too few for 1152921504606846976 entries": (16, (1 << 60).to_bytes(8, "little")),
        "is no UTF-8": (data.index(b"llama.context"), b"\xff"),
        "version 2 or 3": (4, b"\0\0\0\3"),
    }
    for said, (at, other) in faults.items():
        with pytest.raises(ParseFailure, match=said):
            check_header(memoryview(data[:at] + other + data[at + len(other) :]))
    for end in range(0, layers, 7):
        with pytest.raises(ParseFailure, match="too few"):
            check_header(memoryview(data[:end]))


@torch.no_grad()
def test_a_file_is_lowered_and_says_what_its_model_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    file, pte = tmp_path / "llama.gguf", tmp_path / "llama.pte"
    write_llama(file)
    assert main(["lower", str(file), "--context", "32", "-o", str(pte)]) == 0
    said = "".join(capsys.readouterr())
    assert "15 of Q4_0, 1 of Q8_0" in said
    tokens = torch.randint(3, 96, (1, 16))
    ours = logits_of(prepare(load_causal_lm(file)), tokens)
    unpacked = imported("transformers").AutoModelForCausalLM.from_pretrained(
        tmp_path, gguf_file=file.name, dtype=torch.float32
    )
    want = logits_of(unpacked, tokens)
    # An int8 activation may round to its neighbor where sums are made in another order.
    assert largest_error(PteSession.load(pte.read_bytes()), tokens, ours) < 0.03
    # Inputs are eight bits a token, and weights in groups are what they were.
    assert float((ours - want).abs().max()) < 0.06 * float(want.abs().max())
