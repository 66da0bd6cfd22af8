"""A language model from ExecuTorch's examples: quantized, lowered, and generating text on the
runtime.

    python examples/language_model.py                    # 8da4w, a prompt of any length
    python examples/language_model.py --weights fp32 --layers 2
    python examples/language_model.py --stock            # also stock ExecuTorch's, for comparison
    python examples/language_model.py --transformers FOLDER      # as save_pretrained wrote it

The model is ExecuTorch's own Llama with weights that reproduce one text, so that its output can be
checked. It is exported as by ExecuTorch's script: one method that takes a prompt of any length, or
one token, and its position; and the methods by which runners query a model.
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
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "bench"))

import torch

import stepwell
from executorch_llama import TAUGHT, Size, Variant, exported, flat, greedy, prompt_of
from stepwell.backends.executorch.running.runner import PteSession


def main(arguments: Sequence[str] = ()) -> None:
    """Quantize, lower, generate greedily, print tokens a second."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--weights", default="8da4w", help="fp32, fp16, bf16, 8da4w or 4w")
    parser.add_argument("--cache", default="custom", help="none, plain, custom or quantized")
    parser.add_argument("--embedding", default="plain", help="plain, '4,32', '8,0' or tied")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--stock", action="store_true", help="measure stock ExecuTorch too")
    parser.add_argument(
        "--quick", action="store_true", help="do not compare before and after every pass"
    )
    parser.add_argument("-o", "--output", type=Path, help="write the .pte here")
    parser.add_argument(
        "--transformers", type=Path, metavar="FOLDER", help="a model of transformers instead"
    )
    given = parser.parse_args(list(arguments))
    warnings.simplefilter("ignore")
    if given.transformers:
        of_transformers(given)
        return

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
        "use_sdpa_with_kv_cache": variant.cache in ("custom", "quantized"),
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


def of_transformers(given: argparse.Namespace) -> None:
    """The same for a folder of transformers: generate a few tokens and measure the speed."""
    from stepwell.language_models import export_causal_lm, load_causal_lm
    from stepwell.quantization.quantizers import find_quantizer

    def made() -> tuple[Any, dict[str, Any]]:
        model = load_causal_lm(given.transformers)
        if given.weights in ("8da4w", "8da8w"):
            model = find_quantizer(given.weights)(model, ())
        return model, export_causal_lm(model, context=2 * given.tokens + 8)

    model, methods = made()
    lowered = stepwell.lower(methods, "xnnpack", check=not given.quick)
    print(f"{lowered.report.delegates} delegates, outside {dict(lowered.report.outside)}")
    if given.output:
        lowered.save(given.output)
    session = PteSession.load(lowered.to_pte())
    prompt = torch.arange(5, 13)[None] % model.config.get_text_config().vocab_size
    want = prompt
    with torch.no_grad():
        for _ in range(given.tokens):
            logits = model(input_ids=want, use_cache=False).logits[:, -1]
            want = torch.cat([want, logits.argmax(-1, keepdim=True)], 1)
    wanted = want[0, prompt.shape[1] :].tolist()

    def generate(name: str, step: Any) -> None:
        said: list[int] = []
        tokens, position = prompt, 0
        began = time.perf_counter()
        for _ in range(given.tokens):
            logits = step(tokens, torch.tensor([position]))
            position += tokens.shape[1]
            said.append(int(logits.reshape(-1).argmax()))
            tokens = torch.tensor([said[-1:]])
        rate = given.tokens / (time.perf_counter() - began)
        same = sum(one == other for one, other in zip(said, wanted, strict=True))
        print(f"{name}: {rate:.0f} tokens/s, {same} of {len(wanted)} as eager says them")

    generate("stepwell", lambda *inputs: session.run(*inputs)[0])
    if given.stock:
        from language_models import loaded, stock_pte

        program = made()[1]["forward"].run_decompositions({})
        run = loaded(stock_pte(program, given.weights))
        generate("stock", lambda *inputs: run(*inputs)[0])


if __name__ == "__main__":
    main(sys.argv[1:])
