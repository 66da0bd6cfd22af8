"""What a certificate says of weights: read back, and refused where a program contradicts it."""

import base64
from collections.abc import Callable
from typing import Any

import pytest
import torch

from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.weight_descriptions import described, store_of
from stepwell.ir.weights import WeightStore
from stepwell.validation.certificates.application import by_hash

by_hash()  # The recipes.
X, Y = torch.arange(6.0).reshape(2, 3), torch.arange(4, dtype=torch.int64)
Rows = dict[str, Any]


def given() -> WeightStore:
    """Weights of a model, one that is derived, and a constant."""
    store = WeightStore()
    store.add("x", X)
    store.add("y", Y)
    store.derive("transpose", ["x"], order=[1, 0])
    store.constant(torch.tensor([1.5, -0.0]), "new")
    store.add("many#1", torch.zeros(9))
    return store


STORE = given()
TURNED, NEW = (next(key for key in STORE if key.startswith(name)) for name in ("x#", "new#"))


def rows(shown: tuple[str, ...] = (), keys: tuple[str, ...] = ("y", TURNED, NEW)) -> Rows:
    return described(STORE, keys, shown, lambda key: key != "many#1")


def test_weights_are_described() -> None:
    made = rows()
    assert sorted(made) == sorted(["x", "y", TURNED, NEW])
    assert made["y"] == {"digest": STORE.content_hash("y"), "shape": [4], "dtype": "int64"}
    assert made["x"]["shape"] == [2, 3]
    assert made[TURNED] == {"digest": "", "recipe": "transpose", "sources": ["x"],
                            "parameters": {"order": [1, 0]}}  # fmt: skip
    assert base64.b64decode(made[NEW]["data"]) == torch.tensor([1.5, -0.0]).numpy().tobytes()
    assert rows((TURNED,))[TURNED]["digest"] == STORE.content_hash(TURNED)
    assert rows((), ("x",)) == {"x": made["x"]}
    assert "data" not in rows((), ("many#1",))["many#1"]


def test_weights_are_read_back() -> None:
    store, assumed = store_of(rows((TURNED,)), [STORE])
    assert assumed == 0
    for key, value in {"x": X, "y": Y, TURNED: X.mT, NEW: torch.tensor([1.5, -0.0])}.items():
        assert torch.equal(store.get(key), value)
        assert store.type_of(key) == STORE.type_of(key)
    assert store.recipe_of(TURNED) == STORE.recipe_of(TURNED)


def test_weights_of_no_program_are_unknown() -> None:
    store, assumed = store_of(rows(), [])
    assert assumed == 0
    assert [store.is_known(key) for key in ("x", "y", TURNED, NEW)] == [False, False, False, True]
    assert all(store.type_of(key) == STORE.type_of(key) for key in store)
    assert store_of({}, [STORE])[1] == 0


def plain(key: str, value: torch.Tensor) -> WeightStore:
    store = WeightStore()
    store.add(key, value)
    return store


def test_a_derived_weight_of_a_program_is_computed_again_or_assumed() -> None:
    right, wrong = plain(TURNED, X.mT.contiguous()), plain(TURNED, X.mT + 1)
    made = rows((TURNED,))
    assert store_of(made, [STORE, right])[1] == 0
    assert store_of(made, [right])[1] == 1, "its source is in no program"
    for wanted in ([STORE, wrong], [wrong]):
        with pytest.raises(StepwellError, match="differs"):
            store_of(made, wanted)
    with pytest.raises(StepwellError, match="differs"):
        store_of(rows(), [STORE, right])  # A weight of a program has a digest.
    with pytest.raises(StepwellError, match="differs"):
        store_of(made, [plain(TURNED, X.mT.double())])


def test_an_unknown_weight_of_a_program_contradicts_nothing() -> None:
    unknown = WeightStore()
    unknown.add_unknown("x", STORE.type_of("x"))
    store, assumed = store_of(rows(), [unknown])
    assert (assumed, store.is_known("x")) == (0, False)
    assert store_of(rows(), [unknown, STORE])[0].is_known("x")


def with_(key: str, **changes: Any) -> Rows:
    made = rows((TURNED,))
    made[key] = {**made[key], **changes}
    return made


def without(key: str, field: str = "") -> Rows:
    made = rows()
    made.pop(key) if not field else made[key].pop(field)
    return made


WRONG: dict[str, Callable[[], Rows]] = {
    "another digest": lambda: with_("y", digest="0" * 64),
    "another shape": lambda: with_("y", shape=[5]),
    "another type": lambda: with_("y", dtype="int32"),
    "a type that is none": lambda: with_("y", dtype="nn"),
    "a shape of truths": lambda: with_("y", shape=[True, 4]),
    "a shape below zero": lambda: with_("y", shape=[-4]),
    "a field more": lambda: with_("y", more=1),
    "a field less": lambda: without("y", "digest"),
    "no source": lambda: without("x"),
    "a source of itself": lambda: with_(TURNED, sources=[TURNED]),
    "another order": lambda: with_(TURNED, parameters={"order": [0, 1]}),
    "another recipe": lambda: with_(TURNED, recipe="rows"),
    "a digest of another derived": lambda: with_(TURNED, digest="0" * 64),
    "other data": lambda: with_(NEW, data=base64.b64encode(bytes(8)).decode()),
    "data that is no Base64": lambda: with_(NEW, data="*" + rows()[NEW]["data"]),
    "data of another shape": lambda: with_(NEW, shape=[2, 1, 3]),
    "a digest of another constant": lambda: with_(NEW, digest="0" * 64),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_description_that_contradicts_a_program_is_refused(name: str) -> None:
    with pytest.raises((StepwellError, ValueError, TypeError, AttributeError, RuntimeError)):
        store_of(WRONG[name](), [STORE])


@pytest.mark.parametrize("shape", [[True, 4], [-4], [4.0], [1 << 40], [1 << 20, 1 << 20]])
def test_a_shape_that_no_weight_has_is_refused(shape: list[Any]) -> None:
    with pytest.raises(ValueError, match="the shape of a weight is invalid"):
        store_of(with_("y", shape=shape), [])
    assert store_of(with_("y", shape=[0, 2]), [])[0].type_of("y").get_shape() == (0, 2)
    store_of(with_("y", shape=[(1 << 40) - 1]), [])


def test_an_empty_constant() -> None:
    store = WeightStore()
    key = store.constant(torch.empty(0, 3), "new")
    made = described(store, (key,), (), lambda key: True)
    assert store_of(made, [])[0].get(key).shape == (0, 3)


def test_programs_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(StepwellError, match='the weight "x" differs'):
        store_of(rows(), [STORE, plain("x", X + 1)])
    with pytest.raises(StepwellError, match="differs"):
        store_of(rows(), [STORE, plain("x", X.double())])
    for made in (without("x"), WRONG["a source of itself"]()):
        with pytest.raises(StepwellError, match="has no entry, or is derived from itself"):
            store_of(made, [STORE])
