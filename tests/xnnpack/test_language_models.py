"""ExecuTorch's own Llama, as it is shipped: lowered, run, and saying what eager says."""

import pytest
import torch

import stepwell
from executorch_llama import (
    SAID,
    TAUGHT,
    Size,
    Variant,
    executorch_llama,
    exported,
    flat,
    greedy,
    prompt_of,
)
from stepwell.backends.executorch.running.runner import PteSession

SIZE = Size()
VARIANTS = [
    Variant("8da4w", embedding="4,32"),  # What examples/language_model.py is asked for in each run.
    *(Variant(weights, "custom") for weights in ("fp32", "fp16", "bf16", "4w")),
    *(Variant(weights, "plain") for weights in ("fp32", "8da4w")),
    *(Variant(weights, "quantized") for weights in ("fp32", "8da4w")),
    *(Variant(weights, "none") for weights in ("fp32", "8da4w")),
    *(Variant(w, c, dynamic=False) for w in ("fp32", "8da4w") for c in ("custom", "plain", "none")),
    *(Variant("8da4w", embedding=table) for table in ("8,0", "tied")),
    Variant("fp32", lora=4),
    *(Variant("8da4w", cache, window=16) for cache in ("plain", "custom", "quantized")),
]


def assert_says_what_eager_says(variant: Variant) -> None:
    model, program = exported(variant, SIZE, seed=TAUGHT)
    pte = stepwell.lower(program, "xnnpack").to_pte()
    session, prompt = PteSession.load(pte), prompt_of(variant, SIZE)
    with torch.no_grad():
        want = greedy(model, variant, prompt, SAID, SIZE.context)
    got = greedy(lambda *inputs: session.run(*flat(inputs))[0], variant, prompt, SAID, SIZE.context)
    assert len(set(want)) > SAID // 4, "the model says too little to be compared"
    assert got == want


@pytest.mark.slow
def test_a_sliding_window_moves_on_as_it_does_in_eager() -> None:
    variant = Variant("fp32", window=8)
    model, program = exported(variant, SIZE)
    session = PteSession.load(stepwell.lower(program, "xnnpack").to_pte())
    tokens = torch.randint(SIZE.vocab_size, (1, 40), generator=torch.Generator().manual_seed(0))
    at, said, want = 0, tokens[:, :0], tokens[:, :0]
    for part in tokens.split([5, 8, 1, 7, 8, *[1] * 11], 1):
        position = torch.tensor([at])
        with torch.no_grad():
            want = model(part, {"input_pos": position})
        said = session.run(part, position)[0]
        torch.testing.assert_close(said, want, rtol=1e-4, atol=1e-5)
        at += part.shape[1]
    whole = executorch_llama(Variant("fp32"), SIZE)
    with torch.no_grad():
        seen = whole(tokens, {"input_pos": torch.tensor([0])})
    assert (seen - want).abs().max() > 1e-2, "the window hides nothing"


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_every_variant_says_what_eager_says(variant: Variant) -> None:
    assert_says_what_eager_says(variant)
