"""Code generation for operators without scalar semantics: windows, sorting, some reductions.

Lines are C with `{name}` for numbers known at compile time. Tensors are `x0`, `x1` … and `y0`, `y1`
…, accessed by the strides of their axes, so that any dim order works.
"""

from collections.abc import Callable, Sequence
from math import inf, prod
from typing import TypeVar

from xdsl.ir import SSAValue

from stepwell.backends.cortex_m.c.elements import write_term
from stepwell.backends.cortex_m.c.operators import KernelOperator
from stepwell.backends.cortex_m.c.terms import C_KIND, constant, end_of, kind_of, loops
from stepwell.backends.cortex_m.c.writer import MethodWriter
from stepwell.backends.executorch.container import strides
from stepwell.ir.axes.forms import elementwise, mapped, reduced
from stepwell.ir.declared.scalar_semantics import (
    Term,
    absolute,
    argument,
    average,
    element_of,
    equal,
    greatest,
    least,
    log,
    maximum,
    minimum,
    not_,
    sqrt,
    total,
)
from stepwell.ir.diagnostics import UnsupportedError
from stepwell.ir.types import element

KernelWriter = Callable[[MethodWriter, KernelOperator], None]
KERNEL_WRITERS: dict[str, KernelWriter] = {}
"""Op's name → the writer of its calls."""
_F = TypeVar("_F", bound=KernelWriter)


def writes(*names: str) -> Callable[[_F], _F]:
    """Register a writer of calls of these ATen operators."""

    def register(function: _F) -> _F:
        KERNEL_WRITERS.update({f"aten.{name}": function for name in names})
        return function

    return register


def index_of(operator: KernelOperator, name: str) -> int | None:
    """Return the index of an argument's tensor among the method's values; None if it is none."""
    arg = operator.op.arg(name)
    if not isinstance(arg, SSAValue):
        return None
    return operator.place(arg)


def _steps(w: MethodWriter, index: int) -> tuple[int, ...]:
    value = w.tensor(index)
    return strides(value.sizes, value.dim_order)


def index_at(w: MethodWriter, index: int, variables: Sequence[str]) -> str:
    """Return the C index expression of a tensor's element, from an index along each axis."""
    steps = zip(variables, _steps(w, index), strict=True)
    terms = [name if step == 1 else f"({name}) * {step}" for name, step in steps if name != "0"]
    return " + ".join(terms) or "0"


def _pair(numbers: Sequence[int], rank: int) -> list[int]:
    return list(numbers) * rank if len(numbers) == 1 else list(numbers)


# -- products over windows -----------------------------------------------------------------------


@writes("convolution.default")
def _convolution(w: MethodWriter, found: KernelOperator) -> None:
    op, result = found.op, found.results[0]
    image, weight = found.operands[:2]
    made, given, filter_ = (w.tensor(i).sizes for i in (result, image, weight))
    spatial = len(filter_) - 2
    if len(given) != spatial + 2:
        raise UnsupportedError("images without a batch are not supported")
    stride, padding, dilation = (
        _pair(op.arg(name), spatial) for name in ("stride", "padding", "dilation")
    )
    groups, is_transposed = op.arg("groups"), bool(op.arg("transposed"))
    bias = index_of(found, "bias")
    kind = C_KIND[kind_of(element(op.results[0].type))]
    axes = range(spatial)
    out_of_group, in_of_group = made[1] // groups, given[1] // groups
    places = [f"p{a}" for a in axes]
    channel = f"(o / {out_of_group}) * {in_of_group} + c" if groups > 1 else "c"
    if in_of_group == 1:
        channel = f"o / {out_of_group}" if groups > 1 else "0"
    taps = [f"k{a}" for a in axes]
    filter_at = (
        [channel, f"o % {out_of_group}", *taps] if is_transposed else ["o", "c", *taps]
    )  # fmt: skip
    at: list[str] = []
    for a in axes:
        if is_transposed:
            at.append(f"const int32_t q{a} = o{a} + {padding[a]} - (k{a} * {dilation[a]});")
            at.append(f"const int32_t p{a} = q{a} / {stride[a]};")
        else:
            at.append(f"const int32_t p{a} = (o{a} * {stride[a]}) - {padding[a]} + "
                      f"(k{a} * {dilation[a]});")  # fmt: skip
    start = [f"(q{a} >= 0) && ((q{a} % {stride[a]}) == 0)" for a in axes] if is_transposed else []
    inside = [f"({p} >= 0) && ({p} < {given[2 + a]})" for a, p in zip(axes, places, strict=True)]
    read = f"x0[{index_at(w, image, ['n', channel, *places])}]"
    product = f"sum += {read} * x1[{index_at(w, weight, filter_at)}];"
    inner = [*at, f"if ({' && '.join([*start, *inside])}) {{", f"    {product}", "}"]
    first = constant(0, kind_of(element(op.results[0].type))) if bias is None else "x2[o]"
    body = [
        f"{kind} sum = {first};",
        *loops(
            {"c": in_of_group, **{f"k{a}": filter_[2 + a] for a in axes}}, inner
        ),
        f"y0[{index_at(w, result, ['n', 'o', *(f'o{a}' for a in axes)])}] = sum;",
    ]  # fmt: skip
    sizes = {"n": made[0], "o": made[1], **{f"o{a}": made[2 + a] for a in axes}}
    reads = [("x0", image), ("x1", weight), *([] if bias is None else [("x2", bias)])]
    w.function(loops(sizes, body), reads, [("y0", result)])


