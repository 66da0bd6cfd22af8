"""Models that XNNPACK runs as one delegate, and what is outside with the reason.

    python bench/delegates.py [--only rwkv] [--table docs/language_models.md]

Each is built from its configuration, with random weights and nothing downloaded; exported, lowered,
run on ExecuTorch's runtime and compared with eager PyTorch. Errors are shares of the largest number
of an output. Where sizes are symbolic the program runs at two more sizes than it was exported with.
The packages are those of the extra `zoo`.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from _report import between_markers, prepare
from torch.export import Dim

import stepwell
from stepwell.backends.executorch.running.runner import PteSession
from stepwell.model_zoo.catalogue.models import find
from stepwell.model_zoo.catalogue.vision import imported
from stepwell.model_zoo.catalogue.weights import scaled
from stepwell.model_zoo.catalogue.wrapping import TensorFunction

Inputs = tuple[torch.Tensor, ...]


@dataclass(frozen=True)
class Case:
    """A model, and the inputs that it is run on.

    Attributes:
        make: gives the module and the inputs it is exported with.
        dynamic: symbolic sizes of the inputs, as `torch.export` takes them.
        others: more inputs, of other sizes.
        numerics: what `stepwell.lower` is told; `finite` where no input is infinite or NaN.
    """

    make: Callable[[], tuple[torch.nn.Module, Inputs]]
    dynamic: Any = None
    others: Callable[[], Sequence[Inputs]] = tuple
    numerics: str = "torch"


def of_zoo(name: str) -> Callable[[], tuple[torch.nn.Module, Inputs]]:
    """A model of the catalogue that `stepwell sweep` walks."""

    def make() -> tuple[torch.nn.Module, Inputs]:
        made = find(name).make()
        assert made.module is not None
        return made.module, made.inputs

    return make


def of_timm(name: str) -> tuple[torch.nn.Module, Inputs]:
    """A model of timm."""
    model = imported("timm").create_model(name).eval()
    image = (torch.randn(1, *model.default_cfg["input_size"]),)
    return scaled(model, image), image


def vits_flow() -> tuple[torch.nn.Module, Inputs]:
    """The flow of VITS from latent noise to what the decoder takes: couplings and flips."""
    imported("transformers")
    from transformers import VitsConfig
    from transformers.models.vits.modeling_vits import VitsResidualCouplingBlock

    config = VitsConfig(hidden_size=32, flow_size=32, num_hidden_layers=2)
    flow = VitsResidualCouplingBlock(config).eval()
    inputs = torch.randn(1, 32, 40), torch.ones(1, 1, 40)
    return scaled(TensorFunction(flow, fixed={"reverse": True}), inputs), inputs


def clap_audio() -> tuple[torch.nn.Module, Inputs]:
    """The audio tower of CLAP: Swin on spectrograms."""
    imported("transformers")
    from transformers import ClapAudioConfig, ClapAudioModel

    config = ClapAudioConfig(depths=[1, 1, 2, 1], num_hidden_layers=4)
    inputs = (torch.randn(1, 1, 1001, 64),)
    return scaled(
        TensorFunction(ClapAudioModel(config).eval(), ("input_features",)), inputs
    ), inputs


def pan() -> tuple[torch.nn.Module, Inputs]:
    """PAN of `segmentation_models_pytorch`, which halves the image seven times."""
    module, _ = of_zoo("smp/pan-resnet18")()
    return module, (torch.randn(1, 3, 256, 384),)


def tokens(*shape: int) -> torch.Tensor:
    """Random tokens."""
    return torch.randint(3, 60, shape)


def any_tokens(count: int = 1) -> dict[str, Any]:
    """A symbolic length for each of some inputs of tokens, which are also run at two others."""
    dims = tuple({1: Dim(f"length{index}", min=2, max=64)} for index in range(count))
    lengths = ((5, 9), (33, 17))
    return {
        "dynamic": dims,
        "others": lambda: [tuple(tokens(1, n) for n in each[:count]) for each in lengths],
    }


def any_image(step: int) -> dict[str, Any]:
    """A symbolic height and width in steps, also run at two other sizes."""
    sizes = ((step * 4, step * 3), (step * 5, step * 2))
    height, width = (Dim(name, min=2, max=10) for name in ("height", "width"))
    return {
        "dynamic": ({2: step * height, 3: step * width},),
        "others": lambda: [(torch.randn(1, 3, *size),) for size in sizes],
    }


CASES = {
    "RWKV": Case(of_zoo("transformers/rwkv/RwkvForCausalLM")),
    "Phi-3": Case(of_zoo("transformers/phi3/Phi3ForCausalLM")),
    "DINOv3": Case(of_zoo("transformers/dinov3_vit/DINOv3ViTModel")),
    "VITS flow": Case(vits_flow),
    "PatchTST": Case(of_zoo("transformers/patchtst/PatchTSTModel")),
    "CLAP audio": Case(clap_audio),
    "HaloNet": Case(lambda: of_timm("halonet26t")),
    "GhostNetV3": Case(lambda: of_timm("ghostnetv3_100")),
    "Llama, any length": Case(of_zoo("transformers/llama/LlamaForCausalLM"), **any_tokens()),
    "Qwen3, any length": Case(of_zoo("transformers/qwen3/Qwen3ForCausalLM"), **any_tokens()),
    "GPT-2, any length": Case(of_zoo("transformers/gpt2/GPT2LMHeadModel"), **any_tokens()),
    "BERT, any length": Case(of_zoo("transformers/bert/BertForMaskedLM"), **any_tokens()),
    "T5, any two lengths": Case(
        of_zoo("transformers/t5/T5ForConditionalGeneration"), **any_tokens(2)
    ),
    "SegFormer, any image": Case(
        of_zoo("transformers/segformer/SegformerForSemanticSegmentation"),
        **any_image(32),
        numerics="finite",
    ),
    "PAN, any image": Case(pan, **any_image(128), numerics="finite"),
}
"""What is lowered, by its name in the table."""


def distance(found: Sequence[torch.Tensor], wanted: Sequence[torch.Tensor]) -> float:
    """The largest difference of an output, as a share of that output's largest number."""
    return max(
        float((one - other).abs().max() / other.abs().max().clamp_min(1e-30))
        for one, other in zip(found, wanted, strict=True)
    )


