"""ExecuTorch's own example models by its own export script, with one line of it changed.

    nice python bench/example_models.py [--only mv2] [--table docs/entry_points.md]

`executorch/examples/xnnpack/aot_compiler.py` is run as it is in the wheel, but for the line that
names the partitioner. Models are ExecuTorch's own classes, with random weights where these are
downloaded; those of torchvision and timm are built from examples/models, which are the same
networks, those of transformers and the language models from their configuration, with fewer layers
and words. Delegates are compared with what `stepwell.lower` makes, numbers with eager PyTorch (of
int8 with `stepwell.lower`): errors are shares of the largest number of an output. The mixed rows
have a second partitioner in the list; a program with Vulkan's delegates does not run here.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from _report import asked_for_rows, between_markers
from torch.utils import _pytree as pytree

import stepwell
from stepwell.cost_model.budgets import measure_pte
from stepwell.loaders.models import open_model

SCRIPT = "executorch.examples.xnnpack"
LINE = "partitioner=[XnnpackPartitioner()],"
OURS = "partitioner=[stepwell.StepwellPartitioner()],"
SECOND = {
    "XNNPACK": "partitioner=[stepwell.StepwellPartitioner(), XnnpackPartitioner()],",
    "Vulkan": "partitioner=[stepwell.StepwellPartitioner(), VulkanPartitioner()],",
}
IMPORTS = (
    "import stepwell\n"
    "from executorch.backends.vulkan.partitioner.vulkan_partitioner import VulkanPartitioner\n"
)
EXAMPLES = Path(__file__).parent.parent / "examples" / "models"

Made = tuple[torch.nn.Module, tuple[Any, ...]]


def of_examples(spec: str) -> Callable[[], Made]:
    """A network of examples/models, in the place of one whose weights are downloaded."""

    def make() -> Made:
        opened = open_model(f"{EXAMPLES / spec}")
        assert opened.module is not None and opened.inputs is not None
        return opened.module, opened.inputs

    return make


def mobilebert() -> Made:
    """MobileBERT of four layers."""
    from transformers import MobileBertConfig, MobileBertModel

    held = MobileBertConfig(num_hidden_layers=4, vocab_size=1000, return_dict=False)
    return MobileBertModel(held), (torch.randint(1000, (1, 8)),)


def whisper() -> Made:
    """Whisper of one layer a side, in ExecuTorch's wrapper."""
    from executorch.examples.models.whisper.model import WhisperWrapper
    from transformers import WhisperConfig, WhisperModel

    heads = {"encoder_attention_heads": 4, "decoder_attention_heads": 4}
    layers = {"encoder_layers": 1, "decoder_layers": 1, "vocab_size": 1000, **heads}
    tokens = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 3}
    model = WhisperModel(WhisperConfig(d_model=128, **layers, **tokens))
    return WhisperWrapper(model), (torch.randn(1, 80, 3000), torch.tensor([[3]]))


def transformer(**shape: Any) -> Callable[[], Made]:
    """ExecuTorch's transformer, as one of its language models has it; two layers, few words."""

    def make() -> Made:
        from executorch.examples.models.llama.llama_transformer import construct_transformer
        from executorch.examples.models.llama.model_args import ModelArgs

        held = {"n_layers": 2, "vocab_size": 512, "max_seq_len": 64, "max_context_len": 64}
        return construct_transformer(ModelArgs(**held, **shape)), (torch.randint(512, (1, 16)),)

    return make


MADE: dict[str, Callable[[], Made]] = {
    "mobilebert": mobilebert,
    "whisper": whisper,
    "llama2": transformer(dim=288, n_heads=6),
    "qwen2_5_1_5b": transformer(
        dim=256, hidden_dim=768, n_heads=8, n_kv_heads=2, use_hf_rope=True, attention_qkv_bias=True
    ),
    "qwen3": transformer(
        dim=256,
        hidden_dim=768,
        n_heads=8,
        n_kv_heads=4,
        use_hf_rope=True,
        use_qk_norm=True,
        qk_norm_before_rope=True,
        head_dim=64,
    ),
    "smollm2": transformer(dim=192, hidden_dim=512, n_heads=3, n_kv_heads=1),
    "phi_4_mini": transformer(
        dim=256,
        hidden_dim=768,
        n_heads=8,
        n_kv_heads=4,
        use_hf_rope=True,
        partial_rotary_factor=0.75,
    ),
    "mv2": of_examples("mobilenet.py:mobilenet_v2"),
    "mv3": of_examples("mobilenet.py:mobilenet_v3_small"),
    "resnet18": of_examples("resnet.py:resnet18"),
    "resnet50": of_examples("resnet.py:resnet50"),
    "deit_tiny": of_examples("deit.py:deit_tiny"),
}
"""What ExecuTorch downloads weights for; its other models are its own classes."""

