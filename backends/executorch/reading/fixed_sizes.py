"""Give the tensors of a `.pte` with dynamic sizes the sizes for which it is read."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from stepwell.backends.executorch.container import (
    Container,
    Dynamism,
    Method,
    TensorValue,
    Value,
)
from stepwell.ir.diagnostics import StepwellError

InputSizes = Mapping[str, Sequence[Sequence[int]]]
"""By method, the sizes of each tensor input."""


def at_largest(container: Container) -> Container:
    """Return a container with the same instructions, in which all tensors have their largest sizes.

    A `.pte` states how large a tensor may be, but not which of its axes are dynamic or related.
    """

    def fixed(value: Value) -> Value:
        if isinstance(value, TensorValue) and value.dynamism is Dynamism.BOUNDED:
            return replace(value, dynamism=Dynamism.STATIC)
        return value

    methods = tuple(
        replace(method, values=tuple(map(fixed, method.values))) for method in container.methods
    )
    return replace(container, methods=methods)


def fixed_inputs(method: Method, sizes: Sequence[Sequence[int]]) -> dict[int, tuple[int, ...]]:
    """Return the sizes of the method's tensor inputs by value.

    Raises:
        StepwellError: an input does not take the sizes.
    """
    stated = [(index, method.values[index]) for index in method.inputs]
    inputs = [(index, value) for index, value in stated if isinstance(value, TensorValue)]
    where = f"method {method.name}"
    if len(inputs) != len(sizes):
        raise StepwellError(f"{len(sizes)} sizes for {len(inputs)} tensor inputs", where)
    for number, ((_, value), given) in enumerate(zip(inputs, sizes, strict=True)):
        is_static, most = value.dynamism is Dynamism.STATIC, value.sizes
        fits = all(0 <= size <= limit for size, limit in zip(given, most, strict=False))
        if len(given) != len(most) or not fits or (is_static and tuple(given) != most):
            limit = "" if is_static else "at most "
            fact = f"tensor input {number} takes sizes of {limit}{list(most)}, not {list(given)}"
            raise StepwellError(fact, where)
    return {index: tuple(given) for (index, _), given in zip(inputs, sizes, strict=True)}
