"""Words that the near-misses of the quantized rewrites are written with."""

import pytest


class Words:
    """Types and lines of quantized programs."""

    @staticmethod
    def real(shape: str) -> str:
        """A float tensor's type; `shape` is `2x4`."""
        return f"tensor<{shape}xf32>"

    @staticmethod
    def raw(shape: str, storage: str = "i8") -> str:
        """An integer tensor's type."""
        return f"tensor<{shape}x{storage.replace('u', 'ui')}>"

    @staticmethod
    def typed(shape: str, numbers: str = "0.5", storage: str = "i8") -> str:
        """A quantized tensor's type; `numbers` are `scale:zero`, or `axis, {scales}` behind `:`."""
        between = "" if numbers.startswith(":") else ", "
        return f"tensor<{shape}x!quant.uniform<{storage}:f32{between}{numbers}>>"

    def dcast(self, name: str, shape: str, numbers: str = "0.5", storage: str = "i8") -> str:
        """`%<name>r`, the reals of `%<name>`."""
        return (
            f"%{name}r = quant.dcast %{name} : {self.typed(shape, numbers, storage)} "
            f"to {self.real(shape)}"
        )

    def qcast(
        self, value: str, shape: str, numbers: str = "1.0", storage: str = "i8", name: str = "y"
    ) -> str:
        """`%y`, the quantization of `%<value>`."""
        return (
            f"%{name} = quant.qcast %{value} : {self.real(shape)} "
            f"to {self.typed(shape, numbers, storage)}"
        )

    def weight(self, name: str, shape: str, numbers: str = "0.25", storage: str = "i8") -> str:
        """A stored weight `%<name>s`, typed `%<name>` and as reals `%<name>r`."""
        return "\n  ".join(
            (
                f'%{name}s = stepwell.weight <"{name}"> "parameter" : {self.raw(shape, storage)}',
                f"%{name} = quant.scast %{name}s : {self.raw(shape, storage)} "
                f"to {self.typed(shape, numbers, storage)}",
                self.dcast(name, shape, numbers, storage),
            )
        )

    def call(self, name: str, op: str, arguments: str, shapes: tuple[str, ...], made: str) -> str:
        """`%<name> = <op>(<arguments>)` over floats."""
        taken = ", ".join(self.real(shape) for shape in shapes)
        return f"%{name} = {op}({arguments}) : ({taken}) -> {self.real(made)}"


@pytest.fixture
def words() -> Words:
    return Words()
