"""The flows that run a variant: the interpreter, stepwell's targets, and other tools.

A flow is a name with the kind of programs that it accepts. Other tools run in a separate process,
which they may crash.
"""

from __future__ import annotations

import multiprocessing
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import stepwell
from stepwell.dialects.quant.ports import meanings

Run = Callable[[Any, Sequence[Any]], Tensor]
"""Maps a program of torch's operators and inputs to the first result."""
SECONDS = 300


@dataclass(frozen=True)
class Flow:
    """A function that runs a program, the `kind` of programs that it accepts, and its owner."""

    kind: str
    run: Run
    is_ours: bool = True


def _interpreted(program: Any, inputs: Sequence[Any]) -> Tensor:
    return program.run(*inputs)[0]


def _lowered(target: str) -> Run:
    return lambda program, inputs: stepwell.lower(program, target).run(*inputs)[0]


def _integers(program: Any, inputs: Sequence[Any]) -> Tensor:
    """Run on TOSA's integer inputs and outputs, with their scales."""
    lowered = stepwell.lower(program, "tosa-1.0+int")
    func = lowered.program.method()
    stored = [
        x
        if it is None
        else torch.clamp(torch.round(x / it.scale) + it.zero_point, -128, 127).to(torch.int8)
        for x, it in zip(inputs, meanings(func, "input"), strict=True)
    ]
    result, it = lowered.run(*stored)[0], meanings(func, "output")[0]
    return result if it is None else (result.float() - it.zero_point) * it.scale


def _xnnpack(program: Any, inputs: Sequence[Any]) -> Tensor:
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower
    from executorch.runtime import Runtime

    exported = program.to_exported_program()
    edge = to_edge_transform_and_lower(exported, partitioner=[XnnpackPartitioner()])
    loaded = Runtime.get().load_program(edge.to_executorch().buffer)
    return loaded.load_method("forward").execute(list(inputs))[0]


def _cortex_m(program: Any, inputs: Sequence[Any]) -> Tensor:
    from executorch.backends.cortex_m.edge_compile_config import cortex_m_edge_compile_config
    from executorch.backends.cortex_m.passes.cortex_m_pass_manager import CortexMPassManager
    from executorch.backends.cortex_m.target_config import CortexMTargetConfig
    from executorch.exir import to_edge

    config = cortex_m_edge_compile_config()
    edge = to_edge(program.to_exported_program(), compile_config=config)
    target = CortexMTargetConfig.from_target_string("cortex-m55")
    lowered = CortexMPassManager(edge.exported_program(), target_config=target).transform()
    edge._edge_programs["forward"] = lowered
    given = [x.to(memory_format=torch.channels_last) if x.dim() == 4 else x for x in inputs]
    result = lowered.module(check_guards=False)(*given)
    edge.to_executorch()
    return result[0] if isinstance(result, tuple) else result


def _tosa(specification: str) -> Run:
    def run(program: Any, inputs: Sequence[Any]) -> Tensor:
        from executorch.backends.arm.test.runner_utils import TosaReferenceModelDispatch
        from executorch.backends.arm.tosa.compile_spec import TosaCompileSpec
        from executorch.backends.arm.tosa.partitioner import TOSAPartitioner
        from executorch.exir import to_edge_transform_and_lower

        partitioner = TOSAPartitioner(TosaCompileSpec(specification))
        edge = to_edge_transform_and_lower(program.to_exported_program(), partitioner=[partitioner])
        module = edge.exported_program().module(check_guards=False)
        with TosaReferenceModelDispatch():
            result = module(*inputs)
        return result[0] if isinstance(result, tuple) else result

    return run


def _litert(program: Any, inputs: Sequence[Any]) -> Tensor:
    import litert_torch

    class Module(torch.nn.Module):
        def forward(self, *inputs: Tensor) -> Any:
            return module(*inputs)

    module = program.to_exported_program().module(check_guards=False)
    with torch.no_grad():
        converted = litert_torch.convert(Module().eval(), tuple(inputs))
    results = converted(*inputs)
    return torch.from_numpy(results[0] if isinstance(results, (list, tuple)) else results)


