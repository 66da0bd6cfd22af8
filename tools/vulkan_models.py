"""Models of ExecuTorch's Vulkan flow: read, interpreted, and compared with eager PyTorch.

Each model is lowered by `to_edge_transform_and_lower` with `VulkanPartitioner`. A line of the table
contains the delegates (opened, of all), the calls in them, the operators that were read, and the
worst difference from eager PyTorch, relative to the greatest magnitude of an output. Models of
dynamic sizes are compared at several sizes, models with state over several calls. Figures are of
random weights. The last lines name the operators of ExecuTorch's registry without a meaning, and
those that no model contains.

    python tools/vulkan_models.py [NAME ...]
"""

from __future__ import annotations

import contextlib
import importlib
import io
import logging
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import stepwell
from stepwell.backends.executorch.reading.read import read_container
from stepwell.backends.vulkan.operators import MEANINGS, NUMBERS
from stepwell.backends.vulkan.read import schema_class
from stepwell.backends.vulkan.schema import BACKEND, read_graph

sys.path.insert(0, str(Path(__file__).parents[1] / "examples/models"))


@dataclass
class Case:
    """A model, its inputs for a size, its dynamic shapes, the sizes, and the flow's options."""

    model: nn.Module
    inputs: Callable[[int], tuple[Any, ...]]
    shapes: Any = None
    sizes: Sequence[int] = (0,)
    options: dict[str, Any] = field(default_factory=dict)
    calls: int = 1


def example(name: str, **options: Any) -> Case:
    """Return a case of `examples/models`."""
    module, _, function = name.partition(":")
    model, inputs = getattr(importlib.import_module(module), function)()
    return Case(model, lambda _: inputs, options=options)


def dynamic(name: str, sizes: Sequence[int], inputs: Callable[[int], tuple[Any, ...]]) -> Case:
    """Return a case of `examples/models` with a dynamic size."""
    module, _, function = name.partition(":")
    model, _, shapes = getattr(importlib.import_module(module), function)()
    return Case(model, inputs, shapes, sizes)


def measured(name: str) -> Case:
    """Return a case of `tools/dynamic_models.py`."""
    model, inputs, shapes, sizes = getattr(importlib.import_module("dynamic_models"), name)()
    return Case(model, inputs, shapes, sizes)


class First(nn.Module):
    """The first result of a model of transformers, or a named one."""

    def __init__(self, model: nn.Module, result: int | str = 0) -> None:
        super().__init__()
        self.model, self.result = model, result

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x)[self.result]


def transformer(kind: str, model: str, x: Tensor, **config: Any) -> Case:
    """Return a small model of transformers."""
    import transformers

    made = getattr(transformers, model)(getattr(transformers, kind)(**config))
    return Case(First(made), lambda _: (x,))


SMALL = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64)
TOKENS = torch.arange(10)[None]


class Kept(nn.Module):
    """A cell whose state stays on the GPU."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(8, 16)
        self.register_buffer("h", torch.zeros(1, 16))
        self.register_buffer("c", torch.zeros(1, 16))

    def forward(self, x: Tensor) -> Tensor:
        h, c = self.cell(x, (self.h, self.c))
        self.h.copy_(h)
        self.c.copy_(c)
        return h + c


class Layers(nn.Module):
    """Convolutions of every kind that the flow has int8 kernels for."""

    def __init__(self) -> None:
        super().__init__()
        self.full, self.point = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 1)
        self.depth = nn.Conv2d(8, 8, 3, 2, 1, groups=8)
        self.groups, self.turned = nn.Conv2d(8, 8, 3, groups=2), nn.ConvTranspose2d(8, 4, 3, 2, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = torch.relu(self.full(x))
        y = y + self.point(y)
        return self.groups(y), self.turned(torch.relu(self.depth(y)))


def executorch_llama(**variant: Any) -> Case:
    """Return ExecuTorch's own Llama without a cache."""
    module = importlib.import_module("executorch_llama")
    held = module.Variant(cache="none", dynamic=False, **variant)
    return Case(module.executorch_llama(held), lambda _: module.example(held)[0])


def pt2e(model: nn.Module, x: Tensor, quantizer: Any) -> Case:
    """Return a model quantized by PT2E."""
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    graph = torch.export.export(model.eval(), (x,)).module(check_guards=False)
    prepared = prepare_pt2e(graph, quantizer)
    prepared(x)
    return Case(convert_pt2e(prepared), lambda _: (x,))