@writes("max_pool2d_with_indices.default", "avg_pool2d.default")
def _pool(w: MethodWriter, found: KernelOperator) -> None:
    op, image, result = found.op, found.operands[0], found.results[0]
    given, made = w.tensor(image).sizes, w.tensor(result).sizes
    lead, rank = [f"n{a}" for a in range(len(made) - 2)], len(made)
    kernel = _pair(op.arg("kernel_size"), 2)
    stride, padding = _pair(op.arg("stride") or kernel, 2), _pair(op.arg("padding"), 2)
    is_greatest = "max" in op.name
    dilation = _pair(op.arg("dilation"), 2) if is_greatest else [1, 1]
    type_ = element(op.results[0].type)
    kind, of = C_KIND[kind_of(type_)], kind_of(type_)
    height, width = given[-2:]
    at = [f"const int32_t p{a} = (o{a} * {stride[a]}) - {padding[a]} + (k{a} * {dilation[a]});"
          for a in range(2)]  # fmt: skip
    inside = f"(p0 >= 0) && (p0 < {height}) && (p1 >= 0) && (p1 < {width})"
    read = f"x0[{index_at(w, image, [*lead, 'p0', 'p1'])}]"
    place = index_at(w, result, [*lead, "o0", "o1"])
    needs = {f"{of}_numbers"}
    writes = [("y0", result)]
    if is_greatest:
        is_placed = w.is_read(found.results[1])
        first = [f"{kind} best = {end_of(of)};", *(["int64_t where = 0;"] if is_placed else [])]
        where = [f"        where = (int64_t)(p0 * {width} + p1);"] if is_placed else []
        nan = " || (value != value)" if of in ("float", "double") else ""
        step = [f"    const {kind} value = {read};", f"    if ((value > best){nan}) {{"]
        step += ["        best = value;", *where, "    }"]
        last = [f"y0[{place}] = ({w.c_element(result)})best;"]
        if is_placed:
            writes.append(("y1", found.results[1]))
            last.append(f"y1[{index_at(w, found.results[1], [*lead, 'o0', 'o1'])}] = where;")
    else:
        override = op.arg("divisor_override")
        counts = bool(op.arg("count_include_pad"))
        first = [f"{kind} sum = {constant(0, of)};", "int32_t count = 0;"]
        step = [f"    sum += {read};", *([] if counts else ["    count++;"])]
        bounds = [f"(p{a} < {given[rank - 2 + a]} + {padding[a]})" for a in range(2)]
        if counts:
            at = [*at, f"count += ({' && '.join(bounds)}) ? 1 : 0;"]
        divisor = f"({kind})count" if override is None else constant(override, of)
        last = [
            *(["(void)count;"] if override is not None else []),
            f"y0[{place}] = sum / {divisor};",
        ]
    windows = loops({"k0": kernel[0], "k1": kernel[1]}, [*at, f"if ({inside}) {{", *step, "}"])
    sizes = {**dict(zip(lead, made, strict=False)), "o0": made[-2], "o1": made[-1]}
    w.function(loops(sizes, [*first, *windows, *last]), [("x0", image)], writes, needs)


