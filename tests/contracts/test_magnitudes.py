"""Bounds on numbers of every size: those that are stated, and what roundings make of a program."""

from typing import Any

import magnitudes
import pytest
import torch
from contract_driver import Subject, subject_of
from magnitudes import WIDE, sized, subjects
from torch import Tensor

from stepwell.translate.rules import read_rules
from stepwell.translate.rules.examples import examples_of
from stepwell.validation.roundings import Roundings

NAMES = list(subjects())


@pytest.mark.parametrize("name", NAMES)
def test_a_bound_holds_for_numbers_of_every_size(name: str) -> None:
    found = sized(name, rounds=1)
    assert found.is_true, found
    assert found.width < WIDE, found


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_bound_holds_on_many_samples_of_every_size(name: str) -> None:
    found = sized(name, rounds=40)
    assert found.is_true, found


PLANTED = """
rule planted
Before:
    %y = aten.add.Tensor(%x, %z, alpha=0.3)
After:
    %p = aten.mul.Scalar(%z, FACTOR)
    %y = aten.add.Tensor(%x, %p)
bound BOUND: "the product is rounded on its own"
"""


def planted(monkeypatch: Any, factor: float, bound: str) -> magnitudes.Sized:
    """What comes of a rule that says `0.3` with another factor, or another bound."""
    text = PLANTED.replace("FACTOR", str(factor)).replace("BOUND", bound)
    (rule,) = read_rules(text, globals())
    subject = Subject((rule(),), tuple(before for before, _ in examples_of(rule)))
    monkeypatch.setattr(magnitudes, "subject_of", lambda name: subject)
    return sized("planted", rounds=2)


def test_a_factor_that_is_off_by_a_millionth_exceeds_what_is_derived(monkeypatch: Any) -> None:
    assert planted(monkeypatch, 0.3, "of roundings").is_true
    assert planted(monkeypatch, 0.3000003, "of roundings").exceeded


def test_a_bound_of_the_result_alone_is_less_than_cancellation_makes(monkeypatch: Any) -> None:
    assert planted(monkeypatch, 0.3, "3.6e-7 of |%x| + |%y|").is_true
    assert planted(monkeypatch, 0.3, "1e-6 relative").short


def test_a_bound_that_is_wider_than_ten_times_is_told(monkeypatch: Any) -> None:
    found = planted(monkeypatch, 0.3, "1e-5 of |%x| + |%y|")
    assert found.is_true and found.width > WIDE


def test_samples_are_as_far_apart_as_they_say() -> None:
    (text,) = subject_of("decompositions.sums: split-alpha-of-add").examples
    func = magnitudes.Program.of(magnitudes.draft_of(text).build()).method()
    values = [s.inputs[0].abs() for s in magnitudes.samples(func, 20)]
    everything = torch.cat([v.flatten() for v in values])
    assert everything.max() > 1e25 and everything[everything > 0].min() < 1e-25


PROGRAMS: dict[str, Any] = {
    "softmax": lambda x, y: torch.softmax(x, -1),
    "log_softmax": lambda x, y: torch.log_softmax(x, -1),
    "layer_norm": lambda x, y: torch.nn.functional.layer_norm(x, [x.shape[-1]]),
    "gelu": lambda x, y: torch.nn.functional.gelu(x),
    "attention": lambda x, y: torch.nn.functional.scaled_dot_product_attention(x, y, x),
    "variance": lambda x, y: x.var(-1),
    "difference of sums": lambda x, y: (x + y).sum(-1) - x.sum(-1),
    "products": lambda x, y: x @ y.mT,
    "a mean taken away": lambda x, y: x - x.mean(-1, keepdim=True),
    "slices written": lambda x, y: torch.nn.functional.pad(x * y, (1, 2)),
    "curves": lambda x, y: x.tanh() * y.exp().log1p() + torch.sin(x),
}


@pytest.mark.parametrize("size", [1e-20, 1.0, 100.0])
@pytest.mark.parametrize("name", PROGRAMS)
def test_what_roundings_make_of_a_program_is_within_what_is_derived(name: str, size: float) -> None:
    random = torch.Generator().manual_seed(3)
    x, y = (torch.randn(2, 3, 5, 8, generator=random) * size for _ in range(2))
    x[0] = 333 * size  # Rows that are constant cancel.
    noted = Roundings()
    with torch.no_grad(), noted:
        single = PROGRAMS[name](x, y)
    error = noted.of(single)
    assert isinstance(error, Tensor)
    exact = PROGRAMS[name](x.double(), y.double())
    assert bool(((single.double() - exact).abs() <= error).all())
