"""Records behave as the dataclasses of the standard library do."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from dataclasses import FrozenInstanceError, field
from typing import Any, ClassVar, Generic, TypeVar

import pytest

from stepwell.ir import records

T = TypeVar("T")


def family(dataclass: Any) -> dict[str, Any]:
    """Classes made by a decorator."""

    @dataclass(frozen=True)
    class Empty:
        kind: ClassVar[int] = 3

    @dataclass(frozen=True)
    class Point(Generic[T]):
        """A place."""

        x: T
        y: float = 0.0
        seen: list[int] = field(default_factory=list[int], compare=False)
        hidden: int = field(default=7, repr=False)
        sum: float = field(init=False)

        def __post_init__(self) -> None:
            object.__setattr__(self, "sum", self.x + self.y)  # type: ignore[operator]

    @dataclass(frozen=True)
    class Named(Point[float]):
        name: str = "n"

    class Plain(Point[float]):
        pass

    @dataclass
    class Free:
        items: dict[str, int] = field(default_factory=dict[str, int])

    @dataclass(frozen=True, eq=False)
    class Alone:
        x: int

    @dataclass
    class Counted(Free):
        count: int = 0

        def __repr__(self) -> str:
            return "counted"

        def __eq__(self, other: object) -> bool:
            return self.count == getattr(other, "count", None)

        def __hash__(self) -> int:
            return self.count

    made = (Empty, Point, Named, Plain, Free, Alone, Counted)
    return {cls.__name__: cls for cls in made}


OURS, THEIRS = family(records.dataclass), family(dataclasses.dataclass)
MADE: tuple[tuple[str, tuple[Any, ...]], ...] = (
    ("Empty", ()),
    ("Point", (1.0,)),
    ("Point", (float("nan"), 2.0, [1])),
    ("Named", (1.0, 2.0)),
    ("Plain", (1.0,)),
    ("Free", ()),
    ("Free", ({"a": 1},)),
    ("Alone", (1,)),
    ("Counted", ({}, 3)),
)


@pytest.mark.parametrize(("name", "args"), MADE)
def test_a_record_prints_compares_and_hashes_as_a_dataclass(
    name: str, args: tuple[Any, ...]
) -> None:
    nan = float("nan")

    def told(cls: Any) -> Any:
        made = [cls(*args), cls(*args), cls(*(nan if a != a else a for a in args))]
        words = repr(made[0]).rpartition("<locals>.")[2]
        same = [one == other for one in made for other in made]
        try:
            hashes = hash(made[0]) == hash(made[1])
        except TypeError as error:
            return words, same, str(error)
        return words, same, hashes, made[0].__class__.__doc__ and "doc"

    assert told(OURS[name]) == told(THEIRS[name])


@pytest.mark.parametrize("name", OURS)
def test_a_record_has_the_fields_of_a_dataclass(name: str) -> None:
    def told(cls: Any) -> Any:
        fields = [(f.name, f.type, f.init, f.repr, f.compare) for f in dataclasses.fields(cls)]
        return fields, cls.__match_args__, cls.__dataclass_params__.frozen

    assert told(OURS[name]) == told(THEIRS[name])


def test_a_frozen_record_refuses_what_a_dataclass_refuses() -> None:
    for classes in (OURS, THEIRS):
        one = classes["Named"](1.0)
        with pytest.raises(FrozenInstanceError, match="cannot assign to field 'x'"):
            one.x = 2
        with pytest.raises(FrozenInstanceError, match="cannot assign to field 'z'"):
            one.z = 2
        with pytest.raises(FrozenInstanceError, match="cannot delete field 'x'"):
            del one.x
        plain = classes["Plain"](1.0)
        plain.z = 2  # Not a field, and the class is no dataclass itself.
        with pytest.raises(FrozenInstanceError, match="cannot assign to field 'x'"):
            plain.x = 2


def test_a_record_refuses_wrong_arguments_as_a_dataclass() -> None:
    for classes in (OURS, THEIRS):
        with pytest.raises(TypeError, match="missing 1 required positional argument: 'x'"):
            classes["Point"]()
        with pytest.raises(TypeError, match="unexpected keyword argument 'sum'"):
            classes["Point"](1.0, sum=2)


def test_a_record_can_be_copied_replaced_and_derived_from() -> None:
    one = OURS["Named"](1.0, name="m")
    assert copy.copy(one) == one == copy.deepcopy(one)
    assert dataclasses.replace(one, y=3.0).sum == 4.0
    assert dataclasses.asdict(OURS["Free"]({"a": 1})) == {"items": {"a": 1}}

    @dataclasses.dataclass(frozen=True)
    class Theirs(OURS["Point"]):
        z: int = 1

    assert Theirs(1.0).sum == 1.0
    with pytest.raises(TypeError, match="non-frozen dataclass from a frozen one"):

        @records.dataclass
        class Loose(OURS["Point"]):
            z: int = 1


@records.dataclass(frozen=True)
class Kept:
    x: int


def test_a_record_that_was_never_made_here_is_unpickled() -> None:
    held = pickle.dumps(Kept(3))
    assert pickle.loads(held) == Kept(3)
    assert copy.copy(Kept(3)) == Kept(3)