@writes("_adaptive_avg_pool2d.default")
def _adaptive(w: MethodWriter, found: KernelOperator) -> None:
    """Write means over windows that divide the image evenly."""
    image, result = found.operands[0], found.results[0]
    given, made = w.tensor(image).sizes, w.tensor(result).sizes
    lead = [f"n{a}" for a in range(len(made) - 2)]
    of = kind_of(element(found.op.results[0].type))
    ends = [
        line
        for a, (size, count) in enumerate(zip(given[-2:], made[-2:], strict=True))
        for line in (f"const int32_t b{a} = (o{a} * {size}) / {count};",
                     f"const int32_t e{a} = (((o{a} + 1) * {size}) + {count - 1}) / {count};")
    ]  # fmt: skip
    body = [
        *ends, f"{C_KIND[of]} sum = 0;",
        "for (int32_t p0 = b0; p0 < e0; p0++) {", "    for (int32_t p1 = b1; p1 < e1; p1++) {",
        f"        sum += x0[{index_at(w, image, [*lead, 'p0', 'p1'])}];", "    }", "}",
        f"y0[{index_at(w, result, [*lead, 'o0', 'o1'])}] = "
        f"sum / ({C_KIND[of]})((e0 - b0) * (e1 - b1));",
    ]  # fmt: skip
    sizes = {**dict(zip(lead, made, strict=False)), "o0": made[-2], "o1": made[-1]}
    w.function(loops(sizes, body), [("x0", image)], [("y0", result)])


@writes("upsample_bilinear2d.vec", "upsample_bilinear2d.default")
def _bilinear(w: MethodWriter, found: KernelOperator) -> None:
    op, image, result = found.op, found.operands[0], found.results[0]
    given, made = w.tensor(image).sizes, w.tensor(result).sizes
    factors = op.arg("scale_factors") if "scale_factors" in op.SCHEMA.by_name else (
        op.arg("scales_h"), op.arg("scales_w")
    )  # fmt: skip
    scales: Sequence[float | None] = factors or (None, None)
    lines: list[str] = []
    for a in range(2):
        size, wanted = given[2 + a], made[2 + a]
        if op.arg("align_corners"):
            scale = (size - 1) / (wanted - 1) if wanted > 1 else 0.0
            place = f"(float)o{a} * {constant(scale, 'float')}"
        else:
            factor = scales[a]
            scale = 1.0 / factor if factor else size / wanted
            place = f"((float)o{a} + 0.5f) * {constant(scale, 'float')} - 0.5f"
        lines += [
            f"const float r{a} = {place};",
            f"const float s{a} = (r{a} > 0.0f) ? r{a} : 0.0f;",
            f"const int32_t b{a} = ((int32_t)s{a} < {size - 1}) ? (int32_t)s{a} : {size - 1};",
            f"const int32_t e{a} = (b{a} < {size - 1}) ? (b{a} + 1) : b{a};",
            f"const float u{a} = s{a} - (float)b{a};",
        ]

    def read(one: str, other: str) -> str:
        return f"x0[{index_at(w, image, ['n', 'c', one, other])}]"

    def row(at: str) -> str:
        return f"((1.0f - u1) * {read(at, 'b1')} + u1 * {read(at, 'e1')})"

    value = f"(1.0f - u0) * {row('b0')} + u0 * {row('e0')}"
    lines.append(f"y0[{index_at(w, result, ['n', 'c', 'o0', 'o1'])}] = {value};")
    sizes: dict[str, int] = dict(zip(("n", "c", "o0", "o1"), made, strict=True))
    w.function(loops(sizes, lines), [("x0", image)], [("y0", result)])


# -- functions of the C library, and reductions without an axis map ------------------------------

_BITS = {f"bitwise_{name}": f"{name}_" if name != "xor" else name for name in ("and", "or", "xor")}


@writes("isinf.default", "logit.default")
def _isinf_or_logit(w: MethodWriter, found: KernelOperator) -> None:
    x = element_of(found.op.operands[0])
    term = equal(absolute(x), inf)
    if found.op.name == "aten.logit.default":
        eps = found.op.arg("eps")
        x = x if eps is None else minimum(maximum(x, eps), 1.0 - eps)
        term = log(x / (1.0 - x))
    write_term(w, found, term, elementwise(found.op))


