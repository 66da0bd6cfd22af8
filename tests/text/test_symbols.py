"""What torch prints of its numbers is read, or refused where it is imported."""

import pytest
import torch

import stepwell
from stepwell.dialects import symbols
from stepwell.dialects.symbols import Symbols, is_read
from stepwell.ir.diagnostics import ParseFailure

KNOWN = {"s0": (1, 9), "s1": (1, 9)}


@pytest.mark.parametrize(
    "text",
    [
        "Piecewise((s0, s0 < 4), (s0 + 1, True)) <= 1",
        "Max(1, s0) - Min(s1, 3)",
        "~(Eq(s0, 1)) & (s1 > 2)",
        "CeilToInt(IntTrueDiv(s0, 2))",
        "OpaqueUnaryFn_sqrt(ToFloat(s0))",
        "-inf",
        "PythonMod(-s0, 4)",
    ],
)
def test_what_is_said_to_be_read_is_read(text: str) -> None:
    assert is_read(text)
    Symbols(KNOWN).expression(text)


@pytest.mark.parametrize("text", ["Foo(s0)", "s0 is 1", "Piecewise(s0)(1)", "[s0]", "s0 +", "f'x'"])
def test_what_is_said_not_to_be_read_is_not(text: str) -> None:
    assert not is_read(text)
    with pytest.raises(ParseFailure):
        Symbols(KNOWN).expression(text)


def test_a_number_without_a_text_is_refused_with_its_op_and_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Taken(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            count = x.sum().to(torch.int64).item()
            torch._check(count >= 1)
            torch._check(count <= 3)
            return x[:count]

    exported = torch.export.export(Taken(), (torch.ones(3),))
    assert stepwell.from_exported_program(exported)
    monkeypatch.setattr(symbols, "is_read", lambda text: "u" not in text)
    with pytest.raises(stepwell.StepwellError, match="u0 cannot be represented in") as caught:
        stepwell.from_exported_program(exported)
    assert "test_symbols.py" in str(caught.value.problems[0].where)


@pytest.mark.parametrize(
    ("stated", "found", "may"),
    [
        ("1", "Max(0, Min(64, u1) - Min(64, u0))", True),  # Bounds that lie one apart.
        ("s0", "Min(256, s0 + u0) - u0", True),
        ("1", "2*u0 + 2", False),
        ("3", "s0", False),
    ],
)
def test_sizes_of_data_may_be_what_the_program_states(stated: str, found: str, may: bool) -> None:
    symbols = Symbols({"u0": (0, 63), "u1": (0, 64), "s0": (2, 99)})
    ours, theirs = symbols.expression(stated), symbols.expression(found)
    assert symbols.may_agree(ours, theirs) is may
