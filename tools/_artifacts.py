"""Artifacts of ExecuTorch's own flows, and child processes in which they run.

A `.pte` that the runtime loaded is never freed, so each comparison has a process of its own.
"""

from __future__ import annotations

import copy
import logging
import multiprocessing
import os
import re
import resource
import signal
import time
import traceback
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

T, R = TypeVar("T"), TypeVar("R")
AT_ONCE = 2
GIGABYTE = 1 << 30


def exported(name: str) -> tuple[ExportedProgram, list[Any]]:
    """Export a model and return the program with its flat inputs.

    Args:
        name: a name of the catalogue, or `detectors/detr` for one of `tools/detectors.py`.
    """
    from stepwell.model_zoo.catalogue.models import find

    folder, _, detector = name.partition("/")
    if folder == "detectors":
        return _detector(detector)
    made = find(name).make()
    if made.program is not None:
        return made.program, flat_inputs(made.program)
    assert made.module is not None
    made.module.requires_grad_(False)  # Otherwise the portable flow raises for a buffer.
    program = torch.export.export(made.module, made.inputs, dynamic_shapes=made.dynamic)
    return program, pytree.tree_leaves(made.inputs)


@torch.no_grad()
def _detector(name: str) -> tuple[ExportedProgram, list[Any]]:
    import detectors

    torch.manual_seed(0)
    model = detectors.MODELS[name]().eval()
    detectors.calibrate(model)
    image = torch.randn(1, 3, 256, 256)
    return torch.export.export(model, (image,), strict=False), [image]


def flat_inputs(program: ExportedProgram) -> list[Any]:
    """Return the inputs with which a program was exported."""
    return pytree.tree_leaves(program.example_inputs)


def stock(program: ExportedProgram, flow: str) -> bytes:
    """Lower a copy of a program by ExecuTorch's flow, and return the `.pte`.

    Args:
        flow: `xnnpack`, `dynamic` (XNNPACK, with its partitioner of dynamic quantization),
            `portable` (no delegate), `cortex-m`, or `own`, which is `stepwell.lower`.
    """
    from executorch.exir import EdgeCompileConfig, to_edge, to_edge_transform_and_lower

    own = copy.deepcopy(program)
    if flow == "own":
        import stepwell

        return stepwell.lower(own, "xnnpack").to_pte()
    if flow == "cortex-m":
        from executorch.backends.cortex_m.edge_compile_config import cortex_m_edge_compile_config
        from executorch.backends.cortex_m.passes.cortex_m_pass_manager import CortexMPassManager
        from executorch.backends.cortex_m.target_config import CortexMTargetConfig

        edge: Any = to_edge(own, compile_config=cortex_m_edge_compile_config())
        target = CortexMTargetConfig.from_target_string("cortex-m55")
        manager = CortexMPassManager(edge.exported_program(), target_config=target)
        edge._edge_programs["forward"] = manager.transform()
        return bytes(edge.to_executorch().buffer)
    config = EdgeCompileConfig(_check_ir_validity=False, _skip_dim_order=False)
    edge = to_edge_transform_and_lower(own, partitioner=partitioners(flow), compile_config=config)
    return bytes(edge.to_executorch().buffer)


def kept(folder: Path | None, name: str, make: Callable[[], bytes]) -> bytes:
    """Return a file of a folder, made the first time; without a folder, make it."""
    if folder is None:
        return make()
    file = folder / f"{re.sub('[^a-zA-Z0-9]+', '-', name)}.pte"
    if not file.exists():
        folder.mkdir(parents=True, exist_ok=True)
        file.write_bytes(make())
    return file.read_bytes()


def partitioners(flow: str) -> list[Any]:
    """Return ExecuTorch's partitioners of a flow."""
    from executorch.backends.xnnpack.partition import xnnpack_partitioner as of

    plain = [of.XnnpackPartitioner()]
    return {
        "portable": [],
        "xnnpack": plain,
        "dynamic": [of.XnnpackDynamicallyQuantizedPartitioner(), *plain],
    }[flow]


def prepare() -> None:
    """Use one thread, import what every child uses, and silence other packages."""
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    logging.disable(logging.CRITICAL)
    import executorch.backends.xnnpack.partition.xnnpack_partitioner
    import executorch.exir
    import executorch.kernels.quantized  # noqa: F401

    import stepwell  # noqa: F401


def each_in_a_child(
    work: Callable[[T], R], tasks: Sequence[T], seconds: int = 480, gigabytes: int = 6
) -> Iterator[tuple[T, R | None, str, float]]:
    """Yield tasks as they end, two at a time: the result, or how its process ended; seconds.

    Args:
        work: the function that a forked child calls.
        seconds: the CPU seconds that a child may take.
        gigabytes: the memory that it may allocate.
    """
    fork = multiprocessing.get_context("fork")
    waiting = deque(tasks)
    running: dict[Connection, tuple[T, Any, float]] = {}
    while waiting or running:
        while waiting and len(running) < AT_ONCE:
            here, there = fork.Pipe(duplex=False)
            task = waiting.popleft()
            child = fork.Process(target=_call, args=(work, task, there, seconds, gigabytes))
            child.start()
            there.close()
            running[here] = task, child, time.monotonic()
        for pipe in wait(list(running)):
            assert isinstance(pipe, Connection)
            task, child, began = running.pop(pipe)
            try:
                result, said = pipe.recv()
            except EOFError:
                result, said = None, ""
            child.join()
            if child.exitcode and not said:
                code = child.exitcode
                said = signal.Signals(-code).name if code < 0 else f"exit status {code}"
            yield task, result, said, time.monotonic() - began


def _call(work: Callable[[T], R], task: T, pipe: Any, seconds: int, gigabytes: int) -> None:
    """Send the result of a call, or its error in one line."""
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
    resource.setrlimit(resource.RLIMIT_DATA, (gigabytes * GIGABYTE,) * 2)
    if not os.environ.get("TRACE"):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1), os.dup2(nowhere, 2)
    try:
        answer = work(task), ""
    except BaseException as error:
        traceback.print_exc()
        lines = str(error).strip().splitlines() or [""]
        answer = None, f"{type(error).__name__}: {lines[0]}"
    pipe.send(answer)
