"""Special numbers, singly and mixed, and the classes that results fall into."""

import math

import torch

from stepwell.dialects.xnnpack import NODES
from stepwell.ir.declared.engine_behavior import engine_behavior, engines

NAMES = ("NaN", "+inf", "-inf", "+0", "-0", "denormal", "finite")
"""What an element can be; a denormal's or a finite number's sign is not told."""


def special_numbers(dtype: torch.dtype) -> torch.Tensor:
    """NaN, infinities, zeros, denormals, and numbers near both ends of a dtype's range."""
    if not dtype.is_floating_point:
        return _special_integers(dtype)
    info = torch.finfo(dtype)
    big, small = info.max / 3.4, info.tiny * 0.85
    listed = [torch.nan, torch.inf, -torch.inf, 0.0, -0.0]
    listed += [info.smallest_normal / 8, -info.smallest_normal / 8]
    listed += [big, -big, small, -small, info.max, 1e10 if info.max > 1e10 else 1e4, info.tiny * 4]
    return torch.tensor(listed, dtype=torch.float64).to(dtype)


def _special_integers(dtype: torch.dtype) -> torch.Tensor:
    """Both ends of a dtype's range, zero, and small numbers of both signs, if it has two."""
    info = torch.iinfo(dtype)
    listed = [info.min, info.max, 0, 1, 2, 3, 7, info.min + 1, info.max - 1, info.max // 2 + 1]
    return torch.tensor(listed + ([-1, -2, -3, -7] if info.min else []), dtype=dtype)


def _ordinary(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    drawn = torch.randn(*shape, generator=torch.Generator().manual_seed(3))
    if dtype.is_floating_point:
        return drawn.to(dtype)
    return (drawn * 10 if torch.iinfo(dtype).min else drawn.abs() * 10).to(dtype)


def rows(dtype: torch.dtype) -> tuple[torch.Tensor]:
    """[N, 8]: each special number alone among ordinary ones, rows of one, rows of any two."""
    specials = special_numbers(dtype)
    count = len(specials)
    alone = _ordinary(dtype, count, 8)
    for index, number in enumerate(specials):
        alone[index, (3 * index) % 8] = number
    throughout = specials.reshape(-1, 1).repeat(1, 8)
    random = torch.Generator().manual_seed(5)
    mixed = specials[torch.randint(0, count, (count, 8), generator=random)]
    two = _ordinary(dtype, count, 8)
    for index in range(count):
        two[index, index % 8] = specials[index]
        two[index, (index + 3) % 8] = specials[(index + 1 + index // 2) % count]
    zeros = torch.zeros(2, 8, dtype=dtype)
    zeros[1] = -0.0
    return (torch.cat([alone, throughout, two, mixed, zeros, _ordinary(dtype, 2, 8)]),)


def pairs(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Two of `rows`: every special number meets every other one, and ordinary numbers."""
    specials = special_numbers(dtype)
    count = len(specials)
    one = specials.repeat_interleave(count)
    other = specials.repeat(count)
    fill = (-(len(one))) % 8
    one = torch.cat([one, _ordinary(dtype, fill)]).reshape(-1, 8)
    other = torch.cat([other, _ordinary(dtype, fill)]).reshape(-1, 8)
    (plain,) = rows(dtype)
    return torch.cat([one, plain]), torch.cat([other, _ordinary(dtype, *plain.shape)])


def images(dtype: torch.dtype) -> tuple[torch.Tensor]:
    """[N, 2, 6, 6]: a special number inside, at an edge, in a corner; mixed, and throughout."""
    specials = special_numbers(dtype)
    made: list[torch.Tensor] = []
    random = torch.Generator().manual_seed(6)
    for index, number in enumerate(specials):
        image = _ordinary(dtype, 2, 6, 6)
        image[index % 2, 2, 3] = number
        made.append(image)
        image = _ordinary(dtype, 2, 6, 6)
        image[index % 2, 0, 0] = number
        image[1 - index % 2, 5, 2] = number
        made.append(image)
        made.append(torch.full((2, 6, 6), 1.0, dtype=dtype) * number)
        image = _ordinary(dtype, 2, 6, 6)
        places = torch.randint(0, 72, (6,), generator=random)
        image.view(-1)[places] = specials[torch.randint(0, len(specials), (6,), generator=random)]
        made.append(image)
    made.append(_ordinary(dtype, 2, 6, 6))
    return (torch.stack(made),)


def values(dtype: torch.dtype) -> tuple[torch.Tensor]:
    """[N]: special numbers, and those next to which functions change: small, half, large ones."""
    info = torch.finfo(dtype)
    sizes = [1e-40, info.smallest_normal, 1e-20, 1e-3, 0.25, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 5.0, 9.0]
    sizes += [10.0, 17.0, 20.5, 88.7, 89.1, 104.0, 1e3, 1e5, 1e10, 1e20, 3e38]
    if dtype == torch.float16:
        sizes = [6e-8, *(size for size in sizes[1:] if 1e-5 < size < 6e4), 11.0, 11.1, 65504.0]
    sizes += [0.0, torch.inf]
    listed = [torch.nan, *sizes, *(-size for size in sizes)]
    return (torch.tensor(listed, dtype=torch.float64).to(dtype),)


def measured_values(dtype: torch.dtype) -> tuple[torch.Tensor]:
    """[N]: `values`, and both ends and the middle of each range in which a node deviates."""
    element = "f32" if dtype == torch.float32 else "f16"
    behaviors = [engine_behavior(cls.name, element, e) for cls in NODES.values() for e in engines()]
    ranges = [
        c.operands[0] for behavior in behaviors if behavior.is_known for c in behavior.changes
    ]
    numbers = {
        number
        for low, high in filter(None, ranges)
        if math.isfinite(low) and math.isfinite(high)
        for number in (low, high, math.copysign(math.sqrt(abs(low * high)), low))
    }
    measured = torch.tensor(sorted(numbers), dtype=torch.float64).to(dtype)
    return (torch.cat([*values(dtype), measured]),)


def measured_pairs(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """[N²], twice: some of `measured_values` with each other."""
    (measured,) = measured_values(dtype)
    one = torch.cat([special_numbers(dtype), measured[::5]])
    return one.repeat_interleave(len(one)), one.repeat(len(one))


def value_pairs(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """[N²], twice: each of `special_numbers` and of a few others with each."""
    others = torch.tensor([1.0, -1.0, 0.5, 2.5, -2.5, 3.0, -10.0, 88.7], dtype=dtype)
    one = torch.cat([special_numbers(dtype), others])
    return one.repeat_interleave(len(one)), one.repeat(len(one))


def value_triples(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """[N³], three times: each of some special numbers with each and each."""
    one = torch.cat([special_numbers(dtype)[:8], torch.tensor([1.0, -2.5], dtype=dtype)])
    first, second, third = torch.cartesian_prod(one, one, one).T
    return first.contiguous(), second.contiguous(), third.contiguous()


def classes(tensor: torch.Tensor) -> torch.Tensor:
    """The class of each element, as an index into `NAMES`; integers and booleans are finite."""
    if not tensor.dtype.is_floating_point:
        return torch.full(tensor.shape, NAMES.index("finite"))
    found = torch.full(tensor.shape, NAMES.index("finite"))
    tiny = torch.finfo(tensor.dtype).smallest_normal
    found[tensor.abs().double() < tiny] = NAMES.index("denormal")
    zero = tensor == 0
    found[zero & ~tensor.signbit()] = NAMES.index("+0")
    found[zero & tensor.signbit()] = NAMES.index("-0")
    found[tensor == torch.inf] = NAMES.index("+inf")
    found[tensor == -torch.inf] = NAMES.index("-inf")
    found[tensor.isnan()] = NAMES.index("NaN")
    return found


def _severities() -> torch.Tensor:
    """How far one class is from another, [wrong, right]; `docs/semantics.md` gives the reasons."""
    table = torch.zeros(len(NAMES), len(NAMES), dtype=torch.long)
    small = ("+0", "-0", "denormal")
    for row, wrong in enumerate(NAMES):
        for column, right in enumerate(NAMES):
            if wrong == right:
                continue
            infinite = wrong.endswith("inf") or right.endswith("inf")
            if "NaN" in (wrong, right) or (wrong.endswith("inf") and right.endswith("inf")):
                far = 3
            elif infinite:
                far = 2
            else:
                far = 1 if wrong in small or right in small else 0
            table[row, column] = far
    return table


SEVERITIES = _severities()
WORDS = ("as eager", "a zero or a denormal", "finite or infinite", "NaN or not")
"""What the severities mean."""


def severity(
    found: torch.Tensor, eager: torch.Tensor, exact: torch.Tensor | None = None
) -> torch.Tensor:
    """How far each element's class is from what it should be: an index into `WORDS`.

    Right is eager's class, and the class of the exact result too: where eager overflows on its way
    to a finite number, that number is right. Where eager itself is far from the exact class it is
    no witness: what is no further from it than eager is not worse.

    Args:
        found: what was computed.
        eager: torch's result in the same dtype.
        exact: torch's result in float64, rounded to the dtype.
    """
    if not found.dtype.is_floating_point:
        # Truths and places are right or wrong: both values of a pair are ordinary numbers.
        right = found == eager if exact is None else (found == eager) | (found == exact)
        return torch.where(right, 0, 3)
    ours, wanted = classes(found), classes(eager)
    far = SEVERITIES[ours, wanted]
    if exact is None:
        return far
    truth = classes(exact)
    from_truth, of_eager = SEVERITIES[ours, truth], SEVERITIES[wanted, truth]
    no_witness = (of_eager >= 2) & (from_truth <= of_eager)
    return torch.where(no_witness, 0, torch.minimum(far, from_truth))


def flushed(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor with zeros of their sign for denormal numbers, as delegates read it."""
    if not tensor.dtype.is_floating_point:
        return tensor
    tiny = torch.finfo(tensor.dtype).smallest_normal
    zero = torch.zeros_like(tensor).copysign(tensor)
    return torch.where(tensor.abs().double() < tiny, zero, tensor)
