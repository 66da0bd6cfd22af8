"""`register_op`: what stepwell needs to know of an operator that somebody wrote."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

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
    """Make a custom operator a citizen: it is imported, verified, interpreted and called in a .pte.

    Its arguments, results and effects (what it writes to) come from its schema. An operator that
    torch can run, with a shape function for tensors without data (`torch.library.register_fake`)
    and a kernel named after it with `.out`, needs no registration. Call this once, before the
    programs that use it are imported; a plug-in may.

    Args:
        overload: the operator, `torch.ops.library.name.default`.
        meaning: what the interpreter calls instead of the operator, with the same arguments. It
            returns what the operator returns, and writes to what the operator writes.
        shape: what is asked for result types instead of the operator, on tensors without data.
        kernel: the kernel of ExecuTorch's runtime that computes it, by name (`aten::neg.out`), or,
            where stepwell's tables do not have it, by its whole schema
            (`library::name.out(Tensor x, *, Tensor(a!) out) -> Tensor(a!)`).
        library: a module that registers the kernel with this machine's runtime when it is imported,
            which is done before a program that calls it is loaded here.
        tosa: what TOSA's CUSTOM calls it, `domain::operator`; TOSA targets refuse it without one.
        tosa_attributes: two functions, from a mapping of the arguments that are no tensors to
            CUSTOM's bytes, and back; JSON where nothing is said.

    Raises:
        StepwellError: it is no operator with a schema, it has been registered before, the kernel
            does not take the operator's arguments, or TOSA's name is none.
    """
    from stepwell.backends.executorch.kernels.kernel_tables import register_kernel, schema_of_kernel
    from stepwell.backends.executorch.kernels.signatures import matched_arguments
    from stepwell.dialects.aten.interpretation import Meaning, register_meaning
    from stepwell.dialects.aten.registry import of_overload
    from stepwell.dialects.tosa.custom import register_custom

    if not hasattr(getattr(overload, "_schema", None), "overload_name"):
        raise StepwellError(
            f"{overload!r} is no operator with a schema",
            help="give an overload: torch.ops.library.name.default",
        )
    cls = of_overload(overload)
    if library is not None and kernel is None:
        raise StepwellError(f"{cls.name}: a library is given, and no kernel that it registers")
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
        raise StepwellError(f"{cls.name}: attributes of a CUSTOM are given, and no name of it")
    if meaning is not None or shape is not None:
        register_meaning(cls, Meaning(meaning, shape))