@torch.no_grad()
def row(name: str, case: Case, why: bool) -> str:
    """A model's row: delegates, what is outside, error at every size."""
    torch.manual_seed(0)
    module, inputs = case.make()
    shapes = (
        (case.dynamic,) if isinstance(module, TensorFunction) and case.dynamic else case.dynamic
    )
    program = torch.export.export(module, inputs, dynamic_shapes=shapes)
    lowered = stepwell.lower(program, "xnnpack", numerics=case.numerics)
    session = PteSession.load(lowered.to_pte())
    errors = [
        distance(session.run(*given), [x for x in module(*given) if torch.is_tensor(x)])
        for given in (inputs, *case.others())
    ]
    if why:
        print(*map(str, lowered.report.refusals), sep="\n")
    outside = ", ".join(
        name.removeprefix("aten.") + (f" ×{count}" if count > 1 else "")
        for name, count in lowered.report.outside.items()
    )
    sizes = "" if len(errors) == 1 else f" at {len(errors)} sizes"
    name += f" (numerics={case.numerics!r})" if case.numerics != "torch" else ""
    return f"| {name} | {lowered.report.delegates} | {outside or '–'} | {max(errors):.1e}{sizes} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="models whose name has this in it")
    parser.add_argument("--why", action="store_true", help="print what was refused, and why")
    parser.add_argument("--table", type=Path, help="write the table between a document's markers")
    given = parser.parse_args()
    prepare()
    os.environ["HF_HUB_OFFLINE"] = "1"
    lines = ["| model | delegates | outside | error |", "|---|---|---|---|"]
    print(*lines, sep="\n", flush=True)
    for name, case in CASES.items():
        if given.only.lower() in name.lower():
            lines.append(row(name, case, given.why))
            print(lines[-1], flush=True)
    if given.table:
        between_markers(given.table, "delegates", lines)


if __name__ == "__main__":
    main()
