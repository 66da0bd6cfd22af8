"""ExecuTorch's own Llama, as it is shipped: lowered, run, and saying what eager says."""

from __future__ import annotations

import pytest
import torch

import stepwell
from executorch_llama import (
    SAID,
    TAUGHT,
    Size,
    Variant,
    exported,
    flat,
    greedy,
    prompt_of,
)
from stepwell.backends.executorch.container import KernelCall
from stepwell.backends.executorch.read import read_container
from stepwell.backends.executorch.runner import PteSession

SIZE = Size()
SHIPPED = Variant("8da4w", embedding="4,32")
FEW = [SHIPPED]
MANY = [
    *(Variant(weights, "custom") for weights in ("fp32", "fp16", "bf16", "4w")),
    *(Variant(weights, "plain") for weights in ("fp32", "8da4w")),
    *(Variant(weights, "quantised") for weights in ("fp32", "8da4w")),
    *(Variant(weights, "none") for weights in ("fp32", "8da4w")),
    *(Variant(w, c, dynamic=False) for w in ("fp32", "8da4w") for c in ("custom", "plain", "none")),
    *(Variant("8da4w", embedding=table) for table in ("8,0", "tied")),
    Variant("fp32", lora=4),
]


def assert_says_what_eager_says(variant: Variant) -> bytes:
    model, program = exported(variant, SIZE, seed=TAUGHT)
    pte = stepwell.lower(program, "xnnpack").to_pte()
    session, prompt = PteSession.load(pte), prompt_of(variant, SIZE)
    with torch.no_grad():
        want = greedy(model, variant, prompt, SAID, SIZE.context)
    got = greedy(lambda *inputs: session.run(*flat(inputs))[0], variant, prompt, SAID, SIZE.context)
    assert len(set(want)) > SAID // 4, "the model says too little to be compared"
    assert got == want
    return pte


@pytest.mark.parametrize("variant", FEW, ids=str)
def test_a_language_model_as_it_is_shipped_says_what_eager_says(variant: Variant) -> None:
    pte = assert_says_what_eager_says(variant)
    (method,) = read_container(pte).methods
    called = [c.kernel for c in method.instructions if isinstance(c, KernelCall)]
    assert not {"aten::clone.out", "aten::copy_"} & set(called), "a cache is copied"
    assert not sum(map(len, read_container(pte).mutable_data)), "a cache is in the file"


@pytest.mark.slow
@pytest.mark.parametrize("variant", MANY, ids=str)
def test_every_variant_says_what_eager_says(variant: Variant) -> None:
    assert_says_what_eager_says(variant)
