"""Folders of PEFT: a model with an adapter says what PEFT says, and the adapter can be changed."""

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch

import stepwell
from stepwell.backends.executorch.running.runner import PteSession
from stepwell.language_models import export_causal_lm, is_causal_lm, load_causal_lm, prepare
from stepwell.quantization.quantizers import is_quantized

from .language_models import largest_error, logits_of, model_of, needed, session_of

needed("transformers", "peft")


def write_adapter(folder: Path, seed: int) -> Any:
    """A Llama and an adapter of it, as folders; the model as PEFT has it."""
    model = model_of("Llama")
    model.save_pretrained(folder / "base")
    model.name_or_path = str(folder / "base")
    torch.manual_seed(seed)
    peft: Any = import_module("peft")  # A second and a half, which each worker would pay.
    how = peft.LoraConfig(
        r=4,
        target_modules=["q_proj", "v_proj", "down_proj"],
        init_lora_weights=False,
        task_type="CAUSAL_LM",
    )
    adapted = peft.get_peft_model(model, how).eval()
    adapted.save_pretrained(folder / "adapter")
    return adapted


def test_an_adapter_is_lowered_with_its_model_and_changed_for_another(tmp_path: Path):
    first = write_adapter(tmp_path / "first", 1)
    second = write_adapter(tmp_path / "second", 2)
    tokens = torch.randint(0, 96, (1, 16))
    assert is_causal_lm(tmp_path / "first" / "adapter")
    made = []
    for name in ("first", "second"):
        model = load_causal_lm(tmp_path / name / "adapter")
        lowered = stepwell.lower(export_causal_lm(model, context=32), "xnnpack")
        made.append(lowered.to_pte_and_ptds({"adapter.ptd": "*lora_*", "base.ptd": "*"}))
    (pte, files), (again, others) = made
    assert (pte, files["base.ptd"]) == (again, others["base.ptd"])
    for adapted, held in ((first, files), (second, others)):
        both = stepwell.join_ptds([held["adapter.ptd"], files["base.ptd"]])
        session = PteSession.load(pte, external=both)
        assert largest_error(session, tokens, logits_of(adapted, tokens)) < 2e-5
    assert largest_error(session, tokens, logits_of(first, tokens)) > 0.01


@pytest.mark.slow
def test_layers_under_an_adapter_are_quantized_and_the_adapter_is_not(tmp_path: Path):
    write_adapter(tmp_path, 1)
    model = prepare(load_causal_lm(tmp_path / "adapter"), quantize="8da8w")
    linears = {n: m for n, m in model.named_modules() if isinstance(m, torch.nn.Linear)}
    adapters = {name for name in linears if "lora_" in name}
    assert len(adapters) == 12
    assert not any(is_quantized(linears[name]) for name in adapters)
    assert all(hasattr(linears[name], "parametrizations") for name in set(linears) - adapters)
    tokens = torch.randint(0, 96, (1, 16))
    # An int8 activation may round to its neighbor where sums are made in another order.
    assert largest_error(session_of(model), tokens, logits_of(model, tokens)) < 0.05
