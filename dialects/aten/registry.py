"""Op classes by name: those of `operators.py`, and others created from torch's schema on demand."""

from __future__ import annotations

import importlib
import threading
from typing import Any, ClassVar, cast

from xdsl.irdl import (
    AttrSizedOperandSegments,
    irdl_op_definition,
    operand_def,
    opt_operand_def,
    opt_prop_def,
    result_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from xdsl.traits import Pure

from stepwell.dialects.aten.axes import elementwise_axes
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.aten.schema import Schema, parse_schema
from stepwell.ir.axes.maps import maps
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.compat.torch.torch_private import overloads_of, schema_of
from stepwell.ir.declared.families import belong
from stepwell.ir.diagnostics import StepwellError

_CLASSES: dict[str, type[SchemaOp]] = {}
_MAKING = threading.RLock()
"""Held while a class is created on demand: two threads may need the same one."""


def class_name(schema: Schema) -> str:
    """Return a class name: `aten.mul.Scalar` → `MulScalar`; other namespaces are a prefix:
    `TorchaoQuantizeAffineDefault`.
    """
    parts = [schema.operator, schema.overload or "default"]
    if schema.namespace != "aten":
        parts.insert(0, schema.namespace)
    words = [word for part in parts for word in part.split("_") if word]
    name = "".join(word[:1].upper() + word[1:] for word in words)
    is_private = schema.operator.startswith("_") and schema.namespace == "aten"
    return f"_{name}" if is_private else name


def _define_later(cls: type[SchemaOp]) -> None:
    """Let xDSL read the fields of a class when its first op or its definition is needed.

    A program uses a few dozen of the hundreds of declared classes.
    """
    changed, stated = cast(Any, cls), frozenset(cls.__dict__)

    def define(of: Any) -> Any:
        with _MAKING:
            if "create" in cls.__dict__:
                added = [name for name in cls.__dict__ if name not in stated and name.isupper()]
                # xDSL does not treat these as fields.
                cls.__annotations__ = dict.fromkeys(added, ClassVar[Any])
                irdl_op_definition(cls)
                del changed.create
        return of

    changed.get_irdl_definition = classmethod(lambda of: define(of).get_irdl_definition())
    changed.create = classmethod(lambda of, *given, **named: define(of).create(*given, **named))


def _no_value(schema: Schema) -> str | None:
    """Return why an argument that an operator writes cannot be a result of an op, or None.

    A user's operator may exist only in a form that writes to an argument. Its op takes the value
    before the call and returns the value after it.
    """
    if schema.namespace == "aten":
        return ""
    for argument in schema.written:
        if not argument.type.is_tensor or argument.type.is_list or argument.type.nullable:
            return f", of which {argument.name} has type {argument.type}, not one tensor"
    return None


def define(text: str, pure: bool = True, elementwise: bool = False) -> type[SchemaOp]:
    """Create and register the op class of a schema declaration.

    Args:
        text: the declaration, as torch prints it.
        pure: whether equal calls return equal results and an unused call may be removed.
        elementwise: whether each element is computed from the corresponding operand elements.

    Raises:
        StepwellError: the schema writes to an argument, it returns several lists, or the name is
            taken.
    """
    schema = parse_schema(text)
    if schema.is_mutable and (reason := _no_value(schema)) is not None:
        raise StepwellError(
            f"{schema.op_name} writes to its arguments{reason}",
            help="the importer functionalizes such ops; use the functional overload",
        )
    if schema.op_name in _CLASSES:
        raise StepwellError(f"{schema.op_name} is defined twice")
    if sum(returned.type.is_list for returned in schema.returns) > 1:
        raise StepwellError(
            f"{schema.op_name} returns several lists of tensors, which no exported program contains"
        )
    body: dict[str, Any] = {
        "name": schema.op_name,
        "traits": traits_def(Pure()) if pure else traits_def(),
        "__doc__": text,
        "__module__": __name__,
    }
    variadic = 0
    for argument in schema.arguments:
        if not argument.type.is_tensor:
            body[argument.field] = opt_prop_def(prop_name=argument.name)
        elif argument.type.is_list:
            body[argument.field] = var_operand_def()
            body[f"{argument.name}_present"] = opt_prop_def()
            variadic += 1
        elif argument.type.nullable:
            body[argument.field] = opt_operand_def()
            variadic += 1
        else:
            body[argument.field] = operand_def()
    if schema.takes_runtime_scalars:
        body["dynamic"] = var_operand_def()
        variadic += 1
    if variadic > 1:
        body["irdl_options"] = (AttrSizedOperandSegments(as_property=True),)
    for index, returned in enumerate(schema.returns):
        field = "result" if len(schema.returns) == 1 else f"result_{index}"
        body[field] = var_result_def() if returned.type.is_list else result_def()
    for argument in schema.written:
        body[f"{argument.name}_after"] = result_def()
    cls = type(class_name(schema), (SchemaOp,), body)
    _define_later(cls)
    cls.SCHEMA, cls.HAS_SEGMENTS = schema, variadic > 1
    _CLASSES[schema.op_name] = cls
    if elementwise:
        belong("elementwise", schema.op_name)
        maps(schema.op_name)(elementwise_axes)
    return cls


def find(name: str) -> type[SchemaOp] | None:
    """Return the class of an op by its name in the IR, created from torch's schema if necessary."""
    return _CLASSES.get(name) or _define_from_torch(name)


def op_class(name: str) -> type[SchemaOp]:
    """Return the class of an op by its name.

    Raises:
        StepwellError: the name is unknown.
    """
    found = find(name)
    if found is None:
        raise StepwellError(
            f"{name} is not registered in torch",
            help="import the library that registers it before reading this program",
        )
    return found


def of_overload(overload: Any) -> type[SchemaOp]:
    """Return the class of a torch `OpOverload` (also of ExecuTorch's edge wrappers, by their
    schema).
    """
    schema = schema_of(overload)
    name = schema.name.replace("::", ".") + "." + (schema.overload_name or "default")
    return _CLASSES.get(name) or _define_once(name, overload)


LIBRARIES = {
    "quantized_decomposed": "torch.ao.quantization.fx._decomposed",
    "llama": "executorch.extension.llm.custom_ops.custom_ops",
    "torchao": "torchao.quantization",
    "dim_order_ops": "executorch.exir.passes.dim_order_ops_registry",
    "stepwell_mx": "stepwell.dialects.tosa_mxfp.operators",
    "tosa_mxfp": "executorch.backends.arm.ao_ext",
    "torch_nn": "torch.nn.modules.linear_cross_entropy",
}
"""The module that registers a namespace's operators, imported when one of them is used."""

FURTHER_LIBRARIES = {
    "quantized_decomposed": "executorch.exir.passes._quant_patterns_and_replacements",
}
"""Modules that take longer to import and register the rest of a namespace's operators."""


def torch_overload(cls: type[SchemaOp]) -> Any:
    """Return the `OpOverload` of a class.

    Raises:
        StepwellError: no loaded library registers it.
    """
    overload = overload_of(cls.SCHEMA.op_name)
    if overload is None:
        raise StepwellError(
            f"{cls.name} is not registered in torch",
            help="import the library that registers it",
        )
    return overload


def overload_of(name: str) -> Any:
    """Return the `OpOverload` of an op's name, importing its library; None if it does not exist."""
    parts = name.split(".")
    if len(parts) != 3 or parts[0].startswith("_") or not all(p.isidentifier() for p in parts):
        return None
    for libraries in (LIBRARIES, FURTHER_LIBRARIES):
        if parts[0] in libraries:
            importlib.import_module(libraries[parts[0]])
        if (loaded_overload := _loaded_overload(parts)) is not None:
            return loaded_overload
    return None


def functional_overload(target: Any, renamed: str | None = None) -> Any:
    """Return `aten.add.Tensor` for `aten.add_.Tensor` and `aten.add.out`; None without one.

    The functional overload has the same argument types, possibly under another overload name:
    `aten.pow_.Scalar` is computed by `aten.pow.Tensor_Scalar`, not by `aten.pow.Scalar`, which
    raises a number to a tensor's power.

    Args:
        target: an overload that writes to its arguments.
        renamed: the operator's functional name, if it is not the same name without `_`.
    """
    schema: Any = schema_of(target)
    namespace, name = str(schema.name).split("::")
    wanted = [(a.name, str(a.type)) for a in schema.arguments if not a.is_out]
    if len(wanted) == len(schema.arguments) - 1:
        named = overloads_of(target)
    elif name.endswith("_") and not name.endswith("__"):
        packet = getattr(getattr(torch.ops, namespace), renamed or name[:-1], None)
        same = getattr(packet, schema.overload_name or "default", None)
        # `packet.__getattr__` would create new overloads, which PyTorch's tables do not have.
        others = [] if packet is None else [getattr(packet, at) for at in packet.overloads()]
        named = [same, *others]
    else:
        return None
    for overload in named:
        if overload is None or schema_of(overload).is_mutable:
            continue
        if [(a.name, str(a.type)) for a in schema_of(overload).arguments] == wanted:
            return overload
    return None


def _loaded_overload(parts: list[str]) -> Any:
    qualified = f"{parts[0]}::{parts[1]}"
    overload = "" if parts[2] == "default" else parts[2]
    try:
        handle = getattr(getattr(getattr(torch.ops, parts[0]), parts[1]), parts[2])
    except (AttributeError, RuntimeError):
        return None
    schema = getattr(handle, "_schema", None)
    if schema is None or schema.name != qualified or schema.overload_name != overload:
        return None
    return handle


def _define_from_torch(name: str) -> type[SchemaOp] | None:
    handle = overload_of(name)
    return None if handle is None else _define_once(name, handle)


def _define_once(name: str, overload: Any) -> type[SchemaOp]:
    with _MAKING:
        return _CLASSES.get(name) or define(
            str(schema_of(overload)), is_pure(overload), is_elementwise(overload)
        )


def is_pure(overload: Any) -> bool:
    """Whether equal calls return equal results and an unused call may be removed."""
    tags = getattr(overload, "tags", ())
    seeded = torch.Tag.nondeterministic_seeded in tags
    schema = schema_of(overload)
    return not seeded and (bool(schema.returns) or schema.is_mutable)


def is_elementwise(overload: Any) -> bool:
    """Whether PyTorch's tag says that each element depends on the corresponding operand elements
    only.

    The tags of `equal`, which returns one bool, and of `rrelu`, which is random, are ignored.
    """
    if not all(str(value.type) == "Tensor" for value in schema_of(overload).returns):
        return False
    return torch.Tag.pointwise in getattr(overload, "tags", ()) and is_pure(overload)