def static(model: nn.Module, x: Tensor) -> Case:
    """Return a model with static int8 activations, a scale for each output channel of a weight."""
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
        XNNPACKQuantizer,
        get_symmetric_quantization_config,
    )

    return pt2e(model, x, XNNPACKQuantizer().set_global(get_symmetric_quantization_config(True)))


def weights(bits: int, **config: Any) -> Case:
    """Return linear layers quantized by Vulkan's quantizer."""
    from executorch.backends.vulkan.quantizer import vulkan_quantizer as vulkan

    held = vulkan.get_symmetric_quantization_config(weight_bits=bits, **config)
    return pt2e(linears(), torch.randn(3, 64), vulkan.VulkanQuantizer().set_global(held))


def linears() -> nn.Module:
    """Return two linear layers."""
    return nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 12))


def torchao(model: nn.Module, x: Tensor, activations: bool) -> Case:
    """Return a model quantized by torchao: int4 weights in groups."""
    from torchao.quantization import granularity, quant_api, quantize_
    from torchao.utils import unwrap_tensor_subclass

    group = granularity.PerGroup(32)
    config = (
        quant_api.Int8DynamicActivationIntxWeightConfig(torch.int4, group)
        if activations
        else quant_api.IntxWeightOnlyConfig(torch.int4, group)
    )
    quantize_(model, config, lambda layer, _: isinstance(layer, nn.Linear | nn.Embedding))
    unwrap_tensor_subclass(model)
    return Case(model, lambda _: (x,))


CASES: dict[str, Callable[[], Case]] = {
    **{
        name.partition(":")[2]: (lambda name=name: example(name))
        for name in (
            "mobilenet:mobilenet_v2", "mobilenet:mobilenet_v3_small", "resnet:resnet18",
            "resnet:resnet8", "deit:deit_small_depth2", "tiny:ds_cnn", "tiny:mlp_autoencoder",
            "recurrent:lstm", "recurrent:gru", "gpt2:gpt2_2layers", "llama:llama_4layers_prefill",
            "mobilevit:mobilevit_xxs", "vision:segformer", "vision:unet", "vision:super_resolution",
        )
    },
    "mobilenet_v2 in fp16": lambda: example("mobilenet:mobilenet_v2_035", force_fp16=True),
    "deit in fp16": lambda: example("deit:deit_small_depth2", force_fp16=True),
    "dynamic_batch": lambda: dynamic(
        "dynamic:dynamic_batch", (1, 2, 7, 64), lambda n: (torch.randn(n, 3, 16, 16),)
    ),
    "dynamic_length": lambda: dynamic(
        "dynamic:dynamic_length", (1, 2, 31, 128), lambda n: (torch.randn(1, n, 32),)
    ),
    "wavenet_of_any_length": lambda: dynamic(
        "wavenet:wavenet_of_any_length", (1, 2, 31, 256), lambda n: (torch.randint(0, 5, (1, n)),)
    ),
    **{
        f"{name} of any size": (lambda name=name: measured(name))
        for name in ("mpnet", "lfm2", "parakeet", "yolo")
    },
    "cell with state": lambda: Case(
        Kept(), lambda _: (torch.randn(1, 8),), options={"alias_buffer_mutations": True}, calls=4
    ),
    "ViT": lambda: transformer(
        "ViTConfig", "ViTModel", torch.randn(1, 3, 32, 32), image_size=32, patch_size=8, **SMALL
    ),
    "BERT": lambda: transformer("BertConfig", "BertModel", TOKENS, vocab_size=50, **SMALL),
    "Llama": lambda: transformer(
        "LlamaConfig", "LlamaForCausalLM", TOKENS, vocab_size=50, use_cache=False, **SMALL
    ),
    "ExecuTorch's Llama": executorch_llama,
    "ExecuTorch's Llama, int4": lambda: executorch_llama(weights="4w"),
    "int8 convolutions": lambda: static(Layers(), torch.randn(1, 3, 9, 9)),
    "int8 resnet8": lambda: static(*_model("resnet:resnet8")),
    "int8 weights": lambda: weights(8),
    "int4 weights": lambda: weights(4),
    "int8 weights, dynamic": lambda: weights(8, is_dynamic=True),
    "int4 groups": lambda: torchao(linears(), torch.randn(3, 64), False),
    "8da4w": lambda: torchao(linears(), torch.randn(1, 5, 64), True),
    "int4 embedding": lambda: torchao(
        nn.Sequential(nn.Embedding(32, 64), linears()), torch.randint(0, 32, (2, 3)), False
    ),
}  # fmt: skip


