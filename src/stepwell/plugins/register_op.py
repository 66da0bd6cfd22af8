"""`register_op`: declare a custom operator."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from stepwell.backends.executorch.kernels import kernel_tables
from stepwell.backends.executorch.kernels.kernel_tables import register_kernel, schema_of_kernel
from stepwell.backends.executorch.kernels.signatures import matched_arguments
from stepwell.dialects.aten import interpretation
from stepwell.dialects.aten.interpretation import Meaning, register_meaning
from stepwell.dialects.aten.registry import of_overload
from stepwell.dialects.tosa import custom
from stepwell.dialects.tosa.custom import custom_of, register_custom
from stepwell.ir.diagnostics import StepwellError

if TYPE_CHECKING:
    from stepwell.ir.compat.torch.torch_private import OpOverload


def register_op(
    overload: OpOverload,
    *,
    meaning: Callable[..., Any] | None = None,
    shape: Callable[..., Any] | None = None,
    kernel: str | None = None,
    library: str | None = None,
    tosa: str | None = None,
    tosa_attributes: tuple[Callable[..., bytes], Callable[[bytes], Any]] | None = None,
) -> None:
    """Register a custom operator for import, verification, interpretation and emission.

    Its arguments, results and side effects (the arguments that it modifies) come from its schema.
    An operator that PyTorch can run needs no registration if it has a shape function for tensors
    without data (`torch.library.register_fake`) and a kernel with its name and `.out`. Call this
    once, before programs with the operator are imported; a plug-in may call it.

    Args:
        overload: the operator, `torch.ops.library.name.default`.
        meaning: a function that the interpreter calls instead of the operator, with the same
            arguments, results and modified arguments.
        shape: a function that is called instead of the operator for result types, on tensors
            without data.
        kernel: the kernel of ExecuTorch's runtime that computes the operator, by name
            (`aten::neg.out`), or by its complete schema if stepwell's tables do not contain it
            (`library::name.out(Tensor x, *, Tensor(a!) out) -> Tensor(a!)`).
        library: a module that registers the kernel with this machine's runtime on import. It is
            imported before a program that calls the kernel is loaded.
        tosa: the operator's name in TOSA's CUSTOM, `domain::operator`; without one, TOSA targets
            reject the operator.
        tosa_attributes: two functions, from a mapping of the arguments that are not tensors to
            CUSTOM's bytes, and back; by default JSON.

    Raises:
        StepwellError: the overload has no schema or is registered already, the kernel does not take
            the operator's arguments, or the TOSA name is malformed.
    """
    if not hasattr(getattr(overload, "_schema", None), "overload_name"):
        raise StepwellError(
            f"{overload!r} is not an operator with a schema",
            help="pass an overload: torch.ops.library.name.default",
        )
    cls = of_overload(overload)
    if library is not None and kernel is None:
        raise StepwellError(f"{cls.name}: library= needs kernel=, the kernel that it registers")
    if kernel is not None:
        schema = schema_of_kernel(kernel)
        if matched_arguments(cls.SCHEMA, schema) is None:
            raise StepwellError(
                f"{cls.name} and kernel {kernel} do not take the same arguments",
                help=f"the operator is {cls.SCHEMA.text}, the kernel {schema.text}",
            )
        register_kernel(cls.name, schema, library)
    if tosa is not None:
        register_custom(cls, tosa, tosa_attributes)
    elif tosa_attributes is not None:
        raise StepwellError(
            f"{cls.name}: tosa_attributes= needs tosa=, the name of the CUSTOM operator"
        )
    if meaning is not None or shape is not None:
        register_meaning(cls, Meaning(meaning, shape))


def entries_of(
    overload: OpOverload, has_kernel: bool
) -> Iterator[tuple[str, str, dict[Any, Any], Any]]:
    """Yield (kind, name, table, key) of everything that `register_op` registered; names may be
    empty.
    """
    cls = of_overload(overload)
    yield "operators", cls.name, interpretation._REGISTERED, cls.name
    if has_kernel:
        yield "kernels", cls.name, kernel_tables._CHOSEN, cls.name
    if (found := custom_of(cls)) is not None:
        key = found.domain, found.operator
        yield "TOSA operators", "::".join(key), custom._BY_NAME, key
        yield "TOSA operators", "", custom._BY_OP, found.op
