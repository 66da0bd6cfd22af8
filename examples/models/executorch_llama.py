"""ExecuTorch's own Llama with random weights, in the variants that its export script offers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
QUANTIZED = ("8da4w", "8da8w", "4w")
SAID = 64
"""The number of tokens that a comparison generates."""


@dataclass(frozen=True)
class Variant:
    """A variant in which the model is deployed.

    Attributes:
        weights: an element type (`fp32`, `fp16`, `bf16`) or a quantization of the linear layers.
        cache: `none`, `plain` (torch's attention over the whole cache), `custom` (the operators of
            ExecuTorch's `llama` library) or `quantized` (those of an int8 cache).
        dynamic: a dynamic number of tokens; otherwise one at a time, or with `none` the whole
            context.
        embedding: `plain`, `4,32` or `8,0` (bits and group of a quantized table), or `tied` (to the
            last linear layer).
        lora: rank of adapters on the attention's projections, 0 for none.
        window: how many tokens every other layer attends to, in a ring buffer of twice as many; 0
            for all.
    """

    weights: str = "fp32"
    cache: str = "custom"
    dynamic: bool = True
    embedding: str = "plain"
    lora: int = 0
    window: int = 0

    def __str__(self) -> str:
        shape = "dynamic" if self.dynamic else "static"
        extra = [] if self.embedding == "plain" else [f"embedding {self.embedding}"]
        extra += [f"lora {self.lora}"] if self.lora else []
        extra += [f"window {self.window}"] if self.window else []
        return ", ".join([self.weights, f"cache {self.cache}", shape, *extra])


@dataclass(frozen=True)
class Size:
    """The size of the model, in ExecuTorch's terms."""

    dim: int = 64
    hidden_dim: int = 128
    n_layers: int = 2
    n_heads: int = 4
    n_kv_heads: int = 2
    vocab_size: int = 128
    context: int = 128
    group: int = 32


MEASURED = Size(512, 1408, 4, 8, 4, 2048, 256)
"""The size for the tables of the documentation."""


def executorch_llama(variant: Variant, size: Size | None = None, *, seed: int = 0) -> nn.Module:
    """Create the model of a variant; its float weights are random, or those of `taught`.

    Args:
        variant: how it is deployed.
        size: its size.
        seed: the seed of random weights; `TAUGHT` for a model that reproduces a text.
    """
    size = size or Size()
    torch.manual_seed(max(seed, 0))
    model = llama_of(variant, size)
    for name, parameter in model.named_parameters():
        if "lora_b" in name:
            nn.init.normal_(parameter, std=0.02)
    if seed == TAUGHT:
        model.load_state_dict(taught(size, variant.embedding == "tied")[0], strict=False)
    if variant.embedding == "tied":
        model.output.weight = model.tok_embeddings.weight
    for transform in transforms_of(variant, size):
        model = transform(model)
    return model.eval().requires_grad_(False)


def llama_of(variant: Variant, size: Size) -> Any:
    """Create the float model of a variant, before ExecuTorch's transforms."""
    from executorch.examples.models.llama.llama_transformer import construct_transformer
    from executorch.examples.models.llama.model_args import ModelArgs

    adapters: dict[str, Any] = {}
    if variant.lora:
        adapters = {
            "r": variant.lora,
            "lora_alpha": 2 * variant.lora,
            "target_modules": ["q_proj", "k_proj", "v_proj", "o_proj"],
        }
    return construct_transformer(
        ModelArgs(
            **shape_of(size),
            use_kv_cache=variant.cache != "none",
            use_sdpa_with_kv_cache_op=variant.cache in ("custom", "quantized"),
            enable_dynamic_shape=variant.dynamic,
            generate_full_logits=False,
            **adapters,
        )
    ).eval()


def shape_of(size: Size) -> dict[str, Any]:
    """Return the arguments of ExecuTorch's model that define its size."""
    shared = ("dim", "hidden_dim", "n_layers", "n_heads", "n_kv_heads", "vocab_size")
    held = {name: getattr(size, name) for name in shared}
    return {**held, "max_seq_len": size.context, "max_context_len": size.context}


def transforms_of(variant: Variant, size: Size) -> list[Callable[[Any], Any]]:
    """Return ExecuTorch's transforms of the model before export."""
    from executorch.examples.models.llama import export_llama_lib
    from executorch.extension.llm.export.builder import DType

    quantized = variant.weights in QUANTIZED
    kind = "fp32" if quantized else variant.weights
    transforms = export_llama_lib._get_source_transforms(
        DType[kind],
        checkpoint_dtype=DType[kind],
        embedding_quantize=variant.embedding if "," in variant.embedding else None,
        quantization_mode=variant.weights if quantized else None,
        group_size=(size.group if variant.weights != "8da8w" else 0) if quantized else None,
        use_kv_cache=variant.cache != "none",
        use_sdpa_with_kv_cache=variant.cache in ("custom", "quantized"),
        quantize_kv_cache=variant.cache == "quantized",
        quantize_with_hqq=False,
        local_global_attention=[variant.window, 0] if variant.window else None,
    )

    def narrowed(model: nn.Module) -> nn.Module:
        return model.to(DTYPES[kind])

    return transforms if quantized else [narrowed, *transforms]


def example(variant: Variant, size: Size | None = None) -> tuple[Any, Any]:
    """Return the example inputs and the dynamic shapes of a variant, as in ExecuTorch's export."""
    context = (size or Size()).context
    if variant.cache == "none":
        length = context - 1 if variant.dynamic else context
        tokens = torch.ones(1, length, dtype=torch.long)
        return (tokens,), ({1: Dim("token_dim", max=context - 1)},) if variant.dynamic else None
    if not variant.dynamic:
        return (torch.tensor([[1]]), {"input_pos": torch.tensor([0])}), None
    given = (torch.tensor([[2, 3, 4]]), {"input_pos": torch.tensor([0])})
    most = variant.window or context - 1
    return given, ({1: Dim("token_dim", max=most)}, {"input_pos": {0: 1}})


def exported(
    variant: Variant, size: Size | None = None, *, decompose: bool = True, seed: int = 0
) -> tuple[nn.Module, ExportedProgram]:
    """Export the model as ExecuTorch's script does, and return it with its program.

    Args:
        variant, size, seed: those of the model.
        decompose: run the empty decompositions that make the program functional, like the script.
    """
    model = executorch_llama(variant, size, seed=seed)
    inputs, shapes = example(variant, size)
    with torch.no_grad(), sdpa_kernel([SDPBackend.MATH]):
        program = torch.export.export(model, inputs, dynamic_shapes=shapes, strict=True)
        return model, program.run_decompositions({}) if decompose else program


TAUGHT = -1


@cache
@torch.enable_grad()
def taught(size: Size, tied: bool) -> tuple[dict[str, Tensor], list[int]]:
    """Train weights that reproduce a text, and return them with the text.

    Random weights prefer a token by a tiny margin, which a rounding in int8 can reverse. A trained
    model prefers one clearly; memorizing a text is the shortest training.
    """
    from executorch.examples.models.llama.llama_transformer import construct_transformer
    from executorch.examples.models.llama.model_args import ModelArgs

    generator = torch.Generator().manual_seed(4)
    text = torch.randint(0, size.vocab_size, (size.context + SAID + 1,), generator=generator)
    torch.manual_seed(0)
    model: Any = construct_transformer(
        ModelArgs(
            **shape_of(size),
            generate_full_logits=True,
            enable_dynamic_shape=True,
        )
    )
    if tied:
        nn.init.normal_(model.tok_embeddings.weight, std=0.1)
        model.output.weight = model.tok_embeddings.weight
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    windows = torch.stack([text[at : at + size.context + 1] for at in range(0, SAID + 1, 16)])
    for _ in range(120):
        logits = model(windows[:, :-1])
        loss = functional.cross_entropy(logits.flatten(0, 1), windows[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    weights = {name: held.detach() for name, held in model.state_dict().items()}
    return {n: held for n, held in weights.items() if "freqs" not in n and "mask" not in n}, (
        text.tolist()
    )


def greedy(
    step: Callable[..., Tensor], variant: Variant, prompt: list[int], count: int, context: int
) -> list[int]:
    """Generate the likeliest token each time: the prompt at once if possible, then one token at a
    time.

    Args:
        step: a function from the model's inputs to its logits.
        variant: the variant of the model.
        prompt: the tokens of the prompt; as many as the context if the model requires that.
        count: the number of tokens to generate.
        context: the model's context; without a cache its input is the last tokens.
    """
    said = list(prompt)

    def ask(*inputs: Any) -> int:
        logits = step(*inputs)
        return int(logits.reshape(-1, logits.shape[-1])[-1].float().argmax())

    if variant.cache == "none":
        for _ in range(count):
            seen = said[-(context - 1) if variant.dynamic else -context :]
            said.append(ask(torch.tensor([seen])))
        return said[len(prompt) :]
    parts = [prompt] if variant.dynamic else [[token] for token in prompt]
    position = following = 0
    for part in parts:
        following = ask(torch.tensor([part]), {"input_pos": torch.tensor([position])})
        position += len(part)
    for _ in range(count):
        said.append(following)
        following = ask(torch.tensor([[following]]), {"input_pos": torch.tensor([position])})
        position += 1
    return said[len(prompt) :]


def prompt_of(variant: Variant, size: Size) -> list[int]:
    """Return the beginning of the text that `taught` models reproduce."""
    _, text = taught(size, variant.embedding == "tied")
    whole = variant.cache == "none" and not variant.dynamic
    return text[: size.context if whole else 9]


def flat(inputs: tuple[Any, ...]) -> list[Any]:
    """Flatten nested inputs, as a runtime requires."""
    return [
        leaf for item in inputs for leaf in (item.values() if isinstance(item, dict) else [item])
    ]
