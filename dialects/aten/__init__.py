"""ATen operators, declared from PyTorch's own schemas.

A class is named after its overload: `aten.mul.Scalar` is `MulScalar`, `aten.conv2d.default` is
`Conv2dDefault`, `quantized_decomposed.quantize_per_tensor.default` is
`QuantizedDecomposedQuantizePerTensorDefault`.

    from stepwell.dialects import aten

    scaled = aten.MulScalar.make(x, 0.5)
"""

from xdsl.ir import Dialect

from stepwell.dialects.aten import axes as axes
from stepwell.dialects.aten import families as families
from stepwell.dialects.aten import inference as inference
from stepwell.dialects.aten import interpretation as interpretation
from stepwell.dialects.aten import level as level
from stepwell.dialects.aten.attributes import ComplexArg, Dynamic, NoneArg
from stepwell.dialects.aten.operators import *  # noqa: F403

Aten = Dialect("aten", [], [NoneArg, Dynamic, ComplexArg])
"""The attributes of schema ops; the op classes are found by name (`registry.find`)."""