@writes("asinh.default", "acosh.default", "atanh.default", "atan2.default")
@writes(*(f"{name}.{form}" for name in (*_BITS, "fmod") for form in ("Tensor", "Scalar")))
def _own_function(w: MethodWriter, found: KernelOperator) -> None:
    name = found.op.name.split(".")[1]
    names = [a.name for a in found.op.SCHEMA.arguments][:2]
    term = Term(_BITS.get(name, name), tuple(argument(found.op, each) for each in names))
    write_term(w, found, term, elementwise(found.op))


@writes("var.correction", "var.dim", "var_mean.correction", "any.dim", "any.dims", "any.default",
         "all.dim", "all.dims", "all.default", "linalg_vector_norm.default", "max.default",
         "min.default", "mean.default", "sum.default")  # fmt: skip
def _reduction(w: MethodWriter, found: KernelOperator) -> None:
    op = found.op
    name, sizes = op.name.split(".")[1], w.tensor(found.operands[0]).sizes
    has = op.SCHEMA.by_name
    dim = op.arg("dim") if "dim" in has else None
    rank = len(sizes)
    axes = [dim] if isinstance(dim, int) else list(dim or range(rank))
    axes = [axis % rank for axis in axes] if rank else []
    keeps = bool(op.arg("keepdim")) if "keepdim" in has else False
    links = mapped(op, reduced(rank, axes, keeps))
    x = element_of(op.operands[0])
    mean = average(x)
    terms = [mean]
    match name:
        case "any":
            terms = [greatest(not_(equal(x, 0)))]
        case "all":
            terms = [least(not_(equal(x, 0)))]
        case "max" | "min":
            terms = [(greatest if name == "max" else least)(x)]
        case "sum":
            terms = [total(x)]
        case "linalg_vector_norm":
            if op.arg("ord") != 2:
                raise UnsupportedError("only norms of order 2 are supported")
            terms = [sqrt(total(x * x))]
        case "var" | "var_mean":
            arg = op.arg("correction") if "correction" in has else float(op.arg("unbiased"))
            rest = prod(sizes[a] for a in axes) - (1.0 if arg is None else arg)
            terms = [total((x - mean) * (x - mean)) / float(max(rest, 0)), mean]
        case _:
            pass
    for number, (term, index) in enumerate(zip(terms, found.results, strict=False)):
        if w.is_read(index):
            write_term(w, found, term, links, number)


# -- along one axis ------------------------------------------------------------------------------


@writes("argmax.default", "argmin.default", "max.dim", "min.dim")
def _extremum(w: MethodWriter, found: KernelOperator) -> None:
    """Write the maximum along an axis or all axes, and its first index; for `argmax` only the
    index.
    """
    op, source, places = found.op, found.operands[0], found.results[-1]
    sizes, dim = w.tensor(source).sizes, op.arg("dim")
    if not sizes and dim is not None:
        raise UnsupportedError("tensors of rank 0 are not supported")
    rank = len(sizes)
    axes = [f"i{a}" for a in range(rank)]
    folded = list(range(rank)) if dim is None else [dim % rank]
    number = "0"
    for a in folded:
        number = axes[a] if number == "0" else f"({number}) * {sizes[a]} + {axes[a]}"
    kind = C_KIND[kind_of(element(op.operands[0].type))]
    sign = ">" if "max" in op.name else "<"
    nan = " || ((value != value) && (best == best))" if kind in ("float", "double") else ""
    first = ["0" if a in folded else axes[a] for a in range(rank)]
    kept = [place for a, place in enumerate(first) if op.arg("keepdim") or a not in folded]
    body = [
        f"{kind} best = x0[{index_at(w, source, first)}];",
        "int64_t where = 0;",
        *loops({axes[a]: sizes[a] for a in folded}, [
            f"const {kind} value = x0[{index_at(w, source, axes)}];",
            f"if ((value {sign} best){nan}) {{", "    best = value;", f"    where = {number};", "}",
        ]),
    ]  # fmt: skip
    made: list[tuple[str, int]] = []
    for result in found.results[:-1]:
        made.append(("y0", result))
        body.append(f"y0[{index_at(w, result, kept)}] = ({w.c_element(result)})best;")
    if not made or w.is_read(places):
        made.append((f"y{len(made)}", places))
        at = index_at(w, places, kept if len(kept) == len(w.tensor(places).sizes) else [])
        body.append(f"{made[-1][0]}[{at}] = where;")
    else:
        body.append("(void)where;")
    outer = {axes[a]: sizes[a] for a in range(rank) if a not in folded}
    w.function(loops(outer, body), [("x0", source)], made)


