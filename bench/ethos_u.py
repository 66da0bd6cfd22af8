"""Vela's own estimates of what each Ethos-U takes: cycles, SRAM, flash, delegates, CPU ops.

    python bench/ethos_u.py [model ...] [--accelerators ethos-u55-128,ethos-u65-256,ethos-u85-256]
    python bench/ethos_u.py --stock     ExecuTorch's own flow on the same programs beside it
    python bench/ethos_u.py --stock --keep ROWS     … and kept
    python bench/ethos_u.py --keep ROWS --table PAGE
    python bench/ethos_u.py --small     the small nets of `_small_nets.py`

By default, programs are quantized by this project's quantizer and lowered with int8 at the
boundary. With `--stock` they are quantized by ExecuTorch's own quantizer for the accelerator, and
both flows lower the same program with a float boundary. Its quantize and dequantize ops are on the
CPU in both and are not counted. The provenance of the stock flow's nodes is removed, which the flow
does not need: these growing histories, copied in every pass, took most of its time. Nothing is
executed: there is no simulator of the NPU on the package indices.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import io
import logging
import statistics
import sys
import warnings
from collections import Counter
from collections.abc import Generator
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
import torch.fx.traceback

sys.path.insert(0, str(Path(__file__).parent))
import _small_nets as small
from _report import between_markers, keep_rows, kept_rows
from cortex_m import MEMORY, MODELS, load, prepared, quantized

DEFAULT = (
    "ds_cnn", "mobilenet_v1_025", "resnet8", "mlp_autoencoder", "mobilenet_v2_035", "tcn", "unet",
    "transformer_encoder",
)  # fmt: skip
BORDER = ("quantize_per_tensor", "dequantize_per_tensor", "getitem", "alloc", "_clone_dim_order")
"""What stands on the CPU between the program's floats and the NPU's integers, or is no op."""


def stock_quantized(name: str, accelerator: str) -> Any:
    """The model as ExecuTorch's own quantizer for the accelerator annotates it."""
    from executorch.backends.arm.ethosu import EthosUCompileSpec
    from executorch.backends.arm.quantizer.arm_quantizer import (
        EthosUQuantizer,
        get_symmetric_quantization_config,
    )

    quantizer = EthosUQuantizer(EthosUCompileSpec(accelerator))
    quantizer.set_global(get_symmetric_quantization_config())
    return quantized(*given(name), quantizer)


def given(name: str, channels_last: bool = False) -> tuple[Any, Any]:
    """A model by name, and inputs."""
    if name in small.nets():
        return small.net(name)
    return prepared(name) if channels_last else load(name)


def stock(exported: Any, accelerator: str) -> tuple[list[bytes], Counter[str]]:
    """The TOSA of the stock flow's delegates, and what it leaves to the CPU."""
    from executorch.backends.arm.ethosu import EthosUCompileSpec
    from executorch.backends.arm.tosa.compile_spec import TosaCompileSpec
    from executorch.backends.arm.tosa.partitioner import TOSAPartitioner
    from executorch.exir import to_edge_transform_and_lower
    from executorch.exir.lowered_backend_module import get_lowered_submodules

    specification = EthosUCompileSpec(accelerator).tosa_spec
    partitioner = TOSAPartitioner(TosaCompileSpec(specification))
    edge = to_edge_transform_and_lower(copy.deepcopy(exported), partitioner=[partitioner])
    graph = edge.exported_program().graph_module
    names = (
        str(getattr(node.target, "__name__", node.target))
        for node in graph.graph.nodes
        if node.op == "call_function"
    )
    left = Counter(
        name for name in names
        if not any(word in name for word in (*BORDER, "executorch_call_delegate"))
    )  # fmt: skip
    return [module.processed_bytes for _, module, _ in get_lowered_submodules(graph)], left


@contextlib.contextmanager
def without_histories() -> Generator[None]:
    """FX nodes made meanwhile do not copy the histories of those they come from."""
    source = torch.fx.traceback.NodeSource
    made = source.__init__

    def forgetful(self: Any, node: Any, pass_name: str = "", action: Any = None) -> None:
        made(self, None, pass_name, action)

    source.__init__ = forgetful
    try:
        yield
    finally:
        source.__init__ = made


@cache
def lowered_by_stock(name: str, specification: str, accelerator: str) -> tuple[Any, Any]:
    """What `stock` gives; U55 and U65 have one specification, and the stock flow takes minutes."""
    quiet = contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO())
    with quiet[0], quiet[1], without_histories():
        return stock(stock_quantized(name, accelerator), accelerator)