def _model(name: str) -> tuple[nn.Module, Tensor]:
    case = example(name)
    return case.model, case.inputs(0)[0]


def lowered(
    model: nn.Module, inputs: tuple[Any, ...], shapes: Any = None, options: Any = None
) -> bytes:
    """Return the `.pte` of the stock flow."""
    from executorch.backends.vulkan.partitioner.vulkan_partitioner import VulkanPartitioner
    from executorch.exir import to_edge_transform_and_lower

    exported = torch.export.export(model, inputs, dynamic_shapes=shapes)
    edge = to_edge_transform_and_lower(exported, partitioner=[VulkanPartitioner(options or {})])
    return bytes(edge.to_executorch().buffer)


def called(pte: bytes) -> list[Counter[str]]:
    """Return the operators of each Vulkan delegate of a file."""
    return [
        Counter(call["name"] for call in read_graph(delegate.payload)[0]["chain"])
        for method in read_container(bytearray(pte)).methods
        for delegate in method.delegates
        if delegate.backend == BACKEND
    ]


def worst(model: nn.Module, session: Any, inputs: tuple[Any, ...]) -> float:
    """Return the worst difference from eager PyTorch, relative to the output's magnitude."""
    expected = torch.utils._pytree.tree_leaves(model(*inputs))
    found = torch.utils._pytree.tree_leaves(session.run(*inputs))
    differences = [0.0]
    for one, other in zip(expected, found, strict=True):
        assert one.shape == other.shape and one.dtype == other.dtype, (one, other)
        assert one.isfinite().all() and other.isfinite().all() and one.unique().numel() > 1
        scale = float(one.abs().max()) if one.is_floating_point() else 1.0
        differences.append(float((one.double() - other.double()).abs().max()) / scale)
    return max(differences)


def row(name: str, seen: Counter[str]) -> str:
    """Lower, read and run a model; return its line of the table."""
    torch.manual_seed(0)
    with contextlib.redirect_stdout(io.StringIO()), torch.no_grad():
        case = CASES[name]()
        if not isinstance(case.model, torch.fx.GraphModule):
            case.model.eval()
        size = case.sizes[len(case.sizes) // 2]
        pte = lowered(case.model, case.inputs(size), case.shapes, case.options)
    operators = called(pte)
    for each in operators:
        seen.update(each)
    opened, differences = 0, [0.0]
    for size in case.sizes:
        sizes = {"forward": [each.shape for each in case.inputs(size)]}
        program = stepwell.read_pte(pte, sizes=sizes)
        program.verify()
        delegates = [op.name for op in program.module.walk() if "delegate" in op.name]
        opened, session = delegates.count("executorch.delegate"), program.start()
        for _ in range(case.calls):
            differences.append(worst(case.model, session, case.inputs(size)))
    calls, kinds = sum(sum(each.values()) for each in operators), len(sum(operators, Counter()))
    return f"| {name} | {opened} of {len(operators)} | {calls} | {kinds} | {max(differences):.1e} |"


def main() -> None:
    """Print the table and the lists of operators."""
    warnings.simplefilter("ignore")
    logging.disable(logging.ERROR)
    seen: Counter[str] = Counter()
    print(
        "| model | delegates opened | calls | operators | worst difference |\n|---|---|---|---|---|"
    )
    for name in sys.argv[1:] or CASES:
        try:
            print(row(name, seen), flush=True)
        except Exception as error:
            print(f"| {name} | {type(error).__name__}: {str(error).splitlines()[:1]} |", flush=True)
    from executorch.backends.vulkan.op_registry import vulkan_supported_ops

    keys = (key if isinstance(key, str) else key.__name__ for key in vulkan_supported_ops)
    registry = {f"{key.replace('::', '.')}.default" if "::" in key else key for key in keys}
    known = {name for name in registry if name in MEANINGS or name in NUMBERS or schema_class(name)}
    print(f"\n{len(known)} of {len(registry)} operators have a meaning; {len(seen)} were seen.")
    print("Without a meaning:", ", ".join(sorted(registry - known)))
    print("Not in these models:", ", ".join(sorted(known - set(seen))))


if __name__ == "__main__":
    main()
