"""A language model from ExecuTorch's examples: quantised, lowered, and talking on the runtime.

    python examples/language_model.py                    # 8da4w, a prompt of any length
    python examples/language_model.py --weights fp32 --layers 2
    python examples/language_model.py --stock            # also stock ExecuTorch's, beside it

The model is ExecuTorch's own Llama with weights that know one text by heart, so that what it says
can be checked. It is exported as ExecuTorch's script exports it: one method that takes a prompt of
any length, or one token, and where it stands; and the methods that runners ask about a model.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent / "models"))
sys.path.insert(0, str(Path(__file__).parent.parent / "bench"))

import torch

import stepwell
from executorch_llama import TAUGHT, Size, Variant, exported, flat, greedy, prompt_of
from stepwell.backends.executorch.runner import PteSession


def main(arguments: Sequence[str] = ()) -> None:
    """Quantise, lower, generate greedily, print tokens a second."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--weights", default="8da4w", help="fp32, fp16, bf16, 8da4w or 4w")
    parser.add_argument("--cache", default="custom", help="none, plain, custom or quantised")
    parser.add_argument("--embedding", default="plain", help="plain, '4,32', '8,0' or tied")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--stock", action="store_true", help="measure stock ExecuTorch too")
    parser.add_argument(
        "--quick", action="store_true", help="do not compare before and after every step"
    )
    parser.add_argument("-o", "--output", type=Path, help="write the .pte here")
    given = parser.parse_args(list(arguments))
    warnings.simplefilter("ignore")

    variant = Variant(given.weights, given.cache, embedding=given.embedding)
    size = Size(dim=given.dim, hidden_dim=2 * given.dim, n_layers=given.layers)
    model, program = exported(variant, size, seed=TAUGHT)
    metadata = {
        "get_max_seq_len": size.context,
        "get_max_context_len": size.context,
        "get_vocab_size": size.vocab_size,
        "get_n_layers": size.n_layers,
        "get_bos_id": 0,
        "get_eos_ids": [1],
        "use_kv_cache": variant.cache != "none",
        "use_sdpa_with_kv_cache": variant.cache in ("custom", "quantised"),
        "enable_dynamic_shape": variant.dynamic,
    }
    lowered = stepwell.lower({"forward": program, **metadata}, "xnnpack", check=not given.quick)
    print(
        f"{variant}: {lowered.report.delegates} delegates, outside {dict(lowered.report.outside)}"
    )
    if given.output:
        lowered.save(given.output)
    session = PteSession.load(lowered.to_pte())
    print("vocabulary:", session.run(method="get_vocab_size")[0])
    prompt = prompt_of(variant, size)
    with torch.no_grad():
        want = greedy(model, variant, prompt, given.tokens, size.context)

    def generate(name: str, step: Any) -> None:
        began = time.perf_counter()
        said = greedy(step, variant, prompt, given.tokens, size.context)
        rate = given.tokens / (time.perf_counter() - began)
        same = sum(one == other for one, other in zip(said, want, strict=True))
        print(f"{name}: {rate:.0f} tokens/s, {same} of {len(want)} as eager says them")

    generate("stepwell", lambda *inputs: session.run(*flat(inputs))[0])
    if given.stock:
        from language_models import loaded, stock_pte

        run = loaded(stock_pte(exported(variant, size, seed=TAUGHT)[1], variant.weights))
        generate("stock", lambda *inputs: run(*flat(inputs))[0])


if __name__ == "__main__":
    main(sys.argv[1:])
