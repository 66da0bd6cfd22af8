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


THREADS = """
import threading
import torch, stepwell
x = torch.ones(3, 4)
model = torch.nn.Linear(4, 2)
exported = torch.export.export(model, (x,))
barrier, right = threading.Barrier(8), []
def work():
    barrier.wait()
    right.append(torch.allclose(stepwell.lower(exported, "xnnpack").run(x)[0], model(x), atol=1e-5))
threads = [threading.Thread(target=work, daemon=True) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join(120)
assert right == [True] * 8, right
"""


def test_eight_threads_of_a_cold_process_lower_load_and_run(forks: Forks) -> None:
    done = forks.run(["-c", THREADS], with_torch_alone=True)
    assert done.returncode == 0, done.stderr
