"""Choices that costs call close: a table decides, the same way each time; what wins is kept."""

from pathlib import Path

import pytest
import torch
from eager import Function, exported

import stepwell
from stepwell.cost_model import tuning
from stepwell.cost_model.tuning import NOISE, Comparison, choices_of, table_of, tune, write_table
from stepwell.dialects.xnnpack.costs import cpu_kind
from stepwell.ir.choices import read_table
from stepwell.ir.diagnostics import StepwellError


def heads(x: torch.Tensor, qkv: torch.nn.Module) -> torch.Tensor:
    """A fused projection whose output is taken apart."""
    q, k, v = qkv(x).chunk(3, dim=-1)
    return q.tanh() * k.sigmoid() + v


INPUTS = (torch.randn(2, 16, 64),)


@pytest.fixture(scope="module")
def program() -> stepwell.Program:
    torch.manual_seed(0)
    return stepwell.from_exported_program(
        exported(Function(heads, torch.nn.Linear(64, 192)), *INPUTS)
    )


def layers(lowered: stepwell.Lowered) -> int:
    """How many products there are."""
    return sum(op.name == "xnnpack.fully_connected" for op in lowered.program.module.walk())


def test_a_table_decides_and_the_same_table_gives_the_same_bytes(
    program: stepwell.Program,
) -> None:
    by_cost = stepwell.lower(program, "xnnpack")
    (choice,) = choices_of(by_cost)
    assert (choice.step, choice.chosen, choice.others) == ("split-linear", "in parts", ["fused"])
    first, second = (stepwell.lower(program, "xnnpack", tuned={choice.key: "fused"}) for _ in "ab")
    assert (layers(by_cost), layers(first)) == (3, 1)
    assert first.artifact == second.artifact
    torch.testing.assert_close(first.run(*INPUTS), by_cost.run(*INPUTS))


def test_a_table_of_other_shapes_changes_nothing(program: stepwell.Program) -> None:
    other = stepwell.lower(program, "xnnpack", tuned={"split-linear tensor<1x1xf32>": "fused"})
    assert other.artifact == stepwell.lower(program, "xnnpack").artifact


def test_a_choice_that_is_none_is_refused(program: stepwell.Program) -> None:
    (choice,) = choices_of(stepwell.lower(program, "xnnpack"))
    with pytest.raises(StepwellError, match="unknown alternative, 'sideways'") as caught:
        stepwell.lower(program, "xnnpack", tuned={choice.key: "sideways"})
    assert "in parts, fused" in str(caught.value)


@pytest.mark.parametrize(
    ("ratio", "kept"), [(1 - 2 * NOISE, {"fused"}), (1.0, set[str]()), (1 + 2 * NOISE, set[str]())]
)
def test_only_what_wins_beyond_noise_is_kept(
    program: stepwell.Program, monkeypatch: pytest.MonkeyPatch, ratio: float, kept: set[str]
) -> None:
    def compared(*_: object) -> Comparison:
        return Comparison((ratio,) * 5, 1.0)

    monkeypatch.setattr(tuning, "compared", compared)
    assert {*tune(program, INPUTS).choices.values()} == kept


def test_a_win_in_few_pairs_is_noise() -> None:
    assert not Comparison((0.5, 0.5, 0.5, 1.1, 1.1), 1.0).wins
    assert Comparison((0.9, 0.9, 0.9, 0.9, 1.1), 1.0).wins


def test_what_is_measured_runs(program: stepwell.Program) -> None:
    found = tune(program, INPUTS, pairs=2)
    assert next(iter(found.measured.values())).keys() == {"fused"}
    assert found.untuned_ms > 0 and found.ratio > 0


def test_a_table_holds_what_wins_somewhere_and_loses_nowhere() -> None:
    found = [{"a": {"x": 0.9}, "b": {"x": 0.9, "y": 0.8}}, {"a": {"x": 1.2}, "c": {"x": 1.0}}]
    assert table_of(found) == {"b": "y"}


def test_a_table_is_a_file_of_one_kind_of_cpu(tmp_path: Path, program: stepwell.Program) -> None:
    path = tmp_path / "tuned.json"
    (choice,) = choices_of(stepwell.lower(program, "xnnpack"))
    write_table(path, {choice.key: "fused"})
    assert read_table(path) == (cpu_kind(), {choice.key: "fused"})
    assert layers(stepwell.lower(program, "xnnpack", tuned=path)) == 1
    path.write_text('{"cpu": "z80", "choices": {}}')
    with pytest.raises(StepwellError, match="contains measurements of z80"):
        write_table(path, {})
    path.write_text("[]")
    with pytest.raises(StepwellError, match="is not a table of choices"):
        stepwell.lower(program, "xnnpack", tuned=path)
