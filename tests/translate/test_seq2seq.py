"""Models with an encoder and a decoder as two methods, beside the model of transformers."""

from pathlib import Path
from typing import Any

import pytest
import torch
from sampled import sampled

import stepwell
from stepwell.backends.executorch.running.runner import PteSession
from stepwell.cli.main import main
from stepwell.ir.diagnostics import StepwellError
from stepwell.language_models import (
    export_seq2seq,
    is_causal_lm,
    is_seq2seq,
    load_causal_lm,
    prepare,
)
from stepwell.loaders.models import open_model

transformers: Any = pytest.importorskip("transformers", reason="the extra hf is not installed")

OF_BART = {
    "vocab_size": 96,
    "d_model": 64,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_ffn_dim": 96,
    "decoder_ffn_dim": 96,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
}
OF_SOUND = {"max_source_positions": 50, "max_target_positions": 64, "num_mel_bins": 16}
ENDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 3}
SIZES: dict[str, dict[str, Any]] = {
    "T5": {
        "vocab_size": 96,
        "d_model": 64,
        "d_kv": 16,
        "d_ff": 96,
        "num_layers": 2,
        "num_heads": 4,
    },
    "Bart": {**OF_BART, "max_position_embeddings": 64},
    "Whisper": {**OF_BART, **OF_SOUND, **ENDS, "suppress_tokens": None},
}


def model_of(kind: str) -> Any:
    """A small model with random weights that are large enough to matter."""
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(**SIZES[kind])
    model = getattr(transformers, f"{kind}ForConditionalGeneration")(config).eval()
    for parameter in model.parameters():
        parameter.data.mul_(2 if parameter.dim() > 1 else 1)
    return model


@torch.no_grad()
def largest_error(session: PteSession, model: Any, given: torch.Tensor) -> float:
    """How far twelve tokens are off, as a share of the largest logit."""
    tokens = torch.randint(3, 96, (1, 12), generator=torch.Generator().manual_seed(1))
    arguments = {model.main_input_name: given, "decoder_input_ids": tokens, "use_cache": False}
    want = model(**arguments).logits[0]
    states = session.run(given, method="encoder")[0]
    rows = [
        session.run(one[None, None], states, torch.tensor([at]), method="text_decoder")[0][0]
        for at, one in enumerate(tokens[0])
    ]
    return float((torch.stack(rows) - want).abs().max() / want.abs().max())


@pytest.mark.parametrize("kind", sampled(["T5", "Bart", "Whisper"], "Bart", "Whisper"))
def test_two_methods_say_what_the_model_says_of_inputs_of_any_length(kind: str):
    model = model_of(kind)
    methods = export_seq2seq(model, context=32)
    session = PteSession.load(stepwell.lower(methods, "xnnpack").to_pte())
    if kind == "Whisper":
        inputs = [torch.randn(1, 16, 100)]
    else:
        inputs = [torch.randint(0, 96, (1, length)) for length in (2, 13, 32)]
    for given in inputs:  # Each conversation begins at position 0, behind another one's state.
        assert largest_error(session, model, given) < 2e-5
    states = session.run(inputs[0], method="encoder")[0]
    for at in (-1, 32):
        with pytest.raises(StepwellError, match="the runtime fails"):
            session.run(torch.ones(1, 1).long(), states, torch.tensor([at]), method="text_decoder")


def test_a_folder_with_an_encoder_is_lowered_quantized(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    folder, file = tmp_path / "t5", tmp_path / "t5.pte"
    model_of("T5").to(torch.bfloat16).save_pretrained(folder)
    assert is_seq2seq(folder) and not is_causal_lm(folder)
    how = ["--quantize", "8da4w", "--context", "32", "-o", str(file)]
    assert main(["lower", str(folder), *how]) == 0, capsys.readouterr().err
    model = prepare(load_causal_lm(folder), quantize="8da4w").eval()
    session = PteSession.load(file.read_bytes())
    # An int8 activation may round to its neighbor where sums are made in another order.
    assert largest_error(session, model, torch.randint(0, 96, (1, 13))) < 0.05


def test_options_of_decoders_alone_are_refused(tmp_path: Path):
    model_of("T5").save_pretrained(tmp_path / "t5")
    with pytest.raises(StepwellError, match="whose export has no attention"):
        open_model(str(tmp_path / "t5"), language={"attention": "torch"})
