"""Which forms of operators the runtime's kernels refuse, and whether `lower` says so first.

    python tools/kernel_preconditions.py                    # the table, and what is emitted wrongly
    python tools/kernel_preconditions.py --table docs/xnnpack.md

PyTorch's own operator samples are called, and every ATen operator that is dispatched is a form:
its ranks, element types, sizes and arguments. Each form that the emitter takes becomes a `.pte` of
one kernel call, which runs on the runtime in a process of its own; a form that is emitted and that
the runtime refuses, or dies over, ends this program with status 1.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import importlib
import itertools
import sys
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import SampleInput
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench._report import between_markers
from kernel_trials import in_forks, program_of

import stepwell
from stepwell.backends.executorch.container import KernelCall
from stepwell.backends.executorch.kernels.kernel_calls import kernel_of
from stepwell.backends.executorch.kernels.missing_kernels import emission_problems
from stepwell.backends.executorch.running.engine import runtime
from stepwell.backends.executorch.writing.emit import emit
from stepwell.backends.executorch.writing.serialize import to_bytes
from stepwell.dialects.aten.registry import of_overload
from stepwell.ir.diagnostics import StepwellError, UnsupportedError

SAMPLES = {torch.float32: 24, torch.int64: 24, torch.bool: 24} | dict.fromkeys(
    (torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.uint8, torch.int32), 6
)
"""The number of samples of an operator and an element type."""
MIXED = 4
"""Of so many samples, the first tensor takes each other element type: operands of two types."""
APART = ("linalg", "fft", "svd", "lu", "ormqr", "pca", "cholesky", "signal", "masked", "sparse")
"""Operators that are no kernels, slow to call, and made of others that are called elsewhere."""
NAMESPACES = ("aten", "quantized_decomposed")
RIGHT = ("runs", "a view", "no form", "refused")
MOST = 20_000
"""Elements of a tensor that is tried."""
LAYOUT = ("device", "layout", "pin_memory", "memory_format")
"""Arguments that say nothing in a program whose tensors are all row-major."""
Form = tuple[Any, tuple[Any, ...], dict[str, Any], list[torch.Tensor]]


class Dispatched(TorchDispatchMode):
    """Keeps each new form of an ATen operator that has a kernel."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()
        self.forms: list[Form] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None):
        result = function(*args, **(kwargs or {}))
        self.keep(function, args, kwargs or {}, result)
        return result

    def keep(self, function: Any, args: Any, kwargs: dict[str, Any], result: Any) -> None:
        """A call, unless its form was seen."""
        if (
            function.namespace not in ("aten", "quantized_decomposed")
            or function._schema.is_mutable
        ):
            return
        declared = [str(argument.type) for argument in function._schema.arguments]
        if any(
            isinstance(leaf, torch.Tensor) and "Tensor" not in text
            for leaf, text in zip(args, declared, strict=False)
        ):
            return  # PyTorch takes a tensor of one number for a number, and exports that.
        key = str((function, tree_map(described, (args, kwargs))))
        results = [leaf for leaf in tree_leaves(result) if leaf is not None]
        if key in self.seen or not all(isinstance(leaf, torch.Tensor) for leaf in results):
            return
        self.seen.add(key)
        try:
            has_kernel = kernel_of(of_overload(function)) is not None
        except StepwellError:
            return
        leaves = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        if has_kernel and all(leaf.numel() <= MOST for leaf in (*leaves, *results)):
            kwargs = {n: v for n, v in kwargs.items() if n not in LAYOUT}
            held = {
                id(leaf): leaf.detach().clone(memory_format=torch.contiguous_format)
                for leaf in leaves
            }
            args, kwargs = tree_map(
                lambda leaf: held.get(id(leaf), leaf), (tuple(args), dict(kwargs))
            )
            self.forms.append((function, args, kwargs, [r.detach() for r in results]))


def described(leaf: Any) -> Any:
    """What of an argument makes a form: not the numbers of a tensor, and few of its sizes."""
    if isinstance(leaf, torch.Tensor):
        return leaf.dtype, tuple(min(size, 2) for size in leaf.shape)
    return leaf if isinstance(leaf, bool | int | str | type(None) | torch.dtype) else repr(leaf)


