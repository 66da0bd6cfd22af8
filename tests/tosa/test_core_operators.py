"""The core ATen operators lower to TOSA, or say why not; docs/tosa_operators.md lists them."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

import stepwell

from .core_operators import (
    CALLS,
    NOT_CALLED,
    REFUSED,
    ROUNDED,
    WHY,
    core_operators,
    module_of,
)

TARGET = "tosa-1.0+fp+int+fft"
TABLE = Path(__file__).parents[2] / "docs" / "tosa_operators.md"


def assert_matches(name: str, found: list[Any], wanted: list[Any]) -> None:
    """Equal, or within 1e-5 of the largest where floats are computed."""
    for one, other in zip(found, wanted, strict=True):
        assert one.shape == other.shape, name
        close = 1e-5 * float(other.abs().max()) if name in ROUNDED else 0.0
        torch.testing.assert_close(
            one.to(other.dtype), other, rtol=0, atol=close, msg=lambda m: f"{name}: {m}"
        )


def test_core_operators_compute_what_pytorch_does() -> None:
    names = [name for name in CALLS if name not in REFUSED]
    module, inputs = module_of(names)
    with torch.no_grad():
        expected = module(*inputs)
        low = stepwell.lower(torch.export.export(module, inputs), TARGET)
    narrow = [x.to(torch.int32) if x.dtype == torch.int64 else x for x in inputs]
    for results in (low.run(*inputs), low.program.run(*narrow)):
        rest = list(results)
        for name, result in zip(names, expected, strict=True):
            wanted = pytree.tree_leaves(result)
            assert_matches(name, rest[: len(wanted)], wanted)
            rest = rest[len(wanted) :]


def test_what_has_no_form_is_refused_with_its_reason() -> None:
    module, inputs = module_of(list(REFUSED))
    with pytest.raises(stepwell.StepwellError) as refused:
        stepwell.lower(torch.export.export(module, inputs), TARGET)
    facts = [problem.fact for problem in refused.value.problems]
    for name, reason in REFUSED.items():
        assert any(reason in fact for fact in facts), name


def test_the_table_has_every_core_operator_of_this_torch() -> None:
    others = {name for names in NOT_CALLED.values() for name in names}
    assert set(CALLS) | others == core_operators()
    assert set(REFUSED) == set(WHY) <= set(CALLS)
    lines = TABLE.read_text(encoding="utf-8").splitlines()
    rows = {line.split("`")[1]: line for line in lines if line.startswith("| `")}
    assert set(rows) == core_operators()
    for name in CALLS:
        assert ("| refused:" in rows[name]) == (name in REFUSED), name