OWN = (
    "mul linear add add_mul softmax conv1d sdpa lstm deep_autoencoder ds_cnn mobilenet_v1_025 "
    "resnet8"
)
ROWS = (
    *((name, "", "") for name in (*OWN.split(), *MADE)),
    *((name, "-q", "") for name in ("linear", "add_mul", "mv2")),
    *((name, "", "XNNPACK") for name in ("softmax", "lstm", "mobilebert")),
    *((name, "", "Vulkan") for name in ("softmax", "lstm", "mobilebert")),
)
"""(model, an argument of the script, the second backend)."""


@dataclass(frozen=True)
class Row:
    """The result of the script for a model.

    Attributes:
        model: as ExecuTorch calls it, with what it was asked besides.
        delegates: in the program that the script wrote.
        lower: in what `stepwell.lower` makes of the same export.
        error: against eager PyTorch, quantized against what `lower` makes; None if the program does
            not run here.
        fails: what ended it.
    """

    model: str
    delegates: int = 0
    lower: int = 0
    error: float | None = None
    fails: str = ""

    @property
    def is_right(self) -> bool:
        """Whether the numbers are eager's (those of `sdpa` are in bfloat16)."""
        return not self.fails and (self.error is None or self.error < 1e-2)


@contextlib.contextmanager
def made_here(name: str) -> Iterator[None]:
    """ExecuTorch's factory gives our module where its own would download one."""
    from executorch.examples.models.model_factory import EagerModelFactory

    torch.manual_seed(0)
    if name not in MADE:
        yield
        return
    module, inputs = MADE[name]()
    held = (module.eval(), inputs, None, None)
    with mock.patch.object(EagerModelFactory, "create_model", lambda *_: held):
        yield


def run_script(name: str, flag: str, second: str) -> tuple[bytes, list[Any]]:
    """Run ExecuTorch's script; the program that it writes, and what it gave to the flow."""
    import executorch.exir as exir

    package = importlib.import_module(SCRIPT)
    text = (Path(package.__path__[0]) / "aot_compiler.py").read_text()
    assert text.count(LINE) == 1
    text = text.replace(LINE, SECOND[second] if second else OURS)
    options = package.MODEL_NAME_TO_OPTIONS  # Of models it does not list the script knows none.
    listed = {name: package.XNNPACKOptions(package.QuantType.NONE, True), **options}
    head, future, rest = text.partition("import argparse\n")
    given: list[Any] = []
    flow = exir.to_edge_transform_and_lower

    def seen(program: Any, *args: Any, **kwargs: Any) -> Any:
        given.append(program)
        return flow(program, *args, **kwargs)

    with (
        tempfile.TemporaryDirectory() as folder,
        made_here(name),
        mock.patch.dict(options, listed),
        mock.patch.object(exir, "to_edge_transform_and_lower", seen),
        mock.patch.object(sys, "argv", ["aot_compiler", "-m", name, "-o", folder, *flag.split()]),
    ):
        space = {"__name__": "__main__", "__package__": SCRIPT}
        exec(compile(head + IMPORTS + future + rest, "aot_compiler.py", "exec"), space)
        (written,) = Path(folder).glob("*.pte")
        return written.read_bytes(), given


def row(name: str, flag: str = "", second: str = "") -> Row:
    """One model through the script."""
    title = " ".join(filter(None, [name, flag, f"with {second}" if second else ""]))
    try:
        data, (exported,) = run_script(name, flag, second)
    except Exception as error:
        return Row(title, fails=f"{type(error).__name__}: {str(error).splitlines()[0][:150]}")
    delegates = measure_pte(data).delegates or 0
    lowered = stepwell.lower(exported, "xnnpack")
    made = lowered.report.delegates
    if b"VulkanBackend" in data:
        return Row(title, delegates, made)
    inputs = exported.example_inputs[0]
    with torch.no_grad():
        eager = exported.module()(*inputs)
    wanted = list(lowered.run(*inputs)) if flag == "-q" else pytree.tree_leaves(eager)
    found = stepwell.run_pte(data, pytree.tree_leaves(inputs))
    errors = [
        ((ours - known).abs().max() / known.abs().max().clamp(min=1e-30)).item()
        for ours, known in zip(found, wanted, strict=True)
    ]
    return Row(title, delegates, made, max(errors))


def markdown(rows: list[Row]) -> str:
    """The rows as a table."""
    lines = ["| model | delegates | of `lower` | error |", "|---|---|---|---|"]
    for one in rows:
        error = one.fails or ("does not run here" if one.error is None else f"{one.error:.0e}")
        lines.append(f"| {one.model} | {one.delegates} | {one.lower} | {error} |")
    return "\n".join(lines)


def main() -> None:
    """Run every model, print the rows and write them into a page."""
    arguments = asked_for_rows(__doc__)
    rows: list[Row] = []
    for name, flag, second in ROWS:
        if arguments.only not in name:
            continue
        with contextlib.redirect_stderr(io.StringIO()):
            rows.append(row(name, flag, second))
        print(json.dumps(asdict(rows[-1])), flush=True)
    right = sum(one.is_right for one in rows)
    print(f"{right} of {len(rows)} right")
    if arguments.table:
        between_markers(arguments.table, "example models", markdown(rows).splitlines())


if __name__ == "__main__":
    main()
