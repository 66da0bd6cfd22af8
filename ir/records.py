"""Dataclasses whose `__init__` is compiled when it is first called.

The standard library compiles six methods of each frozen class as it is defined: a fifth of the
first lowering in a process, of whose 250 classes 110 have an instance and five are ever compared.
Here the other methods are functions over the fields' names, and `__init__` is the library's own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import FrozenInstanceError
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(cls=None, /, *, frozen=False, eq=True, **further):
        """As the library's, which makes the whole class where it is asked for more than this."""

        def made(cls):
            if further:
                return dataclasses.dataclass(cls, frozen=frozen, eq=eq, **further)
            return _record(cls, frozen, eq)

        return made if cls is None else made(cls)


__all__ = ["dataclass"]


def _record(cls: Any, frozen: bool, eq: bool) -> Any:
    own = dict(cls.__dict__)
    if not cls.__doc__:
        cls.__doc__ = cls.__name__  # The library would look for the signature of `__init__`.
    # What derives from a frozen class has to say that it is frozen too.
    derives = frozen and any(hasattr(base, "__dataclass_fields__") for base in cls.__mro__[1:])
    dataclasses.dataclass(cls, init=False, repr=False, eq=False, frozen=derives)
    cls.__dataclass_params__.frozen = frozen
    for method in _methods(cls, frozen, eq):
        if method.__name__ not in own:
            method.__qualname__ = f"{cls.__qualname__}.{method.__name__}"
            method.__module__ = cls.__module__
            setattr(cls, method.__name__, method)
    if eq and (own.get("__hash__") is None and ("__hash__" not in own or "__eq__" in own)):
        cls.__hash__ = _hash(cls) if frozen else None
    return cls


def _methods(cls: Any, frozen: bool, eq: bool) -> Iterator[Callable[..., Any]]:
    yield _init(cls, frozen)
    yield _repr(cls)
    if eq:
        yield _eq(cls)
    if frozen:
        yield from _frozen(cls)


def _init(cls: Any, frozen: bool) -> Callable[..., Any]:
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        if cls.__init__ is __init__:
            cls.__init__ = _compiled(cls, frozen)
        cls.__init__(self, *args, **kwargs)

    return __init__


def _compiled(cls: Any, frozen: bool) -> Callable[..., Any]:
    """The library's `__init__`, of a class that has the fields and nothing else."""
    held: dict[str, Any] = {field.name: field for field in dataclasses.fields(cls)}
    body = {**held, "__annotations__": {name: field.type for name, field in held.items()}}
    body["__module__"] = cls.__module__
    if hasattr(cls, "__post_init__"):
        body["__post_init__"] = None
    alike: Any = dataclasses.dataclass(frozen=frozen, repr=False, eq=False)(
        type(cls.__name__, (), body)
    )
    made = alike.__init__
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    return made


def _reader(cls: Any, wanted: Callable[[Any], Any]) -> Callable[[Any], tuple[Any, ...]]:
    """Gives some fields of an instance."""
    names = [field.name for field in dataclasses.fields(cls) if wanted(field)]
    if not names:
        return lambda _: ()
    read = attrgetter(*names)
    return read if len(names) > 1 else lambda instance: (read(instance),)


def _eq(cls: Any) -> Callable[..., Any]:
    read = _reader(cls, lambda field: field.compare)

    def __eq__(self: Any, other: Any) -> Any:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return read(self) == read(other)

    return __eq__


def _hash(cls: Any) -> Callable[..., int]:
    read = _reader(cls, lambda field: field.compare if field.hash is None else field.hash)

    def __hash__(self: Any) -> int:
        return hash(read(self))

    return __hash__


def _repr(cls: Any) -> Callable[..., str]:
    names = [field.name for field in dataclasses.fields(cls) if field.repr]

    @recursive_repr()
    def __repr__(self: Any) -> str:
        said = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return f"{self.__class__.__qualname__}({said})"

    return __repr__


def _frozen(cls: Any) -> Iterator[Callable[..., None]]:
    names = frozenset(field.name for field in dataclasses.fields(cls))

    def __setattr__(self: Any, name: str, value: Any) -> None:
        if type(self) is cls or name in names:
            raise FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def __delattr__(self: Any, name: str) -> None:
        if type(self) is cls or name in names:
            raise FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    yield __setattr__
    yield __delattr__
