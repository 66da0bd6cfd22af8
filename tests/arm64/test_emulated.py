"""A `.pte` on an emulated Arm64 core: what the runner of `tools/arm64` hands over and back."""

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
from eager import Stateful, exported, lower
from torch import nn

import stepwell
from stepwell.backends.executorch.reading.read import read_container
from stepwell.backends.executorch.running import arm64
from stepwell.backends.executorch.running.runner import PteSession, run_pte
from stepwell.ir.diagnostics import ArtifactError


def summed(m: Any, x: torch.Tensor) -> torch.Tensor:
    return m.sum.add_(x) * 2.0


def sums() -> Stateful:
    """Keeps a sum of what it was given."""
    return Stateful(summed, sum=torch.zeros(2, 3))


def test_a_network_computes_there_what_eager_does(core: str) -> None:
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Hardswish(), nn.Flatten(), nn.Linear(288, 4))
    x = torch.randn(1, 3, 8, 8)
    made = lower(net, x)
    torch.testing.assert_close(made.run(x, cpu=core)[0], net(x), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(
        stepwell.run_pte(made.to_pte(), [x], cpu=core)[0], net(x), rtol=1e-4, atol=1e-5
    )


def test_state_lives_from_call_to_call(a76: str) -> None:
    x = torch.randn(2, 3)
    session = PteSession.load(lower(sums(), x).to_pte(), cpu=a76)
    for calls in (1, 2, 3):
        torch.testing.assert_close(session.run(x)[0], x * 2 * calls)


def test_methods_share_state(a76: str) -> None:
    x, held = torch.randn(2, 3), sums()
    shows = Stateful(lambda m, x: m.sum + x)
    shows.register_buffer("sum", held.sum)
    methods = {"add": exported(held, x), "show": exported(shows, x)}
    session = PteSession.load(stepwell.lower(methods, "xnnpack").to_pte(), cpu=a76)
    session.run(x, method="add")
    torch.testing.assert_close(session.run(x, method="show")[0], 2 * x)


def test_a_written_input_reaches_the_caller(a76: str) -> None:
    x, y = torch.ones(2, 3), torch.full((2, 3), 2.0)
    adds = lower(lambda x, y: x.add_(y) * 2, x.clone(), y)
    assert torch.equal(adds.run(x, y, cpu=a76)[0], torch.full((2, 3), 6.0))
    assert torch.equal(x, torch.full((2, 3), 3.0))


def test_a_program_that_crashes_takes_no_other_with_it(a76: str) -> None:
    """Every program is a fork of one process, which loaded the runtime."""
    x = torch.randn(2, 3)
    data = lower(sums(), x).to_pte()
    (method,) = read_container(data).methods
    lives, dies = (arm64.EmulatedProgram(data, a76) for _ in range(2))
    os.kill(dies.process, signal.SIGSEGV)
    with pytest.raises(ArtifactError, match="killed by SIGSEGV"):
        dies.execute(method, [x])
    torch.testing.assert_close(lives.execute(method, [x])[0], x * 2)
    torch.testing.assert_close(run_pte(data, [x], cpu=a76)[0], x * 2)


def test_a_layout_and_every_element_type_come_back(a76: str) -> None:
    def parts(x: torch.Tensor, i: torch.Tensor, h: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x + 1, i + 1, i > 0, h * 2

    x = torch.randn(1, 3, 4, 5).to(memory_format=torch.channels_last)
    given = (x, torch.arange(6).reshape(2, 3), torch.randn(7).half())
    found = lower(parts, *given).run(*given, cpu=a76)
    for got, wanted in zip(found, parts(*given), strict=True):
        assert got.dtype == wanted.dtype
        assert got.shape == wanted.shape
        assert torch.equal(got, wanted)
    assert got.is_contiguous()


def test_weights_in_a_file_beside_it_are_read(a76: str, tmp_path: Path) -> None:
    net, x = nn.Linear(8, 4), torch.randn(2, 8)
    pte, ptd = lower(net, x).to_pte_and_ptd()
    (tmp_path / "weights.ptd").write_bytes(ptd)
    for external in (ptd, tmp_path / "weights.ptd"):
        torch.testing.assert_close(run_pte(pte, [x], external=external, cpu=a76)[0], net(x))
    with pytest.raises(ArtifactError, match="cannot be loaded"):
        run_pte(pte, [x], cpu=a76)


@pytest.mark.parametrize("form", ["log_softmax", "logsumexp", "log10"])
def test_logarithms_have_eagers_classes(core: str, form: str) -> None:
    """NEON's own makes numbers of NaN and infinity."""

    def logarithm(x: torch.Tensor) -> torch.Tensor:
        if form == "log10":
            return torch.log10(torch.clamp(x, min=1e-10))
        return getattr(torch, form)(x, -1)

    inf, nan = torch.inf, torch.nan
    x = torch.tensor([[0.0, 1, inf, 2], [nan, 1, 2, 3], [1, 2, 3, 4], [-inf, 1, 2, 3]])
    (found,) = lower(logarithm, x).run(x, cpu=core)
    torch.testing.assert_close(found, logarithm(x), equal_nan=True)


def test_instructions_are_counted_alike_each_time(a76: str) -> None:
    if why := arm64.missing(a76, counting=True):
        pytest.skip(why)
    x = torch.randn(16, 64)
    session = PteSession.load(lower(nn.Linear(64, 64), x).to_pte(), cpu=a76, counting=True)
    measured = session.measure(x, repeats=3)
    totals = [sum(counts.values()) for counts in measured.counts]
    assert len(measured.nanoseconds) == 3
    assert abs(totals[1] - totals[2]) < 0.01 * totals[1]
    assert totals[1] > 16 * 64 * 64 / 8  # No instruction does more than eight products.


def test_a_devices_runner_times_every_method_and_prints_json(a76: str, tmp_path: Path) -> None:
    x, paths = torch.randn(2, 8), [str(tmp_path / name) for name in ("one.pte", "none.pte")]
    Path(paths[0]).write_bytes(lower(nn.Linear(8, 4), x).to_pte())
    Path(paths[1]).write_bytes(b"no program")
    done = subprocess.run(
        [*arm64.command(a76), "--time", *paths], capture_output=True, text=True, check=True
    )
    said = json.loads(done.stdout)
    assert said["machine"] == "Arm cores 0xd0b"
    assert said["programs"][paths[0]]["forward"] > 0
    assert said["programs"][paths[1]] == {}


def test_a_core_that_is_not_there_is_refused_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    x = torch.randn(2, 2)
    made = lower(nn.ReLU(), x)
    with pytest.raises(stepwell.StepwellError, match="pentium is none of the cores cortex-a53"):
        made.run(x, cpu="pentium")
    monkeypatch.setenv(arm64.FOLDER, str(tmp_path))
    with pytest.raises(stepwell.StepwellError, match="no emulator is set up"):
        made.run(x, cpu="cortex-a76")
    monkeypatch.setenv(arm64.VARIABLE, "cortex-a76")
    with pytest.raises(stepwell.StepwellError, match="no emulator is set up"):
        made.run(x)
    (tmp_path / "missing.txt").write_text("there is no dpkg here")
    assert arm64.missing() == "there is no dpkg here"
    (tmp_path / "runner").touch()
    (tmp_path / arm64.MADE).write_text("4 1.5.0")
    with pytest.raises(stepwell.StepwellError, match="is of another version of stepwell"):
        made.run(x, cpu="cortex-a76")


def test_a_target_with_an_engine_of_its_own_takes_no_core() -> None:
    x = torch.randn(2, 2)
    made = lower(nn.ReLU(), x, target="tosa-1.0+fp")
    with pytest.raises(stepwell.StepwellError, match="has no emulated CPUs"):
        made.run(x, cpu="cortex-a76")
