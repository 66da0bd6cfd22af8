"""The text of every stage of a lowering, written, read and emitted: is it the direct artefact?

    python bench/levels.py                          # the repo's example models, every target
    python bench/levels.py --targets xnnpack --models resnet:resnet8

Of each model and target that lowers, each stage (`stepwell.stages`) is saved as text with its
weights, loaded, and emitted; the bytes are compared with those of the way in one go.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import torch
from torch.export import ExportedProgram, export

import stepwell
from stepwell.stages import stages_of

sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "models"))

MODELS = (
    "bert:bert",
    "clip:clip",
    "control_flow:cond_model",
    "control_flow:while_loop_model",
    "convnext:convnext_atto",
    "deit:deit_tiny",
    "dynamic:dynamic_batch",
    "dynamic:dynamic_length",
    "efficientnet:efficientnet_b0",
    "gpt2:gpt2_2layers",
    "llama:llama_4layers",
    "llama:llama_block",
    "mixer:mixer_s32",
    "mobilenet:mobilenet_v2_035",
    "mobilenet:mobilenet_v3_small",
    "mobilevit:mobilevit_xxs",
    "quantised:cnn_per_channel",
    "quantised:cnn_per_tensor",
    "quantised:mlp_dynamic",
    "recurrent:gru",
    "resnet:resnet18",
    "resnet:resnet8",
    "swin:swin_tiny",
    "tiny:ds_cnn",
    "tiny:mlp",
    "tiny:mlp_autoencoder",
    "transformer:transformer_encoder_2layers",
)
TARGETS = (
    "xnnpack",
    "xnnpack-published",
    "cortex-m55",
    "cortex-m4",
    "ethos-u55-128",
    "tosa-1.0+fp",
    "tosa-1.1+fp",
    "tosa-1.0+int",
    "tosa-1.0+fp+int",
    "tosa-1.0+fp+cpu",
    "tosa-1.0+int+cpu",
    "vgf",
)


def program(name: str) -> stepwell.Program:
    """The program of an example, `file:function`."""
    file, function = name.split(":")
    made = getattr(importlib.import_module(file), function)()
    if not isinstance(made, ExportedProgram):
        module, inputs, *shapes = made
        made = export(module, inputs, dynamic_shapes=shapes[0] if shapes else None)
    return stepwell.from_exported_program(made)


def stages(source: stepwell.Program, target: str) -> dict[str, bool]:
    """Stage → whether its text gives the artefact of the direct way."""
    direct = stepwell.lower(source, target)
    wanted, found = direct.emit(), {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "stage.mlir"
        for stage in stages_of(direct.target.pipeline, target):
            stepwell.lower(source, target, stop=stage).program.save(path)
            found[stage] = stepwell.emit(stepwell.load(path), target) == wanted
    return found


def main() -> None:
    """Print a row for each model and target."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", default=MODELS)
    parser.add_argument("--targets", nargs="+", default=TARGETS)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    rows, equal = Counter[str](), Counter[bool]()
    for name in arguments.models:
        try:
            source = program(name)
        except (AttributeError, ModuleNotFoundError) as error:
            print(f"{name}: {error}", flush=True)
            continue
        for target in arguments.targets:
            started = time.perf_counter()
            try:
                found = stages(source, target)
            except stepwell.StepwellError as error:
                rows["refused"] += 1
                said = str(error).splitlines()[0]
                print(f"{name:44} {target:18} refused: {said[:90]}", flush=True)
                continue
            rows["lowered"] += 1
            equal.update(found.values())
            wrong = [stage for stage, same in found.items() if not same]
            took = time.perf_counter() - started
            says = f"differs at {', '.join(wrong)}" if wrong else f"{len(found)} stages equal"
            print(f"{name:44} {target:18} {says} ({took:.1f} s)", flush=True)
    print(f"\n{dict(rows)}; stages: {equal[True]} of {equal.total()} give the artefact's bytes")


if __name__ == "__main__":
    main()
