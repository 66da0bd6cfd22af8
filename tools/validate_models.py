"""Validate right artifacts of many models: any reported difference is a false alarm.

    python tools/validate_models.py [NAME …] [--keep FOLDER]   # models, or groups: `portable`, …
    python tools/validate_models.py --time    # DeiT-Tiny, and a detector

Artifacts are `.pte`s of ExecuTorch's flows, and a few of this project's. Weights are random, those
of norms not trivial. A row is refused if a package is not installed or the flow raises. Printed:
the verdict, the model's values that are in the artifact, seconds, and the peak memory that the
validation adds to its process, beside the artifact's size. The status is the number of models that
are not right.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from _artifacts import each_in_a_child, exported, kept, prepare, stock

MEGABYTE = 1 << 20
GROUPS = {
    "xnnpack": """examples/mobilenet.mobilenet_v2_035 examples/mobilenet.mobilenet_v3_small
        examples/deit.deit_small_depth2 examples/resnet.resnet8
        examples/llama.llama_block examples/bert.bert examples/t5.t5_block
        examples/whisper.whisper_encoder examples/whisper.whisper_decoder
        examples/wav2vec2.wav2vec2 examples/vocoders.hifigan examples/wavenet.wavenet
        examples/vision.vit_with_registers examples/vision.segformer examples/vision.unet
        examples/vision.densenet examples/vision.super_resolution examples/detection.yolov5
        examples/detection.detr_decoder examples/pointnet.pointnet
        examples/tables_and_graphs.tabnet examples/tables_and_graphs.ft_transformer
        examples/state_space.mamba examples/recurrent.lstm examples/clip.clip
        examples/diffusion.vae examples/decoders.mixture_of_experts
        detectors/yolos detectors/detr timm/mobilenetv4_conv_small timm/ghostnet_050
        timm/efficientvit_b0 timm/convnextv2_atto timm/levit_128s torchvision/squeezenet1_1
        torchvision/shufflenet_v2_x0_5 torchvision/mnasnet0_5 smp/fpn-mobilenet_v2
        transformers/hubert/HubertForCTC
        transformers/roberta/RobertaForMaskedLM""",
    "portable": """examples/gpt2.gpt2_2layers examples/decoders.gemma2 examples/bert.bert
        examples/transformer.transformer_encoder_2layers examples/deit.deit_small_depth2
        examples/t5.t5 examples/resnet.resnet8
        examples/tables_and_graphs.graph_attention examples/tables_and_graphs.graph_convolution
        examples/conv_tasnet.conv_tasnet examples/recurrent.gru
        examples/vocoders.snake_vocoder examples/state_space.mamba""",
    "int8": """quantized/tiny.ds_cnn@int8-xnnpack quantized/resnet.resnet8@int8-xnnpack
        quantized/mobilenet.mobilenet_v2_035@int8-xnnpack quantized/vision.unet@int8-xnnpack
        quantized/transformer.transformer_encoder_2layers@int8-xnnpack
        quantized/vision.vit_with_registers@int8-xnnpack""",
    "dynamic": """examples/quantized.mlp_dynamic quantized/decoders.qwen3_block@8da4w
        quantized/transformer.transformer_encoder_2layers@int8-xnnpack-dynamic""",
    "cortex-m": """quantized/tiny.ds_cnn@int8-cortex-m quantized/tiny.mlp_autoencoder@int8-cortex-m
        quantized/resnet.resnet8@int8-cortex-m quantized/microcontrollers.tcn@int8-cortex-m
        quantized/quantized.small_conv_net@int8-cortex-m""",
    "dynamic sizes": """examples/dynamic.dynamic_batch examples/dynamic.dynamic_length
        examples/pointnet.pointnet_of_any_number examples/decoders.qwen3_block_of_any_length
        examples/wavenet.wavenet_of_any_length""",
    "cache": "examples/llama.llama_4layers transformers/llama/LlamaForCausalLM/cache",
    "own": "examples/deit.deit_small_depth2 examples/mobilenet.mobilenet_v2_035 examples/bert.bert",
}
"""Models by group; a group is named like its flow, or is of the XNNPACK flow."""
FLOWS = {"int8": "xnnpack", "dynamic sizes": "xnnpack", "cache": "xnnpack"}
TIMED = (("xnnpack", "examples/deit.deit_tiny"), ("xnnpack", "detectors/rt_detr"))


@dataclass(frozen=True)
class Row:
    """The verdict on a right artifact.

    Attributes:
        verdict: `ok`, or `FALSE ALARM`.
        matched, values: the values that are in, or inside an operator of, the artifact; all.
        operators: the operators of the exported program.
        seconds: seconds of the validation, with its start of the runtime's process.
        peak, size: megabytes that the validation adds, and of the artifact.
        said: the verdict's first line.
    """

    verdict: str
    matched: int
    values: int
    operators: int
    seconds: float
    peak: float
    size: float
    said: str


def row(task: tuple[str, str], folder: Path | None) -> Row:
    """Validate the artifact of a flow and a model."""
    from stepwell.model_zoo.sweep.memory import peak
    from stepwell.validation.artifacts import validate

    group, name = task
    source, inputs = exported(name)
    flow = FLOWS.get(group, group)
    data = kept(folder, f"{flow} {name}", lambda: stock(source, flow))
    began = time.monotonic()
    found, most = peak(lambda: validate(data, source, tuple(inputs)))
    return Row(
        "ok" if found.ok else "FALSE ALARM",
        found.matched + found.inner,
        found.values,
        sum(node.op == "call_function" for node in source.graph.nodes),
        time.monotonic() - began,
        (most or 0) / MEGABYTE,
        len(data) / MEGABYTE,
        str(found).splitlines()[0],
    )


def main() -> int:
    """Print a row for each model, and return how many are not right."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("names", nargs="*", help="models or groups; all if none")
    parser.add_argument("--keep", type=Path, help="a folder of artifacts that are made once")
    parser.add_argument("--time", action="store_true", help="the two models that are timed")
    asked = parser.parse_args()
    pairs = [(group, name) for group, names in GROUPS.items() for name in names.split()]
    tasks = [pair for pair in pairs if not asked.names or {*pair} & {*asked.names}]
    prepare()
    print("| flow | model | verdict | matched | operators | seconds | peak | file |")
    print("|---" * 8 + "|")
    right, wholly = 0, 0
    tasks = list(TIMED) if asked.time else tasks
    for (group, name), result, said, _ in each_in_a_child(partial(row, folder=asked.keep), tasks):
        lead = f"| {group} | {name}"
        if result is None:
            print(f"{lead} | refused: {said} | | | | | |", flush=True)
            continue
        right += result.verdict == "ok"
        share = result.matched / max(result.values, 1)
        wholly += share >= 0.9
        verdict = "ok" if result.verdict == "ok" else f"{result.verdict}: {result.said}"
        print(
            f"{lead} | {verdict} | {result.matched} of {result.values} ({share:.0%}) "
            f"| {result.operators} | {result.seconds:.1f} | {result.peak:.0f} MB "
            f"({result.peak / result.size:.1f} ×) | {result.size:.1f} MB |",
            flush=True,
        )
    print(f"{right} of {len(tasks)} right; of {wholly}, 90 % of the values are matched")
    return len(tasks) - right


if __name__ == "__main__":
    sys.exit(main())
