"""Methods that runners ask about a model: plain values beside the programs."""

import pytest
import torch
from torch import nn

import stepwell
from stepwell.backends.executorch.running.runner import PteSession
from stepwell.ir.diagnostics import StepwellError

METADATA = {"get_max_seq_len": 128, "use_kv_cache": True, "get_scale": 0.5, "get_eos_ids": [2, 7]}


def test_plain_values_are_methods_in_text_interpreter_and_on_the_runtime() -> None:
    x = torch.randn(2, 3)
    model = nn.Linear(3, 3).eval()
    lowered = stepwell.lower({"forward": torch.export.export(model, (x,)), **METADATA}, "xnnpack")
    again = stepwell.parse(str(lowered.program), weights=lowered.program.weights)
    session = PteSession.load(lowered.to_pte())
    read = stepwell.read_pte(lowered.to_pte())
    for name, value in METADATA.items():
        expected = tuple(value) if isinstance(value, list) else (value,)
        for program in (lowered.program, again, read):
            assert program.run(method=name) == expected
        assert session.run(method=name) == expected
        assert lowered.run(method=name) == expected
    torch.testing.assert_close(session.run(x)[0], model(x))


def test_what_is_neither_a_program_nor_plain_is_refused() -> None:
    with pytest.raises(
        StepwellError, match="method 'get_it': a value of type object is not an exported program"
    ):
        stepwell.lower({"get_it": object()}, "xnnpack")  # pyright: ignore
