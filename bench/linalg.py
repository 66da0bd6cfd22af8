"""Programs as `linalg` on tensors through IREE: which ones compile there, and their results.

    python bench/linalg.py [--models NAME,…]

Needs `iree-base-compiler` and `iree-base-runtime` in addition to stepwell. Each small model of the
zoo's examples is written by `program.render("linalg")`, compiled for this CPU and run; its results
are compared with eager PyTorch's, as parts of the largest number.
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
from _report import cpu_name, prepare, show, write
from torch.export import export

import stepwell
from stepwell.model_zoo.catalogue.models import Entry, select

MODELS = (
    "examples/resnet.resnet8,examples/mobilenet.mobilenet_v2,examples/deit.deit_tiny,"
    "examples/mixer*,examples/transformer*,examples/recurrent*,examples/tiny*,examples/pointnet*"
)
BOUND = 1e-4
"""Of the largest number of a result."""


def computed(text: str, inputs: tuple[torch.Tensor, ...]) -> list[Any]:
    """What IREE computes of the text."""
    from iree import compiler, runtime

    flags = ["--iree-llvmcpu-target-cpu=host"]
    made = compiler.compile_str(text, target_backends=["llvm-cpu"], extra_args=flags)
    context = runtime.SystemContext(config=runtime.Config("local-sync"))
    context.add_vm_module(runtime.VmModule.copy_buffer(context.instance, made))
    given = context.modules.module["forward"](*(x.numpy() for x in inputs))
    listed = given if isinstance(given, list | tuple) else [given]
    return [torch.from_numpy(each.to_host().copy()) for each in listed]


def asked(entry: Entry) -> str:
    made = entry.make()
    try:
        exported = made.program or export(made.module.eval(), made.inputs)
        program = stepwell.from_exported_program(exported)
        text = program.render("linalg")
    except stepwell.StepwellError as error:
        return "refused: " + str(error).partition("\n")[0]
    wanted = program.run(*made.inputs)
    try:
        given = computed(text, made.inputs)
    except Exception as error:  # Whatever its compiler says.
        return f"IREE: {str(error).strip().splitlines()[0][:100]}"
    far = max(
        float((one - other).abs().max() / other.abs().max().clamp_min(1e-30))
        for one, other in zip(given, wanted, strict=True)
    )
    return f"{'alike' if far < BOUND else 'WRONG'}, {far:.1e} of the largest"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", default=MODELS, help="names or patterns, behind commas")
    patterns = parser.parse_args().models.split(",")
    prepare()
    rows: list[list[str]] = []
    for entry in select(patterns):
        rows.append([entry.name, asked(entry)])
        print(*rows[-1], flush=True)
    show("linalg through IREE", ["model", "through IREE"], rows, cpu_name())
    write("linalg", dict(rows))


if __name__ == "__main__":
    main()