@dataclass
class Compared:
    """Both flows on a program of the stock quantizer's: cycles, delegates, ops on the CPU."""

    ours: tuple[int, int, dict[str, int]]
    stock: tuple[int, int, dict[str, int]] | None = None
    """None where the stock flow fails."""
    failure: str = ""

    @property
    def ratio(self) -> float | None:
        """Our cycles by theirs, where both leave as many ops to the CPU."""
        if self.stock is None or sum(self.ours[2].values()) != sum(self.stock[2].values()):
            return None
        return self.ours[0] / max(self.stock[0], 1)

    def cells(self) -> list[str]:
        """Both and the ratio, as they stand in a table."""
        told = [
            "fails" if one is None else f"{one[0]}, {one[1]}, {sum(one[2].values())}"
            for one in (self.ours, self.stock)
        ]
        return [*told, "" if self.ratio is None else f"{self.ratio:.3f}"]


def compare(name: str, accelerator: str) -> Compared:
    """Both flows on one model and accelerator."""
    from executorch.backends.arm.ethosu import EthosUCompileSpec

    import stepwell
    from stepwell.backends.ethos_u.vela import compile_tosa

    lowered = stepwell.lower(stock_quantized(name, accelerator), accelerator)
    estimates = lowered.estimate()
    left = {
        op: count
        for op, count in lowered.report.outside.items()
        if not any(word in op for word in BORDER)
    }
    compared = Compared((sum(e.cycles for e in estimates), len(estimates), left))
    try:
        specification = str(EthosUCompileSpec(accelerator).tosa_spec)
        first = "ethos-u55-128" if "u55" in specification else accelerator
        delegates, theirs = lowered_by_stock(name, specification, first)
        estimates = [compile_tosa(data, accelerator).estimate for data in delegates]
        compared.stock = sum(e.cycles for e in estimates), len(delegates), dict(theirs)
    except Exception as error:  # The stock flow raises bare exceptions; the bench says so.
        compared.failure = str(error).splitlines()[0][:90]
    return compared


def table(rows: dict[str, Any]) -> list[str]:
    """The rows that were kept, and the geometric mean of their ratios."""
    compared = {key: Compared(**row) for key, row in rows.items()}
    lines = ["| | stepwell | stock | ÷ |", "|---|---|---|---|"]
    lines += [f"| {key} | {' | '.join(one.cells())} |" for key, one in sorted(compared.items())]
    ratios = [one.ratio for one in compared.values() if one.ratio is not None]
    mean = statistics.geometric_mean(ratios or [1.0])
    told = f"geometric mean of {len(ratios)}; the greatest"
    return [*lines, f"| {told} | | | {mean:.3f}; {max(ratios, default=0):.3f} |"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=list(DEFAULT), help=", ".join(MODELS | MEMORY))
    parser.add_argument("--accelerators", default="ethos-u55-128,ethos-u65-256,ethos-u85-256")
    parser.add_argument("--stock", action="store_true", help="ExecuTorch's own flow beside it")
    parser.add_argument("--small", action="store_true", help="the small nets")
    parser.add_argument("--keep", type=Path, help="a file of rows of --stock, which a run adds to")
    parser.add_argument("--table", type=Path, help="write the rows that were kept into a page")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    import stepwell
    from stepwell.translate.pt2e.cortex_m_quantizer import CortexMQuantizer

    rows = kept_rows(options.keep)
    if options.table is not None:
        between_markers(options.table, "ethos-u stock", table(rows))
        return
    for name in small.nets() if options.small else options.models:
        if options.stock:
            for accelerator in options.accelerators.split(","):
                compared = compare(name, accelerator)
                rows[f"{name}, {accelerator}"] = asdict(compared)
                keep_rows(options.keep, rows)
                print(f"{name:20} {accelerator:14} {compared.ratio} {compared}", flush=True)
            continue
        exported = quantized(*given(name, channels_last=True), CortexMQuantizer())
        for accelerator in options.accelerators.split(","):
            try:
                lowered = stepwell.lower(
                    exported, accelerator, io=None if options.small else "int8"
                )
                lowered.to_pte()
                found = lowered.estimate()
            except Exception as error:  # A row of the table.
                told = f"{type(error).__name__}: {str(error).splitlines()[0]}"
                print(f"{name:20} {accelerator:14} ends: {told}", flush=True)
                continue
            beside = dict(lowered.report.outside) or "none"
            print(
                f"{name:20} {accelerator:14} {sum(e.cycles for e in found):9} cycles, "
                f"SRAM {max((e.sram for e in found), default=0):7}, "
                f"off chip {sum(e.flash for e in found):8}, "
                f"{len(found)} delegates, CPU: {beside}",
                flush=True,
            )


if __name__ == "__main__":
    main()
