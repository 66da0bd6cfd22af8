"""Custom operators that write to their arguments, in the form of PyTorch's functionalization.

`auto_functionalized_v2(op, value=v, _cache_base_index=0, _all_bases=[c])` calls an operator on
copies. It returns the operator's results, and the new value of each base. An argument is a base or
a view of one, which the call describes. In the IR the op itself takes the old values and returns
the new ones. A view is extracted before the op and written back after it.

    %r, %c_after = llama.update_cache.default(%v, %c, 3) : (…) -> (tensor<…>, tensor<…>)

The older `auto_functionalized(op, value=v, cache=c)` returns the written arguments in order.

Source: torch/_higher_order_ops/auto_functionalize.py of PyTorch 2.13.
"""

from __future__ import annotations

from typing import Any

from torch.fx import Node
from xdsl.ir import SSAValue

from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.aten.registry import of_overload
from stepwell.dialects.symbols import flat_types
from stepwell.ir.diagnostics import UnsupportedError
from stepwell.translate.importer.context import Importer

NAMES = ("auto_functionalized", "auto_functionalized_v2")
_SLICE = ("slice_dim", "slice_start", "slice_end")
_STRIDED = ("size", "stride", "storage_offset")


def import_functionalized(importer: Importer, node: Node) -> None:
    """Import a call of `auto_functionalized` or `auto_functionalized_v2`.

    Raises:
        UnsupportedError: the operator writes to a list of tensors, or the target is no operator.
    """
    overload, *rest = node.args
    given = dict(node.kwargs)
    if rest or not hasattr(overload, "_schema"):
        raise UnsupportedError(
            f"the operator calls {overload}, which is not an operator with a schema"
        )
    cls = of_overload(overload)
    written = [argument.name for argument in cls.SCHEMA.written]
    if "_all_bases" not in given:
        op = _called(importer, node, overload, given, {})
        importer.values[node] = _in_order(cls, op, list(op.results[-len(written) :]))
        return
    bases: list[Any] = importer.argument(given.pop("_all_bases"))
    described = {name: _description(given, name) for name in written}
    views: dict[str, SSAValue] = {}
    for name, (base, view) in described.items():
        if base is None:
            raise UnsupportedError(
                f"the operator allocates the tensor that it writes to argument {name}"
            )
        views[name] = _cut(importer, node, bases[base], view)
    op = _called(importer, node, overload, given, views)
    after = dict(zip(written, op.results[-len(written) :], strict=True))
    for name, (base, view) in described.items():
        assert base is not None
        bases[base] = _put_back(importer, node, bases[base], after[name], view)
    importer.values[node] = _in_order(cls, op, bases)


def _description(given: dict[str, Any], name: str) -> tuple[int | None, dict[str, Any]]:
    """Pop the arguments that describe a written one; return the index of its base and its view."""
    prefix = f"_{name}_"
    base = given.pop(f"{prefix}base_index", None)
    given.pop(f"{prefix}alias", None)
    names = (*_SLICE, *_STRIDED)
    view = {key: given.pop(prefix + key) for key in names if prefix + key in given}
    if f"{prefix}length" in given:
        raise UnsupportedError(f"the operator writes to argument {name}, a list of tensors")
    return base, view


def _called(
    importer: Importer,
    node: Node,
    overload: Any,
    given: dict[str, Any],
    views: dict[str, SSAValue],
) -> SchemaOp:
    """Return the operator's op, with its written arguments given as values."""
    returned: list[Any] = list(node.meta["val"])[: len(of_overload(overload).SCHEMA.returns)]
    op = written_call(importer, overload, given, views, returned)
    importer.insert(op, node)
    return op


def written_call(
    importer: Importer,
    overload: Any,
    given: dict[str, Any],
    views: dict[str, SSAValue],
    returned: Any,
) -> SchemaOp:
    """Return the op for an operator that writes; its results are the returns, then written values.

    Args:
        importer: maps nodes to values.
        overload: the operator.
        given: arguments by name.
        views: those arguments that are IR values already.
        returned: example values of the returns.
    """
    cls = of_overload(overload)
    arguments: dict[str, Any] = dict(views)
    for argument in cls.SCHEMA.arguments:
        if argument.name in given:
            arguments[argument.name] = importer.argument(given[argument.name])
    types = flat_types(returned)
    types += [arguments[argument.name].type for argument in cls.SCHEMA.written]
    return cls.from_arguments(_without_defaults(cls, arguments), types)


def _without_defaults(cls: type[SchemaOp], arguments: dict[str, Any]) -> dict[str, Any]:
    """Drop arguments that equal their defaults, which PyTorch's functionalization writes out."""
    by_name = cls.SCHEMA.by_name

    def is_said(name: str, value: Any) -> bool:
        default = by_name[name].default
        same = bool(default) and type(value) is type(default[0]) and value == default[0]
        return not same and not (value is None and by_name[name].type.is_tensor)

    return {name: value for name, value in arguments.items() if is_said(name, value)}


def _in_order(cls: type[SchemaOp], op: SchemaOp, bases: list[Any]) -> list[Any]:
    """Return a call's results as `getitem` indexes them: the returns (one None if there are none),
    then the new bases.
    """
    count = len(op.results) - len(cls.SCHEMA.written)
    returned: list[Any] = list(op.results[:count])
    return [*(returned if cls.SCHEMA.returns else [None]), *bases]


def _cut(importer: Importer, node: Node, base: SSAValue, view: dict[str, Any]) -> SSAValue:
    """Return the part of a base that is the written argument."""
    if not view:
        return base
    is_slice, place = _place(view)
    return importer.emit(node, "slice.Tensor" if is_slice else "as_strided.default", base, *place)


def _put_back(
    importer: Importer, node: Node, base: SSAValue, part: SSAValue, view: dict[str, Any]
) -> SSAValue:
    """Return the base with its part replaced by the value after the call."""
    if not view:
        return part
    is_slice, place = _place(view)
    name = "slice_scatter.default" if is_slice else "as_strided_scatter.default"
    return importer.emit(node, name, base, part, *place)


def _place(view: dict[str, Any]) -> tuple[bool, list[Any]]:
    """Return whether a view is a slice, and the arguments of `slice` or of `as_strided`."""
    is_slice = "slice_dim" in view
    return is_slice, [view[key] for key in (_SLICE if is_slice else _STRIDED)]
