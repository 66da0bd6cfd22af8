"""Flattening of a call's arguments to the list of a signature: by structure, by name, or flat.

The structure is that of the export (torch's pytree). Dictionaries are read by key, in any order;
lists, tuples and named tuples by position.
"""

from __future__ import annotations

from collections import defaultdict, namedtuple
from collections.abc import Mapping, Sequence
from typing import Any, cast

from stepwell.ir.compat.torch.lazy_imports import pytree
from stepwell.ir.diagnostics import InputMismatch
from stepwell.ir.signature import Signature

_SEQUENCES = (tuple, list)


class _Mismatch(Exception):
    """Raised if arguments nest differently from the signature; states where and how they differ."""


def plain_nesting(spec: Any) -> Any:
    """Replace named tuples by tuples in a nesting, including torch's own result types.

    A program's text cannot contain their Python classes (`torch.return_types.topk`).
    """
    if spec.is_leaf():
        return spec
    children = [plain_nesting(child) for child in spec.children()]
    is_subclass = isinstance(spec.type, type) and issubclass(spec.type, tuple)
    if spec.type is namedtuple or is_subclass:
        return pytree.TreeSpec(tuple, None, children)
    return pytree.TreeSpec(spec.type, spec.context, children)


def flat_arguments(
    signature: Signature, args: Sequence[Any], kwargs: Mapping[str, Any], method: str
) -> list[Any]:
    """Return a call's arguments in the order of the signature, including specialized inputs.

    Raises:
        InputMismatch: the arguments do not nest as the model requires.
    """
    inputs = "inputs are " + ", ".join(port.name for port in signature.inputs)
    expected = len(signature.inputs)
    if signature.in_spec is not None:
        spec = pytree.treespec_loads(signature.in_spec)
        try:
            by_place, by_name = spec.children()
            return [*_items(by_place, args, ""), *_values(by_name, kwargs, "the call")]
        except _Mismatch as mismatch:
            differs = str(mismatch)
    else:
        differs = ""
    names = [port.name for port in signature.inputs]
    if kwargs and len(args) + len(kwargs) == expected and set(kwargs) <= set(names[len(args) :]):
        return [*args, *(kwargs[name] for name in names[len(args) :])]
    if kwargs or any(_is_nested(argument) for argument in args):
        text = f"keyword arguments {', '.join(kwargs)} do not match the signature"
        raise InputMismatch(differs or text, method, inputs)
    if len(args) == expected:
        return list(args)
    given = iter(args)
    if len(args) == len(signature.runtime_inputs):
        return [p.constant[0] if p.constant else next(given) for p in signature.inputs]
    raise InputMismatch(f"{len(args)} inputs given, {expected} needed", method, inputs)


def _is_nested(argument: Any) -> bool:
    return argument is not None and not pytree.tree_flatten(argument)[1].is_leaf()


def _leaves(spec: Any, given: Any, where: str) -> list[Any]:
    """Return the argument at each leaf of a nesting.

    Raises:
        _Mismatch: the argument nests differently.
    """
    if spec.is_leaf():
        if _is_nested(given):
            raise _Mismatch(f"{where or 'an input'} has type {type(given).__name__}, not one value")
        return [given]
    if spec.type in _SEQUENCES:
        if not isinstance(given, _SEQUENCES):
            raise _Mismatch(f"{where} has type {type(given).__name__}, not {spec.type.__name__}")
        return _items(spec, cast(Sequence[Any], given), where)
    if isinstance(spec.type, type) and issubclass(spec.type, dict):
        if not isinstance(given, dict):
            raise _Mismatch(f"{where} has type {type(given).__name__}, not a dictionary")
        return _values(spec, cast(dict[Any, Any], given), where)
    leaves, nesting = pytree.tree_flatten(given)
    if plain_nesting(nesting) != spec:
        raise _Mismatch(f"{where} has type {type(given).__name__}, which nests differently")
    return leaves


def _items(spec: Any, given: Sequence[Any], where: str) -> list[Any]:
    children = spec.children()
    if len(given) != len(children):
        what = where or "the call"
        raise _Mismatch(f"{what} has {len(given)} values by position, {len(children)} needed")
    return [
        leaf
        for at, (child, item) in enumerate(zip(children, given, strict=True))
        for leaf in _leaves(child, item, f"{where}[{at}]" if where else f"argument {at}")
    ]


def _values(spec: Any, given: Mapping[Any, Any], where: str) -> list[Any]:
    keys = list(spec.context[1] if spec.type is defaultdict else spec.context)
    missing = [repr(key) for key in keys if key not in given]
    unknown = [repr(key) for key in given if key not in keys]
    if missing or unknown:
        lacks = [f"lacks {', '.join(missing)}"] if missing else []
        more = [f"has {', '.join(unknown)}, which is unknown"] if unknown else []
        raise _Mismatch(f"{where} {' and '.join(lacks + more)}")
    return [
        leaf
        for key, child in zip(keys, spec.children(), strict=True)
        for leaf in _leaves(child, given[key], f"{where}[{key!r}]")
    ]
