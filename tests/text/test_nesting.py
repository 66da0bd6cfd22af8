"""How values nest is short in the text and torch's own in the signature."""

from collections import OrderedDict, namedtuple
from typing import Any

import pytest
from torch.utils import _pytree as pytree

import stepwell
from stepwell.ir.syntax.nesting import spell, unspell

Pair = namedtuple("Pair", "left right")

SHORT: list[tuple[Any, str]] = [
    (1, "*"),
    (((1,), {}), "((*), {})"),
    ((), "()"),
    (((1, [2, (3,)]), {"mask": 4, "cache": [5, 6]}), "((*, [*, (*)]), {mask: *, cache: [*, *]})"),
]
LONG: list[Any] = [OrderedDict(a=1), {"two words": 1}, {3: 1}]


@pytest.mark.parametrize(("value", "text"), SHORT, ids=[text for _, text in SHORT])
def test_a_nesting_of_python_containers_is_short_and_comes_back(value: Any, text: str) -> None:
    spec = pytree.tree_structure(value)
    dumped = pytree.treespec_dumps(spec)
    assert spell(dumped) == text
    assert pytree.treespec_loads(unspell(text)) == spec


@pytest.mark.parametrize("value", LONG, ids=str)
def test_other_containers_keep_the_json_of_torch(value: Any) -> None:
    dumped = pytree.treespec_dumps(pytree.tree_structure(value))
    assert spell(dumped) == dumped
    assert unspell(dumped) == dumped


@pytest.mark.parametrize(
    "text", ["", "(", "(*", "(* *)", "{a *}", "{a: }", "(*) *", "@", "(" * 100_000, "{(: *}"]
)
def test_what_is_no_nesting_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is needed|is missing|has text after|is not part"):
        unspell(text)


def test_a_program_whose_nesting_does_not_parse_is_refused() -> None:
    text = """
    func.func @forward(%x: tensor<2xf32>) -> tensor<2xf32>
        attributes {stepwell.in_spec = "((*), {"} {
      func.return %x : tensor<2xf32>
    }"""
    with pytest.raises(stepwell.StepwellError, match="signature does not parse"):
        stepwell.parse(text).verify()