def forms(part: int = 0, parts: int = 1) -> list[Form]:
    """The forms in PyTorch's samples; composite operators are called as they are, too."""
    kept = Dispatched()
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        for op in op_db[part::parts]:
            if op.name.startswith(APART):
                continue
            for dtype, most in SAMPLES.items():
                torch.manual_seed(0)
                try:
                    samples = list(itertools.islice(op.sample_inputs("cpu", dtype), most))
                except Exception:
                    continue
                others = SAMPLES if dtype in (torch.float32, torch.int64) else ()
                for sample in samples + [
                    SampleInput(one.input.to(other), one.args, one.kwargs)
                    for one, other in itertools.product(samples[:MIXED], others)
                    if isinstance(one.input, torch.Tensor) and other is not dtype
                ]:
                    try:
                        with kept:
                            op(sample.input, *sample.args, **sample.kwargs)
                        composite(kept, op, sample)
                    except Exception:
                        continue
        if not part:
            quantized(kept)
    return kept.forms


def quantized(kept: Dispatched) -> None:
    """Call the operators of quantized numbers, of which PyTorch has no samples."""
    importlib.import_module("torch.ao.quantization.fx._decomposed")  # They are registered there.
    ops = torch.ops.quantized_decomposed
    for dtype, real in itertools.product(
        (torch.int8, torch.uint8, torch.int16, torch.int32),
        (torch.float32, torch.float16, torch.bfloat16, torch.float64),
    ):
        ends = torch.iinfo(dtype).min, torch.iinfo(dtype).max
        for shape in ((), (3,), (2, 3), (1, 3, 4), (2, 3, 4, 5), (1, 2, 2, 2, 2), (0, 3)):
            x, q = torch.randn(shape, dtype=real), torch.ones(shape, dtype=dtype)
            scale, zero = torch.tensor([0.5]), torch.tensor([1])
            calls = [
                (ops.quantize_per_tensor, (x, 0.5, 1, *ends, dtype)),
                (ops.quantize_per_tensor.tensor, (x, scale, zero, *ends, dtype)),
                (ops.dequantize_per_tensor, (q, 0.5, 1, *ends, dtype)),
                (ops.dequantize_per_tensor.tensor, (q, scale, zero, *ends, dtype)),
                (ops.choose_qparams.tensor, (x, *ends, 1e-5, dtype)),
                (ops.choose_qparams_symmetric.tensor, (x, *ends, 1e-5, dtype)),
                (ops.choose_qparams_per_token_asymmetric, (x, dtype)),
            ]
            for axis in range(-1, len(shape)):
                count = shape[axis] if shape else 1
                scales, zeros = torch.full((count,), 0.5), torch.zeros(count, dtype=torch.int64)
                calls += [
                    (ops.quantize_per_channel, (x, scales, zeros, axis, *ends, dtype)),
                    (ops.dequantize_per_channel, (q, scales, zeros, axis, *ends, dtype)),
                ]
            if shape:
                scales = torch.full((*shape[:-1], 1), 0.5)
                zeros = torch.zeros((*shape[:-1], 1), dtype=torch.int64)
                calls += [
                    (ops.quantize_per_token, (x, scales, zeros, *ends, dtype)),
                    (ops.dequantize_per_token, (q, scales, zeros, *ends, dtype, real)),
                ]
            rows, places = torch.full((len(q) if shape else 1,), 0.5), torch.tensor([0, 0])
            for name in ("embedding_byte", "embedding_2bit", "embedding_4bit"):
                calls.append((getattr(ops, name, None), (q, rows, None, 0, 3, places)))
            for function, args in calls:
                with contextlib.suppress(Exception), kept:
                    function(*args)


def composite(kept: Dispatched, op: Any, sample: Any) -> None:
    """Call an operator by its own overloads, which PyTorch decomposes otherwise."""
    packet = getattr(torch.ops.aten, op.aten_name or op.name.rpartition(".")[2], None)
    for name in packet.overloads() if packet is not None else ():
        overload = getattr(packet, name)
        try:
            result = overload(sample.input, *sample.args, **sample.kwargs)
        except Exception:
            continue
        kept.keep(overload, (sample.input, *sample.args), sample.kwargs, result)