@writes("cumsum.default")
def _cumsum(w: MethodWriter, found: KernelOperator) -> None:
    op, source, result = found.op, found.operands[0], found.results[0]
    sizes = w.tensor(source).sizes
    axis = op.arg("dim") % max(len(sizes), 1)
    axes = [f"i{a}" for a in range(len(sizes))]
    of = kind_of(element(op.results[0].type))
    kind = C_KIND[of]
    add = (
        f"sum += ({kind})x0[{index_at(w, source, axes)}];"
        if of in ("float", "double")
        else f"sum = sw_wrap((uint64_t)sum + (uint64_t)(int64_t)x0[{index_at(w, source, axes)}]);"
    )
    store = f"y0[{index_at(w, result, axes)}] = ({w.c_element(result)})sum;"
    inner = loops({axes[axis]: sizes[axis]}, [add, store])
    outer = {axes[a]: size for a, size in enumerate(sizes) if a != axis}
    body = loops(outer, [f"{kind} sum = 0;", *inner])
    w.function(body, [("x0", source)], [("y0", result)], {"whole_numbers"})


@writes("glu.default")
def _gated(w: MethodWriter, found: KernelOperator) -> None:
    """Write a gated linear unit: one half of an axis times the sigmoid of the other half."""
    op, source, result = found.op, found.operands[0], found.results[0]
    sizes = w.tensor(result).sizes
    axis = op.arg("dim") % len(sizes)
    axes = [f"i{a}" for a in range(len(sizes))]
    other = [f"i{a} + {size}" if a == axis else f"i{a}" for a, size in enumerate(sizes)]
    kind = C_KIND[of := kind_of(element(op.results[0].type))]
    exponential = "expf" if of == "float" else "exp"
    body = [
        f"const {kind} power = {exponential}(-x0[{index_at(w, source, other)}]);",
        f"y0[{index_at(w, result, axes)}] = x0[{index_at(w, source, axes)}] / (({kind})1 + power);",
    ]
    w.function(loops(dict(zip(axes, sizes, strict=True)), body), [("x0", source)], [("y0", result)])


@writes("native_group_norm.default")
def _group_norm(w: MethodWriter, found: KernelOperator) -> None:
    op, source, result = found.op, found.operands[0], found.results[0]
    if any(w.is_read(index) for index in found.results[1:]):
        raise UnsupportedError("its other results, the groups' means and deviations, are used")
    sizes = w.tensor(source).sizes
    kind = C_KIND[kind_of(element(op.results[0].type))]
    within = sizes[1] // op.arg("group")
    rest = {f"i{a}": size for a, size in enumerate(sizes) if a > 1}
    inner = {"c": within, **rest}
    count = prod(inner.values())
    axes = ["n", f"g * {within} + c", *rest]
    read, root = f"x0[{index_at(w, source, axes)}]", "sqrtf" if kind == "float" else "sqrt"
    value = "(x - mean) * scale"
    reads = [("x0", source)]
    for name, sign in (("weight", "*"), ("bias", "+")):
        index = index_of(found, name)
        if index is not None:
            value = f"{value} {sign} x{len(reads)}[g * {within} + c]"
            reads.append((f"x{len(reads)}", index))
    body = [
        f"{kind} sum = 0;",
        *loops(inner, [f"sum += {read};"]),
        f"const {kind} mean = sum / ({kind}){count};",
        f"{kind} squares = 0;",
        *loops(inner, [f"const {kind} x = {read} - mean;", "squares += x * x;"]),
        f"const {kind} scale = ({kind})1 / "
        f"{root}((squares / ({kind}){count}) + ({kind}){constant(op.arg('eps'), 'double')});",
        *loops(inner, [f"const {kind} x = {read};", f"y0[{index_at(w, result, axes)}] = {value};"]),
    ]
    w.function(loops({"n": sizes[0], "g": op.arg("group")}, body), reads, [("y0", result)])
