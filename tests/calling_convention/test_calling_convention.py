"""The calling convention is a contract: eager's results and effects, or an error that names.

The whole product, some 33 000 calls, is `python tools/calling_convention.py`; this is a part of it.
"""

import pickle
from collections.abc import Iterable
from pathlib import Path

import pytest
import torch
from eager import Function, lower

import stepwell
from stepwell.ir.diagnostics import InputMismatch, StepwellError

from . import garbage, trees
from .memory import PROGRAMS, memory_trials
from .models import MODELS, Of
from .trial import Trial, exported_of, value_trials
from .values import VALUES


def wrong(trials: Iterable[Trial], least: int) -> list[str]:
    held = list(trials)
    assert len(held) >= least
    assert {"equal", "refused"} <= {trial.outcome for trial in held}
    return [f"{trial.what}: {trial.outcome}" for trial in held if not trial.is_right]


def test_tensors_of_every_kind_are_read_as_eager_reads_them() -> None:
    assert not wrong(value_trials(["reads"]), 900)


def test_what_is_written_is_written_for_the_caller_however_it_lies() -> None:
    assert not wrong(value_trials(["writes a row"]), 900)


def test_programs_read_and_write_memory_of_every_form_as_eager_does() -> None:
    assert not wrong(memory_trials(range(40)), 150)


def test_inputs_nest_as_the_model_has_them() -> None:
    names = ("named tuple", "dictionary", "dataclass", "NaN", "written dictionary")
    assert not wrong(trees.tree_trials(names), 300)


def test_open_sizes_hold_their_ranges_and_each_other() -> None:
    assert not wrong(trees.size_trials(("the same", "both multiples")), 600)


FEW = ("None", "3", "text", "text with a zero", "bytes", "dictionary", "object", "function", "path")


def test_no_public_function_lets_a_bare_error_out(tmp_path: Path) -> None:
    assert not wrong(garbage.garbage_trials(tmp_path, FEW), 400)


def test_every_public_function_is_tried() -> None:
    assert not garbage.unchecked()


@pytest.mark.slow
def test_the_whole_calling_convention(tmp_path: Path) -> None:
    assert not wrong(value_trials(), 8000)
    assert not wrong(memory_trials(range(PROGRAMS)), 16000)
    assert not wrong(trees.tree_trials(), 2500)
    assert not wrong(trees.size_trials(), 2000)
    assert not wrong(garbage.garbage_trials(tmp_path), 1200)


def test_values_that_can_be_read_are_not_refused() -> None:
    """The machine counts a refusal as right: these must be equal."""
    taken = (
        "contiguous", "transposed", "every second", "with gaps", "one row for all", "negative bit",
        "imaginary part of a conjugate", "parameter", "requires gradients", "plain subclass",
        "made in inference mode", "NaN, infinity and -0",
    )  # fmt: skip
    assert set(taken) <= set(VALUES)
    found = {trial.outcome for trial in value_trials(["moves"], taken)}
    assert found == {"equal"}


def test_five_axes_in_memory_as_the_example_had_them_reach_the_runtime() -> None:
    function, numbers = MODELS["writes"][0], torch.arange(48.0).reshape(2, 3, 2, 2, 2)
    for order in ((0, 4, 1, 2, 3), (4, 1, 2, 3, 0)):
        example = numbers.permute(order)
        lowered = lower(Of(function), example.clone(), example + 1)
        for one in (example, example.contiguous()):
            given, wanted = one.clone(), one.clone()
            (found,) = lowered.run(given, one + 1)
            assert torch.equal(found, function(wanted, one + 1)) and torch.equal(given, wanted)


def test_cortex_m_writes_the_callers_tensor_and_tosa_refuses_to() -> None:
    """An interpreted `.pte` writes where the runtime would; a TOSA graph has no such form."""
    lowered = stepwell.lower(exported_of("writes"), "cortex-m55")
    function, example = MODELS["writes"]
    for make in (VALUES["transposed"], VALUES["contiguous"], VALUES["negative bit"]):
        given, wanted = make(example), make(example)
        (found,) = lowered.run(given, example + 1)
        assert torch.equal(found, function(wanted, example + 1)) and torch.equal(given, wanted)
    with pytest.raises(StepwellError, match="a TOSA graph cannot write to an input"):
        stepwell.lower(exported_of("writes"), "tosa-1.0+fp")


def test_what_a_session_calls_without_effects_is_beside_its_outputs() -> None:
    session = stepwell.from_exported_program(exported_of("writes")).start()
    x, y = torch.ones(3, 4), torch.ones(3, 4)
    outcome = session.call("forward", (x, y))
    assert torch.equal(x, y) and torch.equal(outcome.mutated_inputs[0], y * 2)


class Numbered(torch.nn.Module):
    def forward(self, x: torch.Tensor, n: int) -> torch.Tensor:
        return x * n


def test_a_number_known_only_at_run_time_is_refused_where_the_runtime_takes_none() -> None:
    x, shapes = torch.ones(3), (None, torch.export.Dim.DYNAMIC)
    exported = torch.export.export(Numbered(), (x, 5), dynamic_shapes=shapes)
    program = stepwell.from_exported_program(exported)
    assert torch.equal(program.run(x, 7)[0], x * 7)
    for other in (2.5, True, "7", torch.tensor(7), -1):
        with pytest.raises(InputMismatch, match="input n"):
            program.run(x, other)
    with pytest.raises(StepwellError, match="input n is a number known only at run time"):
        stepwell.lower(exported, "xnnpack").to_pte()
    assert torch.equal(stepwell.lower(exported, "xnnpack", sizes=4).run(x, 4)[0], x * 4)


def test_a_file_of_another_format_is_not_written(tmp_path: Path) -> None:
    exported = torch.export.export(Of(MODELS["reads"][0]), (MODELS["reads"][1],) * 2)
    lowered = stepwell.lower(exported, "xnnpack")
    for name in ("w.tosa", "w.c", "w.mlir", "w.pt2"):
        with pytest.raises(StepwellError, match=r"writes \.pte files"):
            lowered.save(tmp_path / name)
    assert not list(tmp_path.iterdir())
    lowered.save(tmp_path / "w.bin")
    assert (tmp_path / "w.bin").read_bytes() == lowered.to_pte()


def test_programs_and_lowerings_are_pickled() -> None:
    layer = torch.nn.Linear(3, 3).eval()
    program = stepwell.from_exported_program(torch.export.export(layer, (torch.ones(2, 3),)))
    again = pickle.loads(pickle.dumps(program))
    assert str(again) == str(program)
    assert torch.equal(again.run(torch.ones(2, 3))[0], program.run(torch.ones(2, 3))[0])
    lowered = stepwell.lower(program, "xnnpack", numerics="finite")
    copy = pickle.loads(pickle.dumps(lowered))
    assert copy.to_pte() == lowered.to_pte() and str(copy.report) == str(lowered.report)


def test_a_class_that_no_text_names_is_refused() -> None:
    class Own:
        def __init__(self, t: torch.Tensor) -> None:
            self.t = t

    torch.utils._pytree.register_pytree_node(
        Own,
        lambda own: ([own.t], None),
        lambda held, _: Own(*held),
        flatten_with_keys_fn=lambda own: ([(torch.utils._pytree.GetAttrKey("t"), own.t)], None),
    )

    def takes(own: Own) -> torch.Tensor:
        return own.t * 2

    exported = torch.export.export(Function(takes), (Own(torch.ones(2)),))
    with pytest.raises(StepwellError, match="nested in unregistered classes"):
        stepwell.from_exported_program(exported)
