"""Families say what is so: PyTorch's tags agree, and what moves is run and looked at."""

from typing import Any

import pytest
import torch
from xdsl.ir import Operation

import stepwell
from stepwell.dialects.aten.registry import find, is_pure, overload_of
from stepwell.ir.compat.torch.torch_private import operator_names, schema_of
from stepwell.ir.declared.families import FAMILIES, WIDER, families_of, is_movement, is_of, ops_of

NOT_ELEMENTWISE = {"aten.equal.default", "aten.rrelu.default"}
"""Tagged pointwise; the first gives one truth value for all elements, the second draws."""
X = torch.tensor(
    [-0.0, 0.0, float("nan"), float("inf"), -float("inf"), 1e-42, 2.5, -1.0, 3e38, 7, 8, 9]
)
SQUARE = X.reshape(1, 3, 4)
IMAGE = torch.arange(1 * 4 * 2 * 2.0).reshape(1, 4, 2, 2)
CALLS: dict[str, tuple[Any, ...]] = {
    "view _unsafe_view reshape _reshape_copy view_copy": (SQUARE, [2, 6]),
    "view_as reshape_as": (SQUARE, torch.zeros(2, 6)),
    "flatten": (SQUARE,),
    "unflatten": (SQUARE, 2, [2, 2]),
    "ravel squeeze squeeze_copy alias alias_copy detach detach_copy lift lift_fresh clone positive "
    "lift_fresh_copy contiguous t t_copy numpy_T mT matrix_H adjoint fliplr flipud rot90 "
    "_clone_dim_order": (SQUARE[0],),
    "squeeze.dim squeeze_copy.dim unsqueeze unsqueeze_copy unbind unbind_copy": (SQUARE, 0),
    "squeeze.dims squeeze_copy.dims": (SQUARE, [0]),
    "dropout feature_dropout alpha_dropout feature_alpha_dropout": (SQUARE, 0.5, False),
    "permute permute_copy": (SQUARE, [2, 0, 1]),
    "transpose transpose_copy swapaxes swapdims movedim.int moveaxis.int": (SQUARE, 1, 2),
    "movedim.intlist moveaxis.intlist": (SQUARE, [0, 1], [2, 0]),
    "flip": (SQUARE, [1, 2]),
    "roll": (SQUARE, [1, 3], [1, 2]),
    "pixel_shuffle": (IMAGE, 2),
    "pixel_unshuffle": (IMAGE, 2),
    "channel_shuffle": (IMAGE, 2),
    "expand expand_copy broadcast_to": (SQUARE, [2, 3, 4]),
    "expand_as": (SQUARE, torch.zeros(2, 3, 4)),
    "repeat tile": (SQUARE, [2, 1, 3]),
    "repeat_interleave": (SQUARE, 2, 1),
    "slice slice_copy": (SQUARE, 2, 1, 4, 2),
    "select select_copy": (SQUARE, 1, 2),
    "narrow narrow_copy": (SQUARE, 2, 1, 2),
    "split split_copy unsafe_split chunk unsafe_chunk tensor_split.sections": (SQUARE, 2, 2),
    "split_with_sizes split_with_sizes_copy unsafe_split_with_sizes": (SQUARE, [1, 3], 2),
    "tensor_split.indices": (SQUARE, [1, 2], 2),
    "diagonal diagonal_copy": (SQUARE, 1, 1, 2),
    "cat concat concatenate stack": ([SQUARE, SQUARE + 1], 1),
    "hstack vstack dstack column_stack": ([SQUARE, SQUARE + 1],),
    "index_select": (SQUARE, 2, torch.tensor([3, 0, 0])),
    "gather": (SQUARE[0], 1, torch.tensor([[3], [0], [1]])),
    "take_along_dim": (SQUARE[0], torch.tensor([[3], [0], [1]]), 1),
    "index": (SQUARE, [None, torch.tensor([2, 0])]),
    "embedding": (SQUARE[0], torch.tensor([[2, 2, 0]])),
    "take": (SQUARE, torch.tensor([11, 0])),
}  # fmt: skip


