"""XNNPACK's workspace, as we compute it from a delegate, against what the runtime allocates."""

import json
import os
import platform

import pytest
import torch
from eager import lower
from forking import Forks

from stepwell.backends.executorch.running import arm64
from stepwell.dialects.xnnpack import DelegateOp
from stepwell.inspection.viewer.memory import MemoryPlan
from stepwell.inspection.viewer.workspace import workspace_plan, workspace_plans

_PAGE = 4096
_MEASURE = """
import ctypes, gc, json, sys
import torch
from stepwell.backends.executorch.running.runner import PteSession

class Info(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in (
        "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks",
        "fordblks", "keepcost")]

libc = ctypes.CDLL("libc.so.6")
libc.mallinfo2.restype = Info
libc.mallopt(-3, 65536)  # M_MMAP_THRESHOLD: what is larger is counted by itself.
found = []
for path in sys.argv[1:]:
    session = PteSession.load(open(path, "rb").read())
    before = libc.mallinfo2().hblkhd
    output = session.run(torch.randn(1, 256, 512))
    del output
    gc.collect()
    found.append(libc.mallinfo2().hblkhd - before)
    del session
    gc.collect()
print(json.dumps(found))
"""


def shared(x: torch.Tensor) -> torch.Tensor:
    """Values that write over each other, and one that outlives them."""
    a = torch.tanh(x) * torch.exp(x)
    padded = torch.nn.functional.pad(a, (0, 64))
    turned = torch.softmax(padded.transpose(1, 2).contiguous(), -1)
    return torch.sigmoid(turned.transpose(1, 2) * padded)[:, :, :32]


def below(x: torch.Tensor) -> torch.Tensor:
    """A value that fits under one that lives at the same time."""
    pad = torch.nn.functional.pad
    return pad(pad(x, (0, 128)) * pad(x, (128, 0)), (0, 300))[:, :, 5:25] + 1


INPUT = torch.randn(1, 256, 512)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc counts what it allocates")
def test_the_workspace_is_as_large_as_what_the_runtime_allocates(
    tmp_path: object, forks: Forks
) -> None:
    paths: list[str] = []
    plans: list[MemoryPlan] = []
    for model in (shared, below):
        lowered = lower(model, INPUT)
        (plan,) = workspace_plans(lowered.program)
        plans.append(plan)
        paths.append(f"{tmp_path}/{model.__name__}.pte")
        with open(paths[-1], "wb") as file:
            file.write(lowered.to_pte())
    here = {name: value for name, value in os.environ.items() if name != arm64.VARIABLE}
    ran = forks.run(["-c", _MEASURE, *paths], env=here)
    assert ran.returncode == 0, ran.stderr
    for plan, allocated in zip(plans, json.loads(ran.stdout.splitlines()[-1]), strict=True):
        assert plan.size <= allocated <= plan.size + 2 * _PAGE, plan.method


def test_values_that_live_at_once_share_no_bytes_and_dynamic_sizes_are_left_out() -> None:
    lowered = lower(shared, INPUT)
    (plan,) = workspace_plans(lowered.program)
    for one in plan.held:
        assert one.offset + one.bytes <= plan.size
        for other in plan.held:
            together = one.first <= other.last and other.first <= one.last
            apart = one.offset + one.bytes <= other.offset
            apart |= other.offset + other.bytes <= one.offset
            assert one is other or not together or apart
    rows = torch.export.Dim("rows", min=2, max=8)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.GELU())
    ops = lower(model, torch.randn(3, 4), dynamic={0: rows}).program.method().body.block.ops
    delegates = [op for op in ops if isinstance(op, DelegateOp)]
    assert delegates and all(workspace_plan(op, "forward") is None for op in delegates)
