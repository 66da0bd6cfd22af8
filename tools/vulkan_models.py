"""Models of ExecuTorch's Vulkan flow: read, interpreted, and compared with eager PyTorch.

Each model is lowered by `to_edge_transform_and_lower` with `VulkanPartitioner`. The table names its
delegates (opened, of all), the Vulkan operators in them, and the worst difference from eager
PyTorch, relative to the greatest magnitude of the output. The last lines name the operators of
ExecuTorch's registry that were seen, that have a meaning, and that have none.

    python tools/vulkan_models.py [NAME ...]
"""

from __future__ import annotations

import contextlib
import io
import logging
import sys
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import stepwell
from stepwell.backends.executorch.reading.read import read_container
from stepwell.backends.vulkan.schema import BACKEND, read_graph

sys.path.insert(0, str(Path(__file__).parents[1] / "examples/models"))

EXAMPLES = (
    "mobilenet:mobilenet_v2", "mobilenet:mobilenet_v3_small", "resnet:resnet18", "resnet:resnet8",
    "deit:deit_small_depth2", "tiny:ds_cnn", "tiny:mlp", "recurrent:lstm", "recurrent:gru",
    "gpt2:gpt2_2layers", "llama:llama_4layers_prefill",
)  # fmt: skip


def lowered(
    model: nn.Module, inputs: tuple[Any, ...], shapes: Any = None, options: Any = None
) -> bytes:
    """Return the `.pte` of the stock flow."""
    from executorch.backends.vulkan.partitioner.vulkan_partitioner import VulkanPartitioner
    from executorch.exir import to_edge_transform_and_lower

    exported = torch.export.export(model.eval(), inputs, dynamic_shapes=shapes)
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


def worst(model: nn.Module, program: stepwell.Program, inputs: tuple[Any, ...]) -> float:
    """Return the worst difference from eager PyTorch, relative to the output's magnitude."""
    expected = torch.utils._pytree.tree_leaves(model(*inputs))
    found = torch.utils._pytree.tree_leaves(program.run(*inputs))
    differences = [0.0]
    for one, other in zip(expected, found, strict=True):
        if isinstance(one, Tensor):
            assert one.shape == other.shape and one.dtype == other.dtype, (one, other)
            scale = max(float(one.abs().max()), 1e-30) if one.is_floating_point() else 1.0
            differences.append(float((one.double() - other.double()).abs().max()) / scale)
    return max(differences)


def row(name: str, seen: Counter[str]) -> str:
    """Lower, read and run a model; return its line of the table."""
    module, function = name.split(":")
    torch.manual_seed(0)
    model, inputs, *shapes = getattr(__import__(module), function)()
    with contextlib.redirect_stdout(io.StringIO()), torch.no_grad():
        pte = lowered(model, inputs, *shapes)
    operators = called(pte)
    for each in operators:
        seen.update(each)
    program = stepwell.read_pte(pte, largest=True)
    program.verify()
    names = [op.name for op in program.module.walk()]
    opened, count = names.count("executorch.delegate"), sum(map(len, operators))
    try:
        difference = f"{worst(model, program, inputs):.1e}"
    except stepwell.StepwellError as error:
        difference = str(error).splitlines()[0][:80]
    calls = sum(sum(each.values()) for each in operators)
    return f"{function:28} {opened}/{len(operators):<4} {calls:5} {count:4} {difference}"


def main() -> None:
    """Print the table."""
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    seen: Counter[str] = Counter()
    for name in sys.argv[1:] or EXAMPLES:
        try:
            print(row(name, seen), flush=True)
        except Exception as error:
            print(f"{name:28} {type(error).__name__}: {str(error).splitlines()[:1]}", flush=True)
    print(seen)


if __name__ == "__main__":
    main()
