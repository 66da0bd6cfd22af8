"""The runtime comes without the stock flow, which is whole when somebody asks for it."""

from forking import Forks

SCRIPT = """
import sys
import torch, stepwell
exported = torch.export.export(torch.nn.Linear(4, 2), (torch.ones(3, 4),))
stepwell.lower(exported, "xnnpack").run(torch.ones(3, 4))
assert "executorch.exir" not in sys.modules
import executorch.exir
assert executorch.exir.to_edge and executorch.exir._warnings.ExperimentalWarning
from executorch.runtime import Runtime
from stepwell.backends.executorch.running.engine import runtime
assert runtime() is Runtime.get()
"""


def test_a_program_runs_without_the_stock_flow_and_the_flow_is_whole_afterwards(
    forks: Forks,
) -> None:
    done = forks.run(["-c", SCRIPT], with_torch_alone=True)
    assert done.returncode == 0, done.stderr
