"""Cortex-M: the stock flow and this one on the same PT2E programs.

    python bench/cortex_m.py [model ...] [--cpu cortex-m55]     the models
    python bench/cortex_m.py --tolerance [model ...]            distance from the PT2E graph
    python bench/cortex_m.py --memory [model ...]               arenas, as they are and row by row
    python bench/cortex_m.py --standalone [model ...]           C without a runtime, cross-compiled
    python bench/cortex_m.py --recurrent [model ...]            recurrences in int8, and as floats

For each model: CPU seconds of this process from the PT2E ExportedProgram to `.pte` bytes (the first
run in a process with both flows imported, then the best), bytes, constants that nothing names,
planned activation memory, int32 bytes of linear layers' biases and kernel sums, copies of layout,
and ops outside the `cortex_m` library. The programs are quantized by ExecuTorch's own quantizer on
channels-last inputs, as its flow needs; a last line gives this project's quantizer on the model as
it is.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import logging
import math
import sys
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parent.parent / "examples" / "models"))

MODELS = {
    "ds_cnn": ("tiny", "ds_cnn"),
    "mlp_autoencoder": ("tiny", "mlp_autoencoder"),
    "resnet8": ("resnet", "resnet8"),
    "transformer_encoder": ("transformer", "transformer_encoder_2layers"),
    "mobilenet_v2_035": ("mobilenet", "mobilenet_v2_035"),
}
MEMORY = {
    **{name: where for name, where in MODELS.items() if name != "transformer_encoder"},
    "mobilenet_v1_025": ("microcontrollers", "mobilenet_v1_025"),
    "mobilenet_v2_030": ("microcontrollers", "mobilenet_v2_030"),
    "mcunet_like": ("microcontrollers", "mcunet_like"),
    "crnn_gru": ("microcontrollers", "crnn_gru"),
    "crnn_lstm": ("microcontrollers", "crnn_lstm"),
    "tcn": ("microcontrollers", "tcn"),
    "unet": ("microcontrollers", "unet"),
}
TINY = ("ds_cnn", "mobilenet_v1_025", "resnet8", "mlp_autoencoder", "mobilenet_v2_030")


def quantized(model: Any, inputs: Any, quantizer: Any) -> Any:
    from torch.export import export
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    graph = export(model, inputs).module(check_guards=False)
    prepared = prepare_pt2e(graph, quantizer)
    for seed in range(2):
        torch.manual_seed(seed)
        prepared(*(torch.randn_like(x) if x.is_floating_point() else x for x in inputs))
    return export(convert_pt2e(prepared), inputs)


def stock_edge(exported: Any, cpu: str) -> Any:
    from executorch.backends.cortex_m.edge_compile_config import cortex_m_edge_compile_config
    from executorch.backends.cortex_m.passes.cortex_m_pass_manager import CortexMPassManager
    from executorch.backends.cortex_m.target_config import CortexMTargetConfig
    from executorch.exir import to_edge

    edge = to_edge(exported, compile_config=cortex_m_edge_compile_config())
    config = CortexMTargetConfig.from_target_string(cpu)
    manager = CortexMPassManager(edge.exported_program(), target_config=config)
    edge._edge_programs["forward"] = manager.transform()
    return edge


def stock(exported: Any, cpu: str) -> bytes:
    from executorch.exir import ExecutorchBackendConfig

    config = ExecutorchBackendConfig(extract_delegate_segments=False)
    return stock_edge(exported, cpu).to_executorch(config).buffer


def ours(exported: Any, cpu: str) -> bytes:
    import stepwell

    return stepwell.lower(exported, cpu).to_pte()


def timed(flow: Any, exported: Any, cpu: str, repeat: int) -> tuple[bytes, float, float]:
    """The bytes, CPU seconds of the first run, CPU seconds of the best."""
    seconds: list[float] = []
    data = b""
    for _ in range(repeat):
        started = time.process_time()
        data = flow(exported, cpu)
        seconds.append(time.process_time() - started)
    return data, seconds[0], min(seconds)


def examine(data: bytes) -> dict[str, Any]:
    from stepwell.backends.executorch.container import Constant, KernelCall, TensorValue
    from stepwell.backends.executorch.reading.read import read_container

    container = read_container(data)
    method = container.methods[0]
    used: set[int] = set()
    touched = {i for step in method.instructions for i in getattr(step, "args", ())}
    for index, value in enumerate(method.values):
        is_constant = isinstance(value, TensorValue) and isinstance(value.storage, Constant)
        if is_constant and (index in touched or index in method.outputs):
            used.add(value.storage.index)
    dead = sum(len(c) for i, c in enumerate(container.constants) if i and i not in used)
    calls = Counter(step.kernel for step in method.instructions if isinstance(step, KernelCall))
    views = ("executorch_prim::et_view.default",)
    outside = {k: n for k, n in calls.items() if not k.startswith("cortex_m::") and k not in views}
    folded = 0
    for step in method.instructions:
        if isinstance(step, KernelCall) and step.kernel == "cortex_m::quantized_linear.out":
            for place in (2, 3):
                value = method.values[step.args[place]]
                if isinstance(value, TensorValue):
                    folded += 4 * math.prod(value.sizes)
    return {
        "bytes": len(data),
        "dead": dead,
        "arena": sum(method.arena_sizes[1:]),
        "calls": sum(calls.values()),
        "folded": folded,
        "copies": sum(calls[name] for name in COPIES),
        "outside": outside,
    }


COPIES = (
    "cortex_m::transpose.out",
    "cortex_m::pad.out",
    "aten::permute_copy.out",
    "dim_order_ops::_to_dim_order_copy.out",
)


def report(label: str, data: bytes, first: float, best: float) -> None:
    facts = examine(data)
    outside = ", ".join(f"{name}×{count}" for name, count in facts["outside"].items()) or "none"
    print(
        f"  {label:18} first {first:7.3f} s, best {best:7.3f} s\n"
        f"  {'':18} {facts['bytes']:9} B, dead {facts['dead']} B, arena {facts['arena']} B, "
        f"linear int32 {facts['folded']} B\n"
        f"  {'':18} {facts['calls']} calls, {facts['copies']} of them copies; outside: {outside}",
        flush=True,
    )


def prepared(name: str) -> tuple[Any, tuple[torch.Tensor, ...]]:
    """The model on channels-last images, as the stock flow needs them."""
    model, inputs = load(name)
    if any(x.dim() == 4 for x in inputs):
        model = model.to(memory_format=torch.channels_last)
    kept = (x.to(memory_format=torch.channels_last) if x.dim() == 4 else x for x in inputs)
    return model, tuple(kept)


def memory(names: list[str], cpu: str) -> None:
    """Planned bytes and kernel calls: the stock flow, and this one by option."""
    from executorch.backends.cortex_m.quantizer.quantizer import CortexMQuantizer as Stock

    variants: tuple[dict[str, Any], ...] = (
        {},
        {"io": "int8"},
        {"io": "int8", "optimize": "memory"},
    )
    for name in names:
        exported = quantized(*prepared(name), Stock())
        row = [name]
        try:
            facts = examine(stock(exported, cpu))
            row.append(f"stock {facts['arena']} B {facts['calls']} calls")
        except Exception as error:  # The stock flow raises bare exceptions; the bench says so.
            row.append(f"stock crashes: {str(error).splitlines()[0][:60]}")
        row += [planned(exported, cpu, options) for options in variants]
        print("\n  ".join(row), flush=True)


def layouts(names: list[str], cpu: str) -> None:
    """Arenas of models exported as they are written (NCHW) and on channels-last images (NHWC).

    Both by this project's quantizer: ExecuTorch's leaves convolutions of NCHW images floats.
    """
    from stepwell.translate.pt2e.cortex_m_quantizer import CortexMQuantizer

    variants: tuple[dict[str, Any], ...] = (
        {"io": "int8"},
        {"io": "int8", "optimize": "memory"},
        {"io": "int8", "io_layout": "channels last"},
        {"io": "int8", "io_layout": "channels last", "optimize": "memory"},
    )
    for name in names:
        for order, given in (("NCHW", load(name)), ("NHWC", prepared(name))):
            exported = quantized(*given, CortexMQuantizer())
            for options in variants[: 4 if order == "NCHW" else 2]:
                print(f"{name} {order} {planned(exported, cpu, options)}", flush=True)


def planned(exported: Any, cpu: str, options: dict[str, Any]) -> str:
    """Bytes and calls of a lowering, beside what no order of its operators gets below."""
    import stepwell
    from stepwell.translate.rewrites.cmsis.layout.order_operators import lower_bound

    started = time.process_time()
    lowered = stepwell.lower(exported, cpu, **options)
    data = lowered.to_pte()
    seconds = time.process_time() - started
    facts = examine(data)
    said = " ".join(f"{k}={v}" for k, v in options.items()) or "as it is"
    least = lower_bound(lowered.program.method())
    bound = "" if least is None else f", bound {least} B ({facts['arena'] / least:.3f})"
    taken = f"{facts['arena']} B {facts['calls']} calls{bound} {len(data)} B .pte"
    return f"{said}: {taken} {seconds:.1f} s"


def recurrent(names: list[str], cpu: str, count: int = 20) -> None:
    """Steps of recurrent layers in int8 and as floats: sizes, calls, decibels over the error."""
    import stepwell
    from stepwell.translate.pt2e.cortex_m_quantizer import CortexMQuantizer

    for name in names:
        model, inputs = load(name)
        drawn = [drawn_like(inputs, 100 + seed) for seed in range(count)]
        with torch.no_grad():
            wanted = torch.cat([model(*given) for given in drawn])
        for recurrences in (False, True):
            exported = quantized(model, inputs, CortexMQuantizer(recurrences=recurrences))
            lowered = stepwell.lower(exported, cpu)
            data = lowered.to_pte()
            found = torch.cat([lowered.run(*given)[0] for given in drawn])
            share = float(wanted.square().sum() / (wanted - found).square().sum())
            facts, said = examine(data), "int8" if recurrences else "float"
            outside = facts["outside"] or "none"
            print(
                f"{name:10} {said:5} steps: {facts['arena']} B, {facts['calls']} calls, "
                f"{len(data)} B .pte, {10 * math.log10(share):.1f} dB; outside: {outside}",
                flush=True,
            )


def standalone(names: list[str], cpu: str) -> None:
    """Bytes of code, constants and RAM of the C that needs no runtime (`arm-none-eabi-gcc -O2`)."""
    import tempfile

    import stepwell
    from stepwell.translate.pt2e.cortex_m_quantizer import CortexMQuantizer

    path = Path(__file__).parent.parent / "tests" / "cmsis" / "standalone_builds.py"
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    builds = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(builds)
    for name in names:
        exported = quantized(*prepared(name), CortexMQuantizer())
        for optimize in ("speed", "memory"):
            sources = stepwell.lower(exported, cpu, io="int8", optimize=optimize).to_c(runtime=None)
            with tempfile.TemporaryDirectory() as folder:
                sizes = builds.sizes_on(cpu, sources, Path(folder))
            said = ", ".join(f"{what} {size}" for what, size in sizes.items())
            print(f"{name:20} {cpu} {optimize:7} {said}; {sources.calls} calls", flush=True)


def load(name: str) -> tuple[Any, tuple[Any, ...]]:
    module, function = {**MODELS, **MEMORY}[name]
    model, inputs = getattr(importlib.import_module(module), function)()
    return model.eval(), inputs


def models(names: list[str], cpu: str, repeat: int) -> None:
    from executorch.backends.cortex_m.quantizer.quantizer import CortexMQuantizer as Stock

    from stepwell.translate.pt2e.cortex_m_quantizer import CortexMQuantizer

    ours(quantized(torch.nn.Linear(4, 4), (torch.ones(1, 4),), CortexMQuantizer()), cpu)  # Imports.
    for name in names:
        model, inputs = load(name)
        print(name)
        last = tuple(x.to(memory_format=torch.channels_last) if x.dim() == 4 else x for x in inputs)
        is_image = any(x.dim() == 4 for x in inputs)
        kept = model.to(memory_format=torch.channels_last) if is_image else model
        exported = quantized(kept, last, Stock())
        data, first, best = timed(ours, exported, cpu, repeat)
        report("stepwell", data, first, best)
        try:
            data, *theirs = timed(stock, exported, cpu, 2)
            report("stock flow", data, *theirs)
            print(f"  {'':18} {theirs[0] / first:.0f}× at first, {theirs[1] / best:.0f}× at best")
        except Exception as error:  # The stock flow raises bare exceptions; the bench says so.
            print(f"  {'stock flow':18} crashes: {str(error).splitlines()[0]}")
        whole = model.to(memory_format=torch.contiguous_format)
        exported = quantized(whole, inputs, CortexMQuantizer())
        report("stepwell quantizer", *timed(ours, exported, cpu, 1))


def tolerance(names: list[str], cpu: str, count: int = 20) -> None:
    """How far outputs are from the PT2E graph's, in units of the output's quantization, and how
    many decibels the float model's outputs stand above their difference from it.
    """
    from executorch.backends.cortex_m.quantizer.quantizer import CortexMQuantizer as Stock

    import stepwell
    from stepwell.translate.pt2e.cortex_m_quantizer import CortexMQuantizer

    for name in names:
        model, inputs = load(name)
        drawn = [drawn_like(inputs, 100 + seed) for seed in range(count)]
        with torch.no_grad():
            floats = [model(*given) for given in drawn]
        exported = quantized(model, inputs, CortexMQuantizer())
        graph = exported.module(check_guards=False)
        program = stepwell.lower(exported, cpu).program
        last = [o for o in program.module.walk() if o.name == "cmsis.dequantize_per_tensor"][-1]
        pairs = [(program.run(*given)[0], graph(*given)) for given in drawn]
        apart = torch.cat([(a - b).abs().flatten() for a, b in pairs]) / last.real("scale")
        apart = apart.round()
        agree = sum(int(a.flatten().argmax() == b.flatten().argmax()) for a, b in pairs)
        shares = ", ".join(f"{n}: {float((apart <= n).float().mean()):.1%}" for n in (0, 1, 2, 4))
        said = f"{decibels(floats, [a for a, _ in pairs]):.1f} dB"
        if all(x.dim() != 4 for x in inputs):  # It leaves NCHW images as floats.
            theirs = stepwell.lower(quantized(model, inputs, Stock()), cpu).program
            outputs = [theirs.run(*given)[0] for given in drawn]
            said += f" (stock quantizer {decibels(floats, outputs):.1f} dB)"
        print(
            f"  {name:22} units apart, at most {shares}; most {int(apart.max())}; "
            f"same largest output {agree} of {count}; {said}",
            flush=True,
        )


def drawn_like(inputs: tuple[torch.Tensor, ...], seed: int) -> tuple[torch.Tensor, ...]:
    torch.manual_seed(seed)
    return tuple(torch.randn_like(x) for x in inputs)


def decibels(floats: list[torch.Tensor], outputs: list[torch.Tensor]) -> float:
    signal = sum(float(f.pow(2).sum()) for f in floats)
    noise = sum(float((y - f).pow(2).sum()) for f, y in zip(floats, outputs, strict=True))
    return 10 * math.log10(signal / noise)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*")
    parser.add_argument("--cpu", default="cortex-m55")
    parser.add_argument("--repeat", type=int, default=5, help="runs of this project's flow")
    parser.add_argument("--tolerance", action="store_true", help="distances instead")
    parser.add_argument("--memory", action="store_true", help="arenas instead")
    parser.add_argument("--nchw", action="store_true", help="--memory of models as written, too")
    parser.add_argument("--standalone", action="store_true", help="C without a runtime instead")
    parser.add_argument("--recurrent", action="store_true", help="recurrent layers instead")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    if options.tolerance:
        tolerance(options.models or list(MODELS), options.cpu)
    elif options.memory:
        (layouts if options.nchw else memory)(options.models or list(MEMORY), options.cpu)
    elif options.recurrent:
        recurrent(options.models or ["crnn_lstm", "crnn_gru"], options.cpu)
    elif options.standalone:
        standalone(options.models or list(TINY), options.cpu)
    else:
        models(options.models or list(MODELS), options.cpu, options.repeat)


if __name__ == "__main__":
    main()
