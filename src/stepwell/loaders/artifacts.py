"""Read artifacts: a `.pte`, `.tosa` or `.vgf` file becomes a program again, or is run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stepwell.backends.cortex_m.read import is_cortex_m, read_program
from stepwell.backends.ethos_u.emit import TOSA_BACKEND
from stepwell.backends.ethos_u.read import EthosuReader, TosaReader
from stepwell.backends.ethos_u.vela import BACKEND
from stepwell.backends.executorch.container import TensorValue
from stepwell.backends.executorch.external import joined_externals
from stepwell.backends.executorch.kernels.scalar_types import torch_dtype
from stepwell.backends.executorch.reading.fixed_sizes import InputSizes, at_largest
from stepwell.backends.executorch.reading.lift import read_pte as pte_program
from stepwell.backends.executorch.reading.read import read_container
from stepwell.backends.executorch.reading.readers import DelegateReader, Readers
from stepwell.backends.executorch.running.runner import run_pte as run
from stepwell.backends.executorch.writing.bundled import is_bundled, unbundled
from stepwell.backends.tosa import read_tosa as tosa_program
from stepwell.backends.tosa.vgf_reader import read_vgf as vgf_program
from stepwell.backends.vulkan.read import VulkanReader
from stepwell.backends.vulkan.schema import BACKEND as VULKAN_BACKEND
from stepwell.backends.xnnpack.read import XnnpackReader, check_payloads
from stepwell.dialects import make_known
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.diagnostics import UnsupportedError
from stepwell.ir.platform.files import Content, content
from stepwell.plugins.plugins import registry
from stepwell.program import Program
from stepwell.validation.fills import tensor_of

__all__ = ["join_ptds", "random_inputs", "read_pte", "read_tosa", "read_vgf", "run_pte"]

DELEGATES = {
    "XnnpackBackend": XnnpackReader(),
    BACKEND: EthosuReader(),
    TOSA_BACKEND: TosaReader(),
    VULKAN_BACKEND: VulkanReader(),
}
"""The delegates that `read_pte` opens, with those of plug-ins; others stay opaque."""


def pte_readers(**others: DelegateReader) -> Readers:
    """Return the readers of delegates: stepwell's own, plug-ins', and others in their place."""
    brought = {name: make() for name, make in registry().delegates.items()}
    return Readers(delegates={**DELEGATES, **brought, **others})


def read_pte(
    data: Content,
    *,
    external: Content | None = None,
    largest: bool = False,
    sizes: InputSizes | None = None,
) -> Program:
    """Read the program in a `.pte` file, written by stepwell or by another tool.

    Kernel calls become ops and XNNPACK delegates are decoded; delegates of unknown backends stay
    opaque and are marked as such.

    Args:
        data: the file, as bytes, a path or an open file.
        external: the `.ptd`, in the same forms, if weights are stored there.
        largest: give tensors of dynamic shape the largest sizes that they declare. A `.pte` does
            not record which axes vary, nor which are equal, as a delegate's nodes require.
        sizes: by method, the sizes of each tensor input for which the program is read; other sizes
            follow from them.

    Raises:
        ParseFailure: the bytes are not a `.pte`, or are damaged.
        StepwellError: an input does not take the sizes.
        UnsupportedError: a delegate has dynamic sizes, without `largest` or `sizes`; or the file
            has instructions without a corresponding op, which the message lists.
    """
    make_known()
    held = content(data, ".pte")
    if external is None and is_cortex_m(container := read_container(bytearray(held))):
        return read_program(at_largest(container) if largest else container)
    weights = None if external is None else content(external, ".ptd")
    return pte_program(held, pte_readers(), external=weights, largest=largest, sizes=sizes)


def read_at_any_size(data: bytes, external: bytes | None = None) -> Program:
    """Read the program in a `.pte` to be interpreted at any size that it takes, not to be verified.

    Raises:
        ParseFailure, UnsupportedError: as `read_pte`.
    """
    make_known()
    try:
        readers = pte_readers(XnnpackBackend=XnnpackReader(largest=True))
        return pte_program(data, readers, external=external)
    except UnsupportedError:
        return read_pte(data, external=external, largest=True)


def join_ptds(files: Sequence[Content]) -> bytes:
    """Merge several `.ptd` files: ExecuTorch in Python and `read_pte` take a single one.

    Args:
        files: the files, as bytes, paths or open files; of equal names, the first file's data is
            used.

    Raises:
        ParseFailure: the bytes are not a `.ptd`, or are damaged.
    """
    return joined_externals([content(file, ".ptd") for file in files])


def read_tosa(data: Content) -> Program:
    """Read the program in a TOSA flatbuffer of any producer.

    Args:
        data: the file, as bytes, a path or an open file.

    Raises:
        StepwellError: the file cannot be read, or is not a TOSA file.
    """
    return tosa_program(content(data, "TOSA flatbuffer"))


def read_vgf(data: Content) -> Program:
    """Read the program in a `.vgf` file (Arm's, for Vulkan's ML extensions) of one graph.

    The result is at level `tosa`. Inputs and outputs are named as in the file, which stores numbers
    in place of the graph's names.

    Args:
        data: the file, as bytes, a path or an open file.

    Raises:
        ParseFailure: the bytes are not a `.vgf`, or are damaged.
        UnsupportedError: the file has shaders, several segments, or sparse constants.
    """
    return vgf_program(content(data, ".vgf"))


def read_artifact(data: bytes) -> Program:
    """Read the program in a `.pte`, `.bpte`, `.tosa` or `.vgf` file, by its identifier."""
    if data[4:8] == b"TOSA":
        return read_tosa(data)
    if data.startswith(b"VGF1"):
        return read_vgf(data)
    return read_pte(unbundled(data) if is_bundled(data) else data)


def run_pte(
    data: Content, inputs: Sequence[Any], method: str = "forward", *, cpu: str | None = None
) -> tuple[Any, ...]:
    """Check inputs against the signature of a `.pte` and run it on the ExecuTorch runtime.

    With `cpu`, the program runs on an emulated Arm64 core (`docs/arm64.md`).

    This machine's runtime has no Cortex-M kernels: a Cortex-M program runs in the interpreter,
    which is bit-exact with CMSIS-NN.
    """
    held = content(data, ".pte")
    if is_cortex_m(container := read_container(bytearray(held))):
        return read_program(container).run(*inputs, method=method)
    check_payloads(container)
    return run(held, inputs, method, cpu=cpu)


def random_inputs(data: bytes, method: str, seed: int) -> list[Any]:
    """Draw inputs for a method of a `.pte` from a seed: normal floats, small integers; those that a
    check draws for its program.

    Dynamic dimensions have their greatest size.
    """
    container = read_container(bytearray(data))
    found = container.method(method)
    generator = torch.Generator().manual_seed(seed)
    inputs: list[Any] = []
    for index in found.inputs:
        value = found.values[index]
        if not isinstance(value, TensorValue):
            inputs.append(value)
            continue
        dtype = torch_dtype(value.scalar_type)
        sizes = list(value.sizes)
        if dtype.is_floating_point:
            drawn = tensor_of(sizes, dtype, "random", generator)
        else:
            drawn = torch.randint(0, 2, sizes, generator=generator).to(dtype)
        if tuple(value.dim_order) == (0, 2, 3, 1):
            drawn = drawn.to(memory_format=torch.channels_last)
        inputs.append(drawn)
    return inputs
