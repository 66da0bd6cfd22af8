"""The same input gives the same bytes, whatever the process and its hash seed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import hashlib, sys, torch, stepwell
torch.manual_seed(0)

class Attention(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = torch.nn.Linear(8, 24)

    def forward(self, x):
        q, k, v = self.qkv(x).reshape(1, -1, 3, 2, 4).permute(2, 0, 3, 1, 4).unbind(0)
        return torch.nn.functional.scaled_dot_product_attention(q, k, v)

model = torch.nn.Sequential(
    torch.nn.Conv2d(2, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.Hardswish(), torch.nn.Flatten(),
    torch.nn.Linear(64, 32), torch.nn.Unflatten(1, (4, 8)), torch.nn.LayerNorm(8), Attention(),
    torch.nn.Softmax(-1),
).eval()
program = stepwell.from_exported_program(torch.export.export(model, (torch.zeros(1, 2, 6, 6),)))
digest = lambda data: hashlib.sha256(data).hexdigest()
for target in ("xnnpack", "tosa-1.0+fp"):
    lowered = stepwell.lower(program, target)
    print(target, digest(str(lowered.program).encode()), digest(lowered.artifact))
    print([(e.rewrite, e.root) for e in lowered.report.events])
program.save(sys.argv[1] + "/m.mlir")
print(digest(open(sys.argv[1] + "/m.mlir", "rb").read()))
print(digest(open(sys.argv[1] + "/m.safetensors", "rb").read()))
"""


def of_this_process(folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """What this process gives, whose hash seed is drawn unless somebody has set it."""
    folder.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["deterministic.py", str(folder)])
        exec(compile(SCRIPT, "deterministic.py", "exec"), {"__name__": "deterministic"})
    return capsys.readouterr().out


def of_a_process(seed: str, folder: Path) -> str:
    """What a process of a hash seed gives, which is fixed when it starts."""
    environment = {**os.environ, "PYTHONHASHSEED": seed, "OMP_NUM_THREADS": "1"}
    folder.mkdir()
    script = folder / "deterministic.py"
    script.write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, str(script), str(folder)],
        capture_output=True, text=True, check=True, env=environment, timeout=300,
    )  # fmt: skip
    return done.stdout


def test_text_artifacts_and_history_are_the_same_for_every_hash_seed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = "12345" if os.environ.get("PYTHONHASHSEED") != "12345" else "0"
    ours = of_this_process(tmp_path / "ours", capsys)
    assert "tosa-1.0+fp" in ours
    assert of_a_process(seed, tmp_path / seed) == ours
