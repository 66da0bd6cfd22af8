"""Torch's globals: swapped in one guarded place, as before after lowerings in sixteen threads."""

import ast
import random
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import stepwell

from .test_threads import in_threads, switches

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("ir", "dialects", "translate", "backends", "src/stepwell")
SWAPS = frozenset(
    "run_decompositions prepare_pt2e convert_pt2e to_edge to_edge_transform_and_lower "
    "to_executorch make_fx aot_export_module export_for_training set_flags".split()
)
"""Functions of torch and ExecuTorch that swap globals of torch while they run."""
SWAPS_OF_EXPORT = frozenset({"torch.export.export", "torch.export.load"})
OWN_PROCESS = ("src/stepwell/model_zoo/regression/child.py",)
"""What runs in a process of its own, with another version's sources."""


def dotted(node: ast.AST) -> str:
    """`torch.export.export` of what is called; what is computed ahead of a dot is left out."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def swaps(path: Path) -> list[tuple[int, str, bool]]:
    """Line, name and whether the lock is held, of each call in a file that swaps a global."""
    found: list[tuple[int, str, bool]] = []

    def visit(node: ast.AST, held: bool) -> None:
        if isinstance(node, ast.With):
            held = held or any("torch_alone()" in ast.unparse(i.context_expr) for i in node.items)
            for item in node.items:
                if ast.unparse(item.context_expr) in ("self.mode", "FakeTensorMode()"):
                    found.append((node.lineno, ast.unparse(item.context_expr), held))
        if isinstance(node, ast.Call):
            name = dotted(node.func)
            if name in SWAPS_OF_EXPORT or name.rpartition(".")[2] in SWAPS:
                found.append((node.lineno, name, held))
        for child in ast.iter_child_nodes(node):
            visit(child, held)

    text = path.read_text()
    if any(word in text for word in ("torch.export.", "self.mode", "FakeTensorMode", *SWAPS)):
        visit(ast.parse(text), False)
    return found


def test_what_swaps_a_global_of_torch_is_called_under_the_lock() -> None:
    files = [f for folder in FOLDERS for f in (ROOT / folder).rglob("*.py")]
    calls = [(path.relative_to(ROOT).as_posix(), *call) for path in files for call in swaps(path)]
    assert len(calls) >= 8
    unguarded = [f"{path}:{line} {name}" for path, line, name, held in calls if not held]
    assert not [call for call in unguarded if not call.startswith(OWN_PROCESS)]


def state() -> dict[str, Any]:
    """What torch keeps once for a process, and its functions swap."""
    from torch._decomp import decomposition_table
    from torch._subclasses.fake_impls import op_implementations_dict

    keys = ("CPU", "Meta", "CompositeImplicitAutograd", "Autograd", "AutogradCPU", "Functionalize")
    overloads = {
        f"{packet}.{name}": getattr(getattr(torch.ops.aten, packet), name)
        for packet in list(torch.ops.aten)
        for name in getattr(torch.ops.aten, packet).overloads()
    }
    return {
        **switches(),
        "nnpack": torch._C._get_nnpack_enabled(),
        "cudnn": torch.backends.cudnn.enabled,
        "flash": torch.backends.cuda.flash_sdp_enabled(),
        "deterministic warnings": torch.is_deterministic_algorithms_warn_only_enabled(),
        "autocast": torch.is_autocast_enabled("cpu"),
        "decompositions": {str(op): id(function) for op, function in decomposition_table.items()},
        "fake rules": sorted(map(str, op_implementations_dict)),
        "kernels": {
            key: sorted(torch._C._dispatch_get_registrations_for_dispatch_key(key)) for key in keys
        },
        "python kernels": {
            name: {str(key): id(kernel) for key, kernel in overload.py_kernels.items()}
            for name, overload in overloads.items()
        },
        "modes": len(torch.utils._python_dispatch._get_current_dispatch_mode_stack()),
        "patches": (torch.nn.Module.__call__, torch.nn.Module.__getattr__, torch.Tensor.add_),
    }


class Through(nn.Module):
    """Writes through a view of a buffer or of a value."""

    def __init__(self, kind: int, size: int) -> None:
        super().__init__()
        self.kind = kind
        self.register_buffer("held", torch.zeros(3, size))
        self.layer = nn.Linear(size, size)

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x)
        if self.kind == 0:
            self.held.T[0].fill_(0.25)
        elif self.kind == 1:
            doubled = x * 1
            doubled.chunk(2, -1)[1].mul_(2)
            y = y + doubled
        elif self.kind == 2:
            self.held[1:] += y[:2]
        else:
            y.view(-1)[::2].copy_(x.flatten()[::2])
        return y + self.held


class Plain(nn.Module):
    def __init__(self, kind: int, size: int) -> None:
        super().__init__()
        self.kind, self.layer, self.norm = kind, nn.Linear(size, size), nn.LayerNorm(size)

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x)
        if self.kind == 0:
            return nn.functional.gelu(self.norm(y))
        if self.kind == 1:
            return nn.functional.scaled_dot_product_attention(y[None], y[None], y[None])
        if self.kind == 2:
            return torch.vmap(lambda row: row.softmax(0) * 2)(y)
        with torch.autocast("cpu", enabled=size_is_odd(y), dtype=torch.bfloat16):
            return self.layer(y).float()


def size_is_odd(y: Tensor) -> bool:
    return y.shape[-1] % 2 == 1


def model_of(number: int) -> tuple[nn.Module, Tensor]:
    """A third writes through views; of the rest a part needs torch to be made functional."""
    torch.manual_seed(number)
    size = 4 + number % 7
    cls = Through if number % 3 == 0 else Plain
    return cls(number // 3 % 4, size).eval(), torch.randn(3, size)


def lowered_alike(count: int, threads: int) -> None:
    exported = [torch.export.export(*given) for given in map(_with_inputs, range(count))]
    target = ["xnnpack", "tosa-1.0+fp"]
    jobs = [(number, target[number % 2]) for number in range(count)]
    alone = {job: _bytes(exported[job[0]], job[1]) for job in jobs}
    shuffled = list(jobs)
    random.Random(0).shuffle(shuffled)
    given: dict[Any, Any] = {}

    def work(job: tuple[int, str]) -> None:
        given[job] = _bytes(exported[job[0]], job[1])

    before = state()
    failures = in_threads(work, shuffled, threads)
    after = state()
    assert not failures, failures[0]
    assert {key: after[key] == before[key] for key in before} == dict.fromkeys(before, True)
    assert given == alone
    assert sum(isinstance(held, bytes) for held in alone.values()) > count * 3 // 4


def _with_inputs(number: int) -> tuple[nn.Module, tuple[Tensor]]:
    module, x = model_of(number)
    return module, (x,)


def _bytes(exported: Any, target: str) -> bytes | str:
    """What a lowering gives: a refusal, too, is the same in every thread."""
    try:
        return stepwell.lower(exported, target).artifact
    except stepwell.StepwellError as error:
        return str(error)


def test_sixteen_threads_leave_torch_as_it_was_and_give_the_same_bytes() -> None:
    lowered_alike(16, 16)


@pytest.mark.slow
def test_two_hundred_programs_in_sixteen_threads_give_the_bytes_of_one_after_the_other() -> None:
    lowered_alike(200, 16)


if __name__ == "__main__":
    lowered_alike(int(sys.argv[1]), 16)
    print(f"{sys.argv[1]} programs in 16 threads: the same bytes, torch as it was")
