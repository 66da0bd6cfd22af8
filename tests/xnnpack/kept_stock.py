"""What ExecuTorch's own flows make of the programs of tests, kept: it takes seconds for each.

`data/stock.zip` has a `.pte` by the digest of a program and of the versions that made it. What is
not in it, since a test or a version changed, is made in every run. To make all anew, compare them
with what is kept, and keep what is new:

    KEEP_STOCK=1 python -m pytest tests/levels/test_stock.py \
        tests/xnnpack/test_quantized{,_stock,_weights}.py tests/xnnpack/test_patches*.py

Nets of `test_a_random_net_equals_stock_bit_for_bit` are in no file: each run asks the flow itself.
"""

import hashlib
import os
import zipfile
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import to_edge_transform_and_lower
from torch.export import ExportedProgram

KEPT = Path(__file__).parent / "data" / "stock.zip"


def digest(ep: ExportedProgram) -> str:
    """A program by its graph, signature, types and tensors, and the versions of its makers."""
    made = hashlib.sha256(f"{version('torch')} {version('executorch')}\n".encode())
    for node in ep.graph.nodes:
        made.update(f"{node.format_node()} {node.meta.get('val')}\n".encode())
    made.update(str(ep.graph_signature).encode())
    for name, value in sorted({**ep.state_dict, **ep.constants}.items()):
        made.update(f"{name} {value.dtype} {tuple(value.shape)} {value.stride()}".encode())
        made.update(value.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return made.hexdigest()[:32]


def kept(flow: str, ep: ExportedProgram, make: Callable[[], bytes]) -> bytes:
    """What a flow of that name makes of a program, of the file or made now."""
    name, keeps = f"{digest(ep)} {flow}", "KEEP_STOCK" in os.environ
    with zipfile.ZipFile(KEPT) as file:
        known = file.read(name) if name in file.namelist() else None
    if known is not None and not keeps:
        return known
    made = make()
    assert known in (None, made), "stock makes another program of it than it did"
    if known is None and keeps:
        with zipfile.ZipFile(KEPT, "a") as file:
            file.writestr(zipfile.ZipInfo(name), made, zipfile.ZIP_DEFLATED)
    return made


def stock_program(ep: ExportedProgram) -> bytes:
    """The `.pte` of stock's flow with its XNNPACK partitioner, which may change the program."""

    def make() -> bytes:
        edge = to_edge_transform_and_lower(ep, partitioner=[XnnpackPartitioner()])
        return bytes(edge.to_executorch().buffer)

    return kept("xnnpack", ep, make)
