"""Folders packed as GPTQ, AWQ and torchao pack them: integers as they are, and what is said."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from sampled import sampled

from stepwell.backends.executorch.running.runner import PteSession
from stepwell.cli.main import main
from stepwell.ir.diagnostics import StepwellError
from stepwell.language_models import load_causal_lm

from .language_models import SIZES, largest_error

transformers: Any = pytest.importorskip("transformers", reason="the extra hf is not installed")
ONE_LAYER = {**SIZES, "num_hidden_layers": 1}
GROUP = 32
Array = np.ndarray[Any, Any]
Packed = tuple[dict[str, Array], Array]
"""A layer's tensors, and the numbers `[rows, columns]` that they stand for."""


def words(integers: Array, bits: int, order: list[int]) -> Array:
    """Rows `[…, n]` of integers in words of 32 bits, field by field."""
    fields = 32 // bits
    made = np.zeros((*integers.shape[:-1], integers.shape[-1] // fields), dtype=np.uint32)
    for word in range(made.shape[-1]):
        for at in range(fields):
            made[..., word] |= integers[..., word * fields + order[at]] << np.uint32(bits * at)
    return made.view(np.int32)


def drawn(rows: int, columns: int, bits: int, group: int, symmetric: bool) -> tuple[Array, ...]:
    """Integers `[columns, rows]`, zeros and scales `[groups, rows]`."""
    seeded = np.random.default_rng(rows + columns)
    top, groups = 1 << bits, columns // group
    integers = seeded.integers(0, top, (columns, rows), dtype=np.uint32)
    near = seeded.integers(-2, 2, (groups, rows)) * (not symmetric) * (bits > 2)
    zeros = (top // 2 + near).astype(np.uint32)
    # Numbers of bfloat16, so that the kernel's scales are the file's.
    scales = torch.from_numpy(seeded.uniform(0.3, 0.5, (groups, rows)) / top).bfloat16()
    return integers, zeros, scales.float().numpy()


def numbers_of(integers: Array, zeros: Array, scales: Array, of_column: Array) -> Array:
    """`[rows, columns]`."""
    off = integers.astype(np.float32) - zeros[of_column].astype(np.float32)
    return (off * scales[of_column]).T


def gptq(
    rows: int,
    columns: int,
    *,
    bits: int = 4,
    group: int = GROUP,
    symmetric: bool = True,
    apart: bool = False,
    first_form: bool = True,
) -> Packed:
    """What a layer of GPTQ has in its file; `apart`: groups are of columns that lie apart."""
    integers, zeros, scales = drawn(rows, columns, bits, group, symmetric)
    of_column = np.arange(columns) // group
    if apart:
        of_column = np.random.default_rng(0).permutation(of_column)
    straight = list(range(32 // bits))
    stored = zeros - np.uint32(first_form)
    return {
        "qweight": words(integers.T, bits, straight).T.copy(),
        "qzeros": words(stored, bits, straight),
        "scales": scales.astype(np.float16),
        "g_idx": of_column.astype(np.int32),
    }, numbers_of(integers, zeros, scales, of_column)


def awq(rows: int, columns: int) -> Packed:
    """What a layer of AWQ has in its file."""
    integers, zeros, scales = drawn(rows, columns, 4, GROUP, symmetric=False)
    order = [0, 2, 4, 6, 1, 3, 5, 7]
    return {
        "qweight": words(integers, 4, order),
        "qzeros": words(zeros, 4, order),
        "scales": scales.astype(np.float16),
    }, numbers_of(integers, zeros, scales, np.arange(columns) // GROUP)


def write_folder(folder: Path, told: dict[str, Any], pack: Callable[[int, int], Packed]) -> Any:
    """A Llama whose layers are packed, and the model of the numbers that they stand for."""
    torch.manual_seed(0)
    config = transformers.LlamaConfig(**ONE_LAYER, eos_token_id=[2, 3], attention_bias=True)
    model = transformers.LlamaForCausalLM(config).eval()
    for name, parameter in model.named_parameters():
        if "bias" in name or "embed" in name or "lm_head" in name:
            parameter.data.normal_(0, 0.3)
    model.save_pretrained(folder)
    tensors = load_file(folder / "model.safetensors")
    for name, layer in model.model.named_modules():
        if isinstance(layer, torch.nn.Linear):
            packed, numbers = pack(*layer.weight.shape)
            layer.weight.data = torch.from_numpy(numbers.copy())
            del tensors[f"model.{name}.weight"]
            for end, value in packed.items():
                tensors[f"model.{name}.{end}"] = torch.from_numpy(value)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    written = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(written | {"quantization_config": told}))
    return model


GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": GROUP}
AWQ = {"quant_method": "awq", "bits": 4, "group_size": GROUP, "version": "gemm"}
FOLDERS: dict[str, tuple[dict[str, Any], Callable[[int, int], Packed], str]] = {
    "gptq": (GPTQ, gptq, "7 of GPTQ, 4 bits"),
    "gptq, with zeros": (GPTQ, lambda *n: gptq(*n, symmetric=False), "7 of GPTQ, 4 bits"),
    "gptq, its second form": (
        {**GPTQ, "checkpoint_format": "gptq_v2"},
        lambda *n: gptq(*n, first_form=False),
        "7 of GPTQ, 4 bits",
    ),
    "gptq, groups apart": (GPTQ, lambda *n: gptq(*n, apart=True), "7 of GPTQ, 4 bits"),
    "gptq, 2 bits": ({**GPTQ, "bits": 2}, lambda *n: gptq(*n, bits=2), "7 of GPTQ, 2 bits"),
    "gptq, 8 bits by row": (
        {**GPTQ, "bits": 8},
        lambda rows, columns: gptq(rows, columns, bits=8, group=columns),
        "7 of GPTQ, 8 bits",
    ),
    "gptq, 8 bits by groups": (
        {**GPTQ, "bits": 8},
        lambda *n: gptq(*n, bits=8),
        "none; as floats: 7 of GPTQ, 8 bits",
    ),
    "gptq, small groups apart": (
        GPTQ,
        lambda *n: gptq(*n, group=16, apart=True),
        "none; as floats: 7 of GPTQ, 4 bits",
    ),
    "awq": (AWQ, awq, "7 of AWQ, 4 bits"),
}


LIKE = {
    "gptq, its second form": "gptq",
    "gptq, 8 bits by groups": "gptq, small groups apart",
}
"""Folders whose layers are read as those of another: of these only what is read is looked at."""


QUICK = ("gptq, with zeros", "gptq, small groups apart", "awq")


@torch.no_grad()
@pytest.mark.parametrize("name", sampled((name for name in FOLDERS if name not in LIKE), *QUICK))
def test_a_packed_folder_says_what_its_numbers_say(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    told, pack, sentence = FOLDERS[name]
    exact = write_folder(tmp_path / "model", told, pack)
    file = tmp_path / "model.pte"
    arguments = ["lower", str(tmp_path / "model"), "--context", "32", "-o", str(file)]
    assert main(arguments) == 0, capsys.readouterr().err
    assert sentence in "".join(capsys.readouterr())
    tokens = torch.randint(3, 96, (1, 16), generator=torch.Generator().manual_seed(0))
    want = exact(input_ids=tokens).logits[0]
    session = PteSession.load(file.read_bytes())
    # Inputs are eight bits a token, and zeros as well; floats are off by roundings.
    bound = 1e-4 if "as floats" in sentence else 0.05
    assert largest_error(session, tokens, want) < bound
    assert session.run(method="get_eos_ids") == (2, 3)


def layers_of(model: Any) -> dict[str, Any]:
    """The packed layers of a model, by name."""
    return {n: m for n, m in model.model.named_modules() if isinstance(m, torch.nn.Linear)}


@torch.no_grad()
@pytest.mark.parametrize("name", LIKE)
def test_a_folder_is_read_as_another_kind_of_layer_is(name: str, tmp_path: Path):
    told, pack, sentence = FOLDERS[name]
    notes: list[str] = []
    exact = layers_of(write_folder(tmp_path / "model", told, pack))
    made = layers_of(load_causal_lm(tmp_path / "model", notes))
    assert sentence in "".join(notes)
    write_folder(tmp_path / "other", *FOLDERS[LIKE[name]][:2])
    other = layers_of(load_causal_lm(tmp_path / "other"))
    assert exact.keys() == made.keys() == other.keys()
    for at, layer in made.items():
        assert type(layer.weight) is type(other[at].weight)
        weight = layer.weight
        numbers = weight if type(weight) is torch.nn.Parameter else weight.dequantize()
        assert torch.equal(numbers, exact[at].weight)
        assert (layer.bias is None) == (exact[at].bias is None)
        assert layer.bias is None or torch.equal(layer.bias, exact[at].bias)


@torch.no_grad()
def test_integers_and_scales_are_those_of_the_file_to_the_last_bit(tmp_path: Path):
    exact = layers_of(write_folder(tmp_path, GPTQ, gptq))
    made = layers_of(load_causal_lm(tmp_path))
    for name, layer in exact.items():
        assert torch.equal(made[name].weight.dequantize(), layer.weight)
        assert layer.bias is None or torch.equal(made[name].bias, layer.bias)


@torch.no_grad()
@pytest.mark.parametrize("bits", [4, 8])
def test_a_folder_of_torchao_keeps_layers_and_table(bits: int, tmp_path: Path):
    from torchao.quantization import (
        FqnToConfig,
        Int8DynamicActivationIntxWeightConfig,
        IntxWeightOnlyConfig,
    )
    from torchao.quantization.granularity import PerAxis, PerGroup

    torch.manual_seed(0)
    config = transformers.LlamaConfig(**ONE_LAYER)
    plain = transformers.LlamaForCausalLM(config).to(torch.bfloat16)
    for parameter in plain.parameters():
        parameter.data.mul_(3)
    plain.save_pretrained(tmp_path / "plain")
    how = FqnToConfig(
        {
            "_default": Int8DynamicActivationIntxWeightConfig(
                weight_dtype=getattr(torch, f"int{bits}"),
                weight_granularity=PerGroup(32) if bits == 4 else PerAxis(0),
            ),
            "model.embed_tokens": IntxWeightOnlyConfig(
                weight_dtype=torch.int8, granularity=PerAxis(0)
            ),
        }
    )
    quantized = transformers.LlamaForCausalLM.from_pretrained(
        tmp_path / "plain",
        dtype=torch.bfloat16,
        quantization_config=transformers.TorchAoConfig(how, include_input_output_embeddings=True),
    )
    quantized.save_pretrained(tmp_path / "packed")
    notes: list[str] = []
    model = load_causal_lm(tmp_path / "packed", notes)
    assert notes and f"of torchao, {bits} bits" in notes[0] and "floats" not in notes[0]
    assert type(model.get_input_embeddings()).__name__ == "QuantizedGroupEmbedding"
    for name, layer in quantized.model.named_modules():
        if isinstance(layer, torch.nn.Linear):
            made = model.model.get_submodule(name).weight
            assert torch.equal(made.qdata, layer.weight.qdata)
            assert torch.equal(made.scale.flatten(), layer.weight.scale.float().flatten())
    file = tmp_path / "model.pte"
    assert main(["lower", str(tmp_path / "packed"), "--context", "32", "-o", str(file)]) == 0
    tokens = torch.randint(3, 96, (1, 12), generator=torch.Generator().manual_seed(0))
    for layer in quantized.modules():
        if hasattr(getattr(layer, "weight", None), "qdata"):
            layer.weight = torch.nn.Parameter(layer.weight.dequantize())
    want = torch.nn.Module.float(quantized)(input_ids=tokens).logits[0]
    # An int8 activation may round to its neighbor where sums are made in another order.
    assert largest_error(PteSession.load(file.read_bytes()), tokens, want, [(0, 12)]) < 0.05


REFUSED = {
    "a method that is not known": ({"quant_method": "hqq"}, "is packed by hqq"),
    "integers that lie across words": ({**GPTQ, "bits": 3}, "with weights of 3 bits, which lie"),
    "another layout": ({**AWQ, "version": "gemv"}, "with the layout of gemv"),
    "AWQ of other bits": ({**AWQ, "bits": 8}, "with weights of 8 bits"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_packing_that_is_not_read_is_refused(name: str, tmp_path: Path):
    told, reason = REFUSED[name]
    (tmp_path / "config.json").write_text(
        json.dumps({"architectures": ["LlamaForCausalLM"], "quantization_config": told})
    )
    with pytest.raises(StepwellError, match=reason):
        load_causal_lm(tmp_path)
