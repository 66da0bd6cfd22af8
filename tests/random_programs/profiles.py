"""What random programs are drawn from, and the targets that they are lowered to."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from .drawing import Profile
from .oracle import TOSA_COARSE


def weights(text: str) -> dict[str, float]:
    """Families and how often each is drawn."""
    return {family: float(often) for family, _, often in (w.partition("=") for w in text.split())}


FLOATS = Profile()
TOSA = Profile(
    dtypes="f32 f32 f32 f32 f32 f32 f32 f16 i32 i8 i64 boolean", special=0.03, varying=0.05
)
INTEGERS = Profile(
    dtypes="i32 i32 i32 i8 i8 i16 boolean i64 u8",
    families=weights(
        "views=2 padding=1 arithmetic=1 compared=1 masked=1 whole=3 indexing=1 "
        "reductions=1 mutation=0.5 dtypes=0.3"
    ),
    varying=0.03,
)
QUANTIZED = Profile(
    families=weights(
        "views=1.5 padding=0.7 pointwise=1 arithmetic=1 convolutions=3 pools=1.5 norms=1 "
        "products=1.5 attention=0.3 softmax=0.5 reductions=0.5 interpolation=0.3"
    ),
    ranks=(2, 3, 4, 4, 4, 4),
    special=0.0,
    varying=0.0,
    length=(1, 5),
    plain=True,
    quantized=("static",),
)
NO_SOFTMAX = replace(QUANTIZED, families=QUANTIZED.families | dict(softmax=0, attention=0))
"""For an Ethos-U, whose softmax is right within one unit."""
NETS = replace(QUANTIZED, families=dict(convolutions=3, pools=1, pointwise=2, arithmetic=0.5))
"""Convolutional networks, which static quantization is for."""
MX = Profile(
    dtypes="f32 f32 f32 f32 f32 f32 f32 f16 bf16",
    families=weights(
        "products=6 attention=3 convolutions=2 views=2 pointwise=1 arithmetic=1 norms=0.7 "
        "softmax=0.5 reductions=0.5 pools=0.3"
    ),
    ranks=(1, 2, 2, 3, 3, 4),
    special=0.05,
    varying=0.0,
    payloads=("fp8e4m3", "fp8e5m2", "fp6e2m3", "fp6e3m2", "fp4e2m1", "mxint8"),
)


LAYERS = weights(
    "convolutions=0.5 norms=0.5 products=0.5 attention=0.3 pointwise=0.7 softmax=0.2 "
    "arithmetic=0.4 reductions=0.2 views=0.4 padding=0.2 pools=0.2"
)
STATE = Profile(
    families=dict(state=3, alias=2, sizes=2, flow=0.7, control=0.3, recurrence=0.2, **LAYERS),
    dtypes="f32",
    ranks=(3, 3, 4),
    special=0.0,
    varying=0.5,
    length=(1, 5),
    methods=(1, 1, 2, 3),
)
"""Several calls, of one to three methods that share buffers."""
STATE_TOSA = replace(STATE, varying=0.35, methods=(1, 1, 2))
STATE_INTEGERS = replace(
    STATE,
    families=dict(state=2, alias=0.7, sizes=1, **{name: 2 * w for name, w in LAYERS.items()}),
    varying=0.0,
    plain=True,
    methods=(1,),
    quantized=("static",),
)
STATE_XNNPACK_INTEGERS = replace(
    STATE_INTEGERS,
    families=STATE_INTEGERS.families | dict(modules=3),
    varying=0.35,
    quantized=("static", "static", "dynamic", "8da4w"),
)

MEMORY = Profile(families=dict(memory=1), length=(1, 4), layouts=True)
"""Reads and writes of inputs in any layout (`tests/calling_convention/memory.py` runs them)."""


@dataclass(frozen=True)
class Lane:
    """A target, what its programs are drawn from, and how they come to it."""

    target: str
    profile: Profile
    quantizer: str = ""
    coarse: Mapping[str, float] = field(default_factory=dict[str, float])
    """Operators that are right to within units of a number this large."""
    checked: bool = False
    """Whether `check` runs as well: every application of every rewrite within its bound."""


MX_TARGET = (
    "tosa-1.1+fp+int64+mxfp+mxfp_conv+mx_common+mx_fp8e4m3+mx_fp8e5m2+mx_fp6e2m3+mx_fp6e3m2"
    "+mx_fp4e2m1+mx_int8"
)
STATEFUL_TOSA = "tosa-1.1+fp+int64+shape+variable+controlflow"
PROFILES: dict[str, dict[str, Lane]] = {
    "functional": {
        "program": Lane("", FLOATS),
        "xnnpack": Lane("xnnpack", FLOATS),
        "tosa-1.0+fp": Lane("tosa-1.0+fp", TOSA, coarse=TOSA_COARSE),
        "tosa-1.1+fp": Lane("tosa-1.1+fp", TOSA, coarse=TOSA_COARSE),
        "tosa-1.0+int": Lane("tosa-1.0+int", INTEGERS, coarse=TOSA_COARSE),
        "tosa-1.0+int, int8": Lane("tosa-1.0+int", QUANTIZED, "tosa"),
        "tosa-1.1+fp, mxfp": Lane(MX_TARGET, MX, "mxfp", TOSA_COARSE),
        "xnnpack, int8": Lane("xnnpack", QUANTIZED, "xnnpack"),
        "cortex-m0": Lane("cortex-m0", QUANTIZED, "cortex-m"),
        "cortex-m4": Lane("cortex-m4", QUANTIZED, "cortex-m"),
        "cortex-m55": Lane("cortex-m55", QUANTIZED, "cortex-m"),
        "c": Lane("c", FLOATS),
        "c, int8": Lane("c", QUANTIZED, "cortex-m"),
        "ethos-u55-128": Lane("ethos-u55-128", NO_SOFTMAX, "cortex-m"),
        "ethos-u85-256": Lane("ethos-u85-256", NO_SOFTMAX, "cortex-m"),
    },
    "stateful": {
        "program": Lane("", STATE),
        "xnnpack": Lane("xnnpack", STATE),
        "xnnpack, int8": Lane("xnnpack", STATE_XNNPACK_INTEGERS, "xnnpack"),
        "cortex-m55": Lane("cortex-m55", STATE_INTEGERS, "cortex-m"),
        "c": Lane("c", STATE),
        "tosa fp": Lane(STATEFUL_TOSA, STATE_TOSA, coarse=TOSA_COARSE),
        "tosa int": Lane("tosa-1.0+int+variable+controlflow", STATE_INTEGERS, "tosa"),
    },
    "checked": {
        "xnnpack, int8": Lane("xnnpack", NETS, "xnnpack", checked=True),
        "cortex-m55": Lane("cortex-m55", NETS, "cortex-m", checked=True),
        "tosa-1.0+fp+int": Lane("tosa-1.0+fp+int", NETS, "tosa", checked=True),
    },
}
"""By the name of a profile and of a target.

`functional` programs are called once, `stateful` ones several times; `checked` ones are small
quantized networks whose lowering is checked pass by pass.
"""


def lane_of(name: str) -> Lane:
    """The lane `PROFILE: TARGET`, or a target of the functional profile."""
    profile, _, target = name.rpartition(": ")
    return PROFILES[profile or "functional"][target]
