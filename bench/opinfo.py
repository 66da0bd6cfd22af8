"""PyTorch's OpInfo database through the IR and back: how many operators survive, and why not.

For each operator with a CPU float sample that exports: import, verify, text, parse, back to torch,
run both ways, compare bit for bit with the exported program.

    python bench/opinfo.py [--only PATTERN] [--shard K/N] [--table FILE]
"""

import argparse
import re
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree

import stepwell.dialects  # noqa: F401  (makes the dialects known to the parser)
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.program import Program
from stepwell.ir.rewriting.failures import StepFailure
from stepwell.ir.syntax.text import parse_module, structurally_equal, to_text
from stepwell.translate.exporter.to_torch import to_exported_program
from stepwell.translate.importer.from_torch import from_exported_program


class Call(torch.nn.Module):
    """One sample of an operator; tensors are inputs, everything else is fixed."""

    def __init__(self, function: Any, spec: Any, fixed: list[Any]) -> None:
        super().__init__()
        self.function, self.spec, self.fixed = function, spec, fixed

    def forward(self, *tensors: torch.Tensor) -> Any:
        """Call the operator."""
        rest = iter(tensors)
        leaves = [next(rest) if item is Call else item for item in self.fixed]
        args, kwargs = pytree.tree_unflatten(leaves, self.spec)
        result = self.function(*args, **kwargs)
        return tuple(result) if isinstance(result, list) else result


def samples(info: Any, dtype: torch.dtype = torch.float32) -> Any:
    """The first samples of an operator, as modules with dense inputs."""
    torch.manual_seed(0)
    for index, sample in enumerate(info.sample_inputs("cpu", dtype)):
        if index == 3:
            return
        leaves, spec = pytree.tree_flatten(((sample.input, *sample.args), sample.kwargs))
        tensors = [t for t in leaves if isinstance(t, torch.Tensor)]
        if any(t.layout != torch.strided for t in tensors):
            continue
        tensors = [t.detach().contiguous() for t in tensors]
        fixed = [Call if isinstance(item, torch.Tensor) else item for item in leaves]
        if tensors:
            yield Call(info.op, spec, fixed), tuple(tensors)


UNINITIALIZED = ("empty", "empty_like", "empty_permuted", "empty_strided", "new_empty")


def equal(one: Any, other: Any) -> bool:
    """Same type, dtype, shape and bits (NaN equals NaN)."""
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return one.dtype == other.dtype and torch.allclose(
            one, other, rtol=0, atol=0, equal_nan=True
        )
    return one == other


def run(function: Any, inputs: tuple[torch.Tensor, ...]) -> list[Any]:
    """The flat outputs of a call on copies of the inputs, from a fixed seed."""
    torch.manual_seed(0)
    return pytree.tree_leaves(function(*(t.clone() for t in inputs)))


def round_trip(exported: Any, inputs: tuple[torch.Tensor, ...], expected: list[Any]) -> str | None:
    """None if every way gives what the exported program gives, else what differs."""
    program = from_exported_program(exported)
    program.verify()
    if not all(map(equal, run(program.run, inputs), expected)):
        return "the interpreter differs"
    module = parse_module(to_text(program.module, locations=True))
    if not structurally_equal(module, program.module, locations=True):
        return "the text differs"
    back = to_exported_program(Program(module, program.weights)).module()
    return None if all(map(equal, run(back, inputs), expected)) else "the way back differs"


def outcome(info: Any) -> str:
    """`equal`, `no sample exports`, or a reason."""
    if info.name.startswith(UNINITIALIZED):
        return "not compared: the result is uninitialized memory"
    exports = 0
    for module, inputs in samples(info):
        try:
            exported = torch.export.export(module, inputs)
            expected = run(exported.module(), inputs)
        except Exception:  # what torch cannot export, or then run, is not ours to judge
            continue
        exports += 1
        try:
            reason = round_trip(exported, inputs, expected)
        except StepFailure as error:
            reason = f"a step failed: {error.problems[0].fact}"[:110]
        except StepwellError as error:
            problem = error.problems[0]
            reason = "refused: " + re.sub(r"\s+", " ", problem.fact)[:110]
        except Exception as error:  # a fault of ours: it is counted and shown
            reason = f"raised {type(error).__name__}: " + str(error).split("\n")[0][:90]
        if reason is not None:
            return reason
    return "equal" if exports else "no sample exports"


def main() -> None:
    """Run the sweep and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="operators whose name matches")
    parser.add_argument("--shard", default="0/1", help="K/N: every N-th operator from K on")
    parser.add_argument("--table", help="also write the table to this file")
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    shard, shards = map(int, chosen.shard.split("/"))
    infos = [i for i in op_db if i.supports_dtype(torch.float32, "cpu")]
    infos = [i for i in infos if re.search(chosen.only, i.name)][shard::shards]
    start = time.perf_counter()
    counts: Counter[str] = Counter()
    failures: list[tuple[str, str]] = []
    with torch.no_grad():
        for info in infos:
            name = info.name + (f".{info.variant_test_name}" if info.variant_test_name else "")
            found = outcome(info)
            counts["not equal" if found not in ("equal", "no sample exports") else found] += 1
            if found not in ("equal", "no sample exports"):
                failures.append((name, found))
                print(f"{name}: {found}", flush=True)
    seconds = time.perf_counter() - start
    lines = [
        "# PyTorch's OpInfo operators through the IR and back",
        "",
        "`python bench/opinfo.py --table docs/opinfo.md` writes this page. Up to three samples of each float",  # noqa: E501
        "operator are exported, imported, verified, printed, parsed, exported to PyTorch and run on the CPU.",  # noqa: E501
        "The results are compared with eager PyTorch's bit for bit.",
        "",
        "| outcome | operators |",
        "|---|---|",
        *(f"| {outcome} | {count} |" for outcome, count in sorted(counts.items())),
        "",
        "| operator | why not |",
        "|---|---|",
        *(f"| {name} | {reason.replace('|', '/')} |" for name, reason in failures),
    ]
    print("\n".join(lines), f"\n{len(infos)} operators in {seconds:.0f} s")
    if chosen.table:
        Path(chosen.table).write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
