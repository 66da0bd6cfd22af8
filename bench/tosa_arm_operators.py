"""Arm's own quantized operator cases (ExecuTorch's test modules, in its wheel) to `tosa-1.0+int`.

    python bench/tosa_arm_operators.py [--cases 2] [--files add,where] [--run] [--out results.json]

Each case that ExecuTorch's tests lower with `TosaPipelineINT` is quantized as they quantize it,
lowered here, and counted: lowered, or refused with the first reason. `--run` also runs the bytes on
the reference model and in the interpreter, which must agree bit for bit and be within one
step of the quantized PyTorch program. Cases of extensions (int16, cf, …) are left out.
"""

from __future__ import annotations

import argparse
import importlib
import json
import logging
import pkgutil
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

# The folder of this script holds a `tosa.py`, which hides the package of that name.
sys.path[:] = [path for path in sys.path if Path(path).resolve() != Path(__file__).parent]

PIPELINE = "TosaPipelineINT"


@dataclass
class Case:
    """One case of a test: the module, its inputs, and how it is quantized."""

    name: str
    module: torch.nn.Module
    inputs: tuple[Any, ...]
    per_channel: bool
    dynamic: Any


class Caught(Exception):
    """Raised in the place of the pipeline's run."""


class Capture:
    """Replaces `TosaPipelineINT` in a test module and records its arguments."""

    held: list[dict[str, Any]] = []

    def __class_getitem__(cls, item: Any) -> type:
        return cls

    def __init__(self, module: Any, test_data: Any, *args: Any, **kwargs: Any) -> None:
        self.held.append({"module": module, "inputs": test_data, **kwargs})
        raise Caught


def cases(files: set[str] | None, most: int) -> Iterator[Case]:
    from executorch.backends.arm.test import ops

    for found in sorted(pkgutil.iter_modules(ops.__path__), key=lambda m: m.name):
        if files is not None and found.name.removeprefix("test_") not in files:
            continue
        try:
            module = importlib.import_module(f"{ops.__name__}.{found.name}")
        except Exception as error:  # A module may need what is not installed.
            print(f"# {found.name}: {type(error).__name__} {error}", file=sys.stderr)
            continue
        if not hasattr(module, PIPELINE):
            continue
        setattr(module, PIPELINE, Capture)
        for name in sorted(vars(module)):
            if name.startswith("test_") and "tosa_INT" in name:
                yield from _of(name, getattr(module, name), most)


def _of(name: str, test: Callable[..., Any], most: int) -> Iterator[Case]:
    marks = [m for m in getattr(test, "pytestmark", []) if m.name == "parametrize"]
    rows: list[tuple[str, tuple[Any, ...]]] = [("", ())]
    if marks:
        values = list(marks[0].args[1])[:most]
        rows = []
        for index, value in enumerate(values):
            held = getattr(value, "values", None)
            identity = getattr(value, "id", None) or str(index)
            if any(m.name in ("xfail", "skip") for m in getattr(value, "marks", ())):
                continue
            rows.append((f"[{identity}]", tuple(held) if held is not None else (value,)))
    for identity, arguments in rows:
        torch.manual_seed(0)
        Capture.held.clear()
        try:
            test(*arguments)
        except Caught:
            pass
        except Exception as error:
            print(f"# {name}{identity}: {type(error).__name__} {error}", file=sys.stderr)
            continue
        for kept in Capture.held:
            if kept.get("tosa_extensions"):
                continue
            yield Case(
                name + identity,
                kept["module"],
                tuple(kept["inputs"]),
                kept.get("per_channel_quantization", True),
                kept.get("dynamic_shapes"),
            )


def quantized(case: Case) -> Any:
    from executorch.backends.arm.quantizer import (
        TOSAQuantizer,
        get_symmetric_quantization_config,
    )
    from executorch.backends.arm.test import common
    from executorch.backends.arm.tosa import TosaSpecification
    from torch.export import export
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    spec = common.get_tosa_compile_spec(TosaSpecification.create_from_string("TOSA-1.0+INT"))
    quantizer = TOSAQuantizer(spec)
    quantizer.set_global(get_symmetric_quantization_config(is_per_channel=case.per_channel))
    model = case.module.eval()
    graph = export(model, case.inputs, strict=False).module(check_guards=False)
    prepared = prepare_pt2e(graph, quantizer)
    prepared(*case.inputs)
    return export(convert_pt2e(prepared), case.inputs, strict=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=2, help="of each test at most")
    parser.add_argument("--files", help="only these, by comma: add,where")
    parser.add_argument("--names", help="only cases whose name contains one of these, by comma")
    parser.add_argument("--run", action="store_true", help="also on the reference model")
    parser.add_argument("--out", type=Path, help="every case's outcome as JSON")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    import stepwell

    files = set(options.files.split(",")) if options.files else None
    counts: Counter[str] = Counter()
    told: dict[str, str] = {}
    names = options.names.split(",") if options.names else [""]
    for case in cases(files, options.cases):
        if not any(name in case.name for name in names):
            continue
        try:
            exported = quantized(case)
        except Exception as error:
            told[case.name] = f"not quantized: {type(error).__name__}"
            counts["not quantized"] += 1
            continue
        try:
            lowered = stepwell.lower(exported, "tosa-1.0+int")
            outcome, note = "lowered", ""
            if options.run:
                outcome, note = ran(lowered, exported, case)
        except stepwell.StepwellError as error:
            outcome, note = "refused", str(error).splitlines()[0]
        except Exception as error:
            outcome, note = "CRASH", f"{type(error).__name__} {error}"
        counts[outcome] += 1
        told[case.name] = f"{outcome} {note}".strip()
        if outcome != "lowered":
            print(f"{case.name}: {told[case.name][:200]}", flush=True)
    print(", ".join(f"{n} {what}" for what, n in counts.most_common()))
    if options.out:
        options.out.write_text(json.dumps(told, indent=1))


def ran(lowered: Any, exported: Any, case: Case) -> tuple[str, str]:
    """Whether the reference model and the interpreter agree; else, how far from PT2E they are."""
    from stepwell.dialects.quant.ops import quantize
    from stepwell.dialects.quant.ports import INPUT, OUTPUT, meanings

    func = lowered.program.method()
    leaves = torch.utils._pytree.tree_leaves(case.inputs)
    tensors = [x for x in leaves if isinstance(x, torch.Tensor)]
    taken = meanings(func, INPUT) or [None] * len(tensors)
    ports = zip(tensors, taken, strict=True)
    given = [x if held is None else quantize(x, held) for x, held in ports]
    ours = lowered.program.run(*given)
    theirs = lowered.run(*given)
    for a, b in zip(ours, theirs, strict=True):
        if not torch.equal(a.to(b.dtype), b):
            return "DIFFERS", "the interpreter and the reference model"
    wanted = exported.module(check_guards=False)(*case.inputs)
    wanted = [x for x in torch.utils._pytree.tree_leaves(wanted) if isinstance(x, torch.Tensor)]
    made = meanings(func, OUTPUT) or [None] * len(wanted)
    steps = 0
    for a, b, held in zip(ours, wanted, made, strict=True):
        if a.numel():
            b = b if held is None else quantize(b, held)
            distance = (a.double() - b.double()).abs().max()
            steps = max(steps, int(distance))
    return ("lowered", "") if steps <= 1 else ("FAR", f"{steps} steps from the PyTorch program")


if __name__ == "__main__":
    main()