def outcome(form: Form) -> str:
    """What comes of a form: "runs", "a view", "no form", "refused", "fails", …."""
    try:
        program = program_of(*form)
        if emission_problems(program, ()):
            return "refused"
        container = emit(program)
    except StepwellError:
        return "no form"  # A number where the IR wants a value, which import makes one.
    if not any(isinstance(i, KernelCall) for m in container.methods for i in m.instructions):
        return "a view"
    leaves = {id(t): t for t in tree_leaves(form[1:3]) if isinstance(t, torch.Tensor)}
    try:
        loaded = runtime().load_program(to_bytes(container))  # Its method reads bytes it holds.
        found = loaded.load_method("forward").execute(list(leaves.values()))
    except RuntimeError:
        return "fails"
    shapes = [(t.shape, t.dtype) for t in found]
    return "runs" if shapes == [(t.shape, t.dtype) for t in form[3]] else "other shapes"


def outcomes(held: Sequence[Form]) -> Iterator[tuple[Form, str]]:
    """Of each form; a process of its own goes on until one ends it."""
    runtime()
    importlib.import_module("executorch.kernels.quantized")

    def told(form: Form) -> str:
        try:
            return outcome(form)
        except Exception as error:  # a fault of this tool
            return f"raises {type(error).__name__}: {error}"

    for form, found in in_forks(held, told):
        yield form, found or "ends the process"


class Of(torch.nn.Module):
    """An operator as a model of its first tensor."""

    def __init__(self, op: Any, sample: SampleInput) -> None:
        super().__init__()
        self.op, self.sample = op, sample

    def forward(self, x: torch.Tensor) -> Any:
        return self.op(x, *self.sample.args, **self.sample.kwargs)


def channels_last() -> collections.Counter[str]:
    """Lower samples of four axes whose first tensor is channels-last, and compare with eager."""
    counts: collections.Counter[str] = collections.Counter()
    for op in op_db:
        if op.name.startswith(APART) or "dropout" in op.name:
            continue
        taken: list[SampleInput] = []
        with contextlib.suppress(Exception):
            taken = list(itertools.islice(op.sample_inputs("cpu", torch.float32), 40))
        firsts = [s for s in taken if isinstance(s.input, torch.Tensor) and s.input.dim() == 4]
        for sample in [s for s in firsts if 0 < s.input.numel() <= MOST][:2]:
            x, model = sample.input.detach().to(memory_format=torch.channels_last), Of(op, sample)
            try:
                exported, wanted = torch.export.export(model, (x,)), tree_leaves(model(x))
            except Exception:
                continue
            try:
                found = stepwell.lower(exported, "xnnpack").run(x)
                torch.testing.assert_close(
                    list(found), wanted, equal_nan=True, rtol=1e-4, atol=1e-4, check_stride=False
                )
                counts["as eager"] += 1
            except UnsupportedError:
                counts["refused by lower"] += 1
            except (StepwellError, AssertionError) as error:
                counts["wrong"] += 1
                print(f"{op.name}, {tuple(x.shape)}: {error}", file=sys.stderr)
    return counts


def main() -> int:
    """Try all; print what is emitted and refused, and the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--table", type=Path, help="a document to write the table into")
    parser.add_argument("--only", default="", help="a part of an operator's name")
    parser.add_argument("--slice", type=int, nargs=2, default=(0, 1), help="which, of how many")
    parser.add_argument("--channels-last", action="store_true", help="samples that lie so instead")
    asked = parser.parse_args()
    if asked.channels_last:
        found = channels_last()
        print(dict(found))
        return int(found["wrong"] > 0)
    counts: collections.Counter[str] = collections.Counter()
    operators: set[str] = set()
    held = [form for form in forms(*asked.slice) if asked.only in str(form[0])]
    for form, came in outcomes(held):
        counts[came] += 1
        operators.add(str(form[0]))
        if came not in RIGHT:
            shown = tree_map(described, (form[1], form[2]))
            print(f"{form[0]}{shown}: {came}", file=sys.stderr)
    wrong = counts.total() - sum(counts[kind] for kind in RIGHT)
    lines = [
        "| operators | forms | run | need no kernel | refused by lower | refused by the runtime |",
        "|---|---|---|---|---|---|",
        f"| {len(operators)} | {counts.total() - counts['no form']} | {counts['runs']} "
        f"| {counts['a view']} | {counts['refused']} | {wrong} |",
    ]
    print("\n".join(lines))
    if asked.table:
        between_markers(asked.table, "kernel preconditions", lines)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
