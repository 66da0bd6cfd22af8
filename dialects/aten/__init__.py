"""ATen operators, declared from PyTorch's own schemas.

A class is named after its overload: `aten.mul.Scalar` is `MulScalar`, `aten.conv2d.default` is
`Conv2dDefault`, `quantized_decomposed.quantize_per_tensor.default` is
`QuantizedDecomposedQuantizePerTensorDefault`. It is imported on first use:

    from stepwell.dialects import aten

    scaled = aten.MulScalar.make(x, 0.5)
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from xdsl.ir import Dialect

from stepwell.dialects.aten import axes as axes
from stepwell.dialects.aten import families as families
from stepwell.dialects.aten import inference as inference
from stepwell.dialects.aten import interpretation as interpretation
from stepwell.dialects.aten import level as level
from stepwell.dialects.aten.attributes import ComplexArg, Dynamic, NoneArg
from stepwell.dialects.aten.generated import HOME

Aten = Dialect("aten", [], [NoneArg, Dynamic, ComplexArg])
"""The attributes of schema ops; the op classes are found by name (`registry.find`)."""


def __getattr__(name: str) -> Any:
    home = HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'stepwell.dialects.aten' has no attribute {name!r}")
    found = getattr(importlib.import_module(f"stepwell.dialects.aten.generated.{home}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *HOME})


if TYPE_CHECKING:
    from stepwell.dialects.aten.generated.aten_a import *  # noqa: F403
    from stepwell.dialects.aten.generated.aten_b import *  # noqa: F403
    from stepwell.dialects.aten.generated.aten_c import *  # noqa: F403
    from stepwell.dialects.aten.generated.aten_d import *  # noqa: F403
    from stepwell.dialects.aten.generated.aten_e import *  # noqa: F403
    from stepwell.dialects.aten.generated.aten_f import *  # noqa: F403
    from stepwell.dialects.aten.generated.aten_g import *  # noqa: F403
    from stepwell.dialects.aten.generated.aten_h import *  # noqa: F403
    from stepwell.dialects.aten.generated.aten_i import *  # noqa: F403
    from stepwell.dialects.aten.generated.aten_k import *  # noqa: F403
    from stepwell.dialects.aten.generated.aten_l import *  # noqa: F403
    from stepwell.dialects.aten.generated.aten_m import *  # noqa: F403
    from stepwell.dialects.aten.generated.aten_n import *  # noqa: F403
    from stepwell.dialects.aten.generated.aten_o import *  # noqa: F403
    from stepwell.dialects.aten.generated.aten_p import *  # noqa: F403
    from stepwell.dialects.aten.generated.aten_r import *  # noqa: F403
    from stepwell.dialects.aten.generated.aten_s import *  # noqa: F403
    from stepwell.dialects.aten.generated.aten_t import *  # noqa: F403
    from stepwell.dialects.aten.generated.aten_u import *  # noqa: F403
    from stepwell.dialects.aten.generated.aten_v import *  # noqa: F403
    from stepwell.dialects.aten.generated.aten_w import *  # noqa: F403
    from stepwell.dialects.aten.generated.aten_x import *  # noqa: F403
    from stepwell.dialects.aten.generated.aten_z import *  # noqa: F403
    from stepwell.dialects.aten.generated.dim_order_ops import *  # noqa: F403
    from stepwell.dialects.aten.generated.quantized_decomposed import *  # noqa: F403
    from stepwell.dialects.aten.generated.torchao import *  # noqa: F403