def call_of(name: str) -> tuple[Any, ...]:
    _, operator, overload = name.split(".")
    named = {word: call for words, call in CALLS.items() for word in words.split()}
    given = named.get(f"{operator}.{overload}", named.get(operator))
    assert given is not None, f"{name} is tried with nothing"
    return given


def bits(given: Any) -> list[int]:
    parts = given if isinstance(given, list | tuple) else [given]
    return [n for part in parts for n in part.contiguous().view(torch.int32).flatten().tolist()]


MOVING = [
    n for d in ("aten", "dim_order_ops") for f in ("movement", "lookup") for n in ops_of(f, d)
]


@pytest.mark.parametrize("name", MOVING)
def test_a_movement_gives_elements_as_they_were(name: str) -> None:
    given = call_of(name)
    overload = overload_of(name)
    made, source = bits(overload(*given)), bits(given[0])
    families = families_of(name)
    assert set(made) <= set(source)
    if "reshape" in families:
        assert made == source
    if "rearrangement" in families or "join" in families:
        assert sorted(made) == sorted(source)
    if "repetition" in families:
        assert set(made) == set(source)
        assert len(made) > len(source)


def functional() -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for qualified in operator_names():
        space, _, name = qualified.partition("::")
        overload = overload_of(f"aten.{name}" if "." in name else f"aten.{name}.default")
        if space == "aten" and overload is not None and not schema_of(overload).is_mutable:
            found.append((f"aten.{name}" if "." in name else f"aten.{name}.default", overload))
    return found


def test_what_torch_tags_pointwise_is_elementwise() -> None:
    tagged = {name for name, overload in functional() if torch.Tag.pointwise in overload.tags}
    for name in tagged:
        find(name)
    assert tagged - {n for n in tagged if "elementwise" in families_of(n)} == NOT_ELEMENTWISE


def test_what_is_random_is_what_torch_says_draws() -> None:
    drawn = {
        n for n, overload in functional() if not is_pure(overload) and schema_of(overload).returns
    }
    assert set(ops_of("random", "aten")) <= drawn
    composed = "attention sdp generator rnn lstm gru dropout _sample _standard _nested".split()
    rest = drawn - set(ops_of("random", "aten"))
    assert not [name for name in rest if not any(word in name for word in composed)]


def test_every_name_in_a_family_is_an_operator() -> None:
    for dialect in ("aten", "dim_order_ops"):
        for family in FAMILIES:
            for name in ops_of(family, dialect):
                assert find(name) is not None, name


def test_an_op_of_a_family_is_of_the_wider_one() -> None:
    for narrow, wide in WIDER.items():
        assert set(ops_of(narrow, "aten")) <= set(ops_of(wide, "aten"))


def first_op(line: str, kind: str = "tensor<2x2xf32>") -> Operation:
    lines = f"%y = {line} : ({kind}) -> {kind}\nfunc.return %y : {kind}"
    text = f"func.func @forward(%x: {kind}) -> {kind} {{\n{lines}\n}}"
    first = stepwell.parse(text).methods["forward"].body.block.first_op
    assert first is not None
    return first


def test_a_dropout_moves_unless_it_trains() -> None:
    still, drawing = (first_op(f"aten.dropout.default(%x, 0.5, {t})") for t in ("false", "true"))
    assert is_movement(still)
    assert not is_of(still, "random")
    assert is_of(drawing, "random")
    assert not is_movement(drawing)


def test_an_adjoint_of_complex_numbers_is_no_movement() -> None:
    assert is_movement(first_op("aten.adjoint.default(%x)"))
    assert not is_movement(first_op("aten.adjoint.default(%x)", "tensor<2x2xcomplex<f32>>"))