def _iree(text: str, form: str, inputs: Sequence[Any]) -> Tensor:
    import iree.compiler.tools as tools
    import iree.runtime as runtime

    options = ["--iree-llvmcpu-target-cpu=host"]
    data = tools.compile_str(
        text, target_backends=["llvm-cpu"], input_type=form, extra_args=options
    )
    config = runtime.Config("local-sync")
    module = runtime.VmModule.copy_buffer(config.vm_instance, data)
    context = runtime.SystemContext(config=config)
    context.add_vm_module(module)
    called = context.modules.module["main" if form == "torch" else "forward"]
    result = called(*(x.contiguous().numpy() for x in inputs))
    first = result[0] if isinstance(result, (list, tuple)) else result
    return torch.from_numpy(first.to_host().copy())


def _iree_by_tosa(program: Any, inputs: Sequence[Any]) -> Tensor:
    return _iree(stepwell.lower(program, "tosa-1.0+fp").to_mlir(), "tosa", inputs)


def _iree_by_torch(program: Any, inputs: Sequence[Any]) -> Tensor:
    from iree.compiler.extras.fx_importer import FxImporter

    exported = program.to_exported_program().run_decompositions()
    importer = FxImporter()
    importer.import_frozen_program(exported, func_name="main")
    return _iree(str(importer.module), "torch", inputs)


def _vela(program: Any, inputs: Sequence[Any]) -> Tensor:
    """Check whether Vela compiles what the reference model runs."""
    import subprocess

    lowered = stepwell.lower(program, "tosa-1.0+int")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.tosa"
        path.write_bytes(lowered.to_tosa())
        command = [str(Path(sys.executable).with_name("vela")), str(path), "--output-dir", folder]
        ended = subprocess.run(
            [*command, "--accelerator-config", "ethos-u85-256"], capture_output=True, check=False
        )
    if ended.returncode:
        raise RuntimeError((ended.stderr or ended.stdout).decode().strip().splitlines()[-1])
    return _integers(program, inputs)


FLOWS = {
    "program": Flow("float32", _interpreted),
    "xnnpack": Flow("float32", _lowered("xnnpack")),
    "tosa-1.0+fp": Flow("float32", _lowered("tosa-1.0+fp")),
    "xnnpack-int8": Flow("int8-xnnpack", _lowered("xnnpack")),
    "cortex-m55": Flow("int8-cortex-m", _lowered("cortex-m55")),
    "tosa-1.0+int": Flow("int8-tosa", _integers),
    "executorch-xnnpack": Flow("float32", _xnnpack, False),
    "executorch-xnnpack-int8": Flow("int8-xnnpack", _xnnpack, False),
    "executorch-cortex-m": Flow("int8-cortex-m", _cortex_m, False),
    "executorch-tosa-fp": Flow("float32", _tosa("TOSA-1.0+FP"), False),
    "executorch-tosa-int": Flow("int8-tosa", _tosa("TOSA-1.0+INT"), False),
    "litert": Flow("float32", _litert, False),
    "iree-tosa": Flow("float32", _iree_by_tosa, False),
    "iree-torch": Flow("float32", _iree_by_torch, False),
    "vela": Flow("int8-tosa", _vela, False),
}
OURS = tuple(name for name, flow in FLOWS.items() if flow.is_ours)


def run(flow: Flow, program: Any, inputs: Sequence[Any]) -> Tensor:
    """Return a flow's result.

    Raises:
        RuntimeError: the process of another tool was ended by a signal or a timeout.
    """
    if flow.is_ours:
        return flow.run(program, inputs)
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe(duplex=False)
    child = context.Process(target=_answer, args=(flow, program, inputs, there))
    child.start()
    there.close()
    try:
        answer = here.recv() if here.poll(SECONDS) else "no answer in time"
    except EOFError:
        child.join()
        answer = f"the process ended with {child.exitcode}"
    child.kill()
    child.join()
    if isinstance(answer, str):
        raise RuntimeError(answer)
    return torch.from_numpy(answer)


def _answer(flow: Flow, program: Any, inputs: Sequence[Any], pipe: Any) -> None:
    try:
        pipe.send(flow.run(program, inputs).detach().contiguous().numpy())
    except BaseException as error:
        text = str(error).strip().splitlines()
        told = [line for line in text if "rror" in line] or text or [""]
        pipe.send(f"{type(error).__name__}: {told[-1] if len(text) > 9 else told[0]}")
