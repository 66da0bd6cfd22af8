"""Numbers of expressions: hashes, primes, constants and conversions, against plain arithmetic."""

import math
from fractions import Fraction
from itertools import product
from typing import Any

import pytest
import torch
from statement_cases import program

from stepwell.ir.program import Program
from stepwell.ir.weights import WeightStore
from stepwell.validation.certificates.checker import expressions, statements
from stepwell.validation.certificates.checker.expressions import (
    PRIME,
    Arithmetic,
    bilinear,
    chosen_by,
    constants,
    digest,
    inverse,
    mixed,
    of_number,
    prime,
    unordered,
    variable,
)
from stepwell.validation.certificates.checker.statements import KINDS, Undecided, decide

BITS, REALS = Arithmetic(True, 3), Arithmetic(False, 3)
NUMBERS = torch.randint(0, PRIME, (7, 300), generator=torch.Generator().manual_seed(1))


def test_a_hash_is_splitmix64() -> None:
    """The first outputs from the seed 1234567, as Java's and Rosetta Code's."""
    wanted = (6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431,
              16408922859458223821)  # fmt: skip
    states = [(1234567 + n * 0x9E3779B97F4A7C15) % (1 << 64) for n in range(len(wanted))]
    signed = [state - (1 << 64) * (state >= 1 << 63) for state in states]
    assert mixed(torch.tensor(signed)).tolist() == [each % (1 << 63) % PRIME for each in wanted]
    with chosen_by(1):
        assert mixed(torch.tensor(signed)).tolist() != [w % (1 << 63) % prime() for w in wanted]


def is_prime(number: int) -> bool:
    return all(number % divisor for divisor in range(2, math.isqrt(number) + 1))


def test_each_seed_chooses_a_prime_and_a_key() -> None:
    chosen = set[tuple[int, int]]()
    for seed in range(12):
        with chosen_by(seed):
            chosen.add(expressions._CHOSEN.get())
        assert prime() == PRIME
    assert len({each[0] for each in chosen}) == len({each[1] for each in chosen}) == 12
    for number, key in chosen:
        assert 1 << 30 < number < 1 << 31
        assert number % 24 == 23
        assert is_prime(number)
        assert 1 << 40 < key < 1 << 62
    assert len({pow(5, number // 2, number) == 1 for number, _ in chosen}) == 2, "of both kinds"
    with pytest.raises(ZeroDivisionError), chosen_by(3):
        raise ZeroDivisionError
    assert prime() == PRIME


def test_the_prime_is_as_said() -> None:
    assert is_prime(PRIME)
    assert PRIME % 24 == 23
    assert 1 << 30 < PRIME < 1 << 31


def test_digests_depend_on_names_operands_and_their_order() -> None:
    one, other = NUMBERS[0], NUMBERS[1]
    made = [digest("f", one, other), digest("f", other, one), digest("g", one, other),
            digest("f", one), digest("f", one, other, one)]  # fmt: skip
    for left, right in product(range(len(made)), repeat=2):
        assert bool((made[left] == made[right]).any()) == (left == right)
    assert torch.equal(unordered("f", one, other), unordered("f", other, one))
    assert not torch.equal(unordered("f", one, one), unordered("f", other, other))
    assert digest("f").shape == ()
    assert all(int(each.min()) >= 0 and int(each.max()) < PRIME for each in made)


def test_variables_are_known_by_name_place_and_seed() -> None:
    x = variable("x", (3, 4), 5)
    assert x.shape == (3, 4)
    assert len(x.unique()) == 12
    assert torch.equal(x, variable("x", (3, 4), 5))
    assert not bool((x == variable("y", (3, 4), 5)).any())
    assert not bool((x == variable("x", (3, 4), 6)).any())
    assert variable("x", (), 5).shape == ()


def test_an_inverse_is_one() -> None:
    x = NUMBERS.clamp(1)
    assert bool((x * inverse(x) % PRIME == 1).all())
    with pytest.raises(ZeroDivisionError):
        inverse(torch.tensor([3, 0, 2]))


def test_sums_of_products_are_exact() -> None:
    x, y = NUMBERS, NUMBERS.flip(1).mT.contiguous()
    wanted = [[sum(a * b for a, b in zip(row, column, strict=True)) % PRIME
               for column in y.mT.tolist()] for row in x.tolist()]  # fmt: skip
    assert bilinear(torch.mm, x, y).tolist() == wanted


@pytest.mark.parametrize("is_exact", [True, False])
def test_constants_have_numbers(is_exact: bool) -> None:
    values = [2.0, -2.0, 0.1, -0.1, math.inf, -math.inf, 0.0, 3.0, 2.0]
    held = constants(torch.tensor(values), is_exact)
    assert held.shape == (9,)
    numbers = held.tolist()
    assert numbers[0] == numbers[8]
    for at in (0, 2, 4):
        assert (numbers[at] + numbers[at + 1]) % PRIME == 0
    assert len(set(numbers)) == 8
    assert all(0 <= number < PRIME for number in numbers)
    assert torch.equal(constants(torch.tensor(values).reshape(3, 3), is_exact), held.reshape(3, 3))
    of_integers = constants(torch.tensor([2, -2, 0, 1 << 40]), is_exact).tolist()
    assert of_integers == [2, PRIME - 2, 0, (1 << 40) % PRIME]
    assert constants(torch.tensor([True, False]), is_exact).tolist() == [1, 0]


def test_constants_bit_for_bit() -> None:
    zero, less_zero, nan, tiny = constants(torch.tensor([0.0, -0.0, math.nan, 1e-45]), True)
    assert len({int(zero), int(less_zero), int(nan), int(tiny)}) == 4
    assert int(nan) == int(constants(torch.tensor(math.nan), True))
    wide = constants(torch.tensor([0.5, -3.0], dtype=torch.float64), True)
    assert torch.equal(constants(torch.tensor([0.5, -3.0], dtype=torch.float16), True), wide)
    eights = [torch.arange(256).to(torch.uint8).view(of)
              for of in (torch.float8_e4m3fn, torch.float8_e5m2)]  # fmt: skip
    for exact in (True, False):
        one, other = (constants(each, exact) for each in eights)
        assert len({*one.tolist(), *other.tolist()}) == 512


@pytest.mark.parametrize(
    ("value", "bits", "wanted"),
    [
        (0.1, 53, Fraction(1, 10)), (-0.75, 24, Fraction(-3, 4)), (5.0, 24, Fraction(5)),
        (torch.tensor(1 / 3).item(), 24, Fraction(1, 3)), (1e6, 24, Fraction(10**6)),
        (2.0**40, 24, Fraction(2**40)), (0.0, 24, Fraction(0)),
        (torch.tensor(0.7).item(), 24, Fraction(7, 10)), (1 / 255, 53, Fraction(1, 255)),
        (0.10000001, 53, Fraction(10000001, 100000000)),
    ],
)  # fmt: skip
def test_the_number_of_a_constant(value: float, bits: int, wanted: Fraction) -> None:
    number = wanted.numerator * pow(wanted.denominator, -1, PRIME) % PRIME
    assert of_number(value, bits, (PRIME, 0)) == number


@pytest.mark.parametrize("of", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_inverses_of_small_integers_are_the_simplest_numbers(of: torch.dtype) -> None:
    most = {torch.float16: 40, torch.bfloat16: 20}.get(of, 300)
    integers = torch.arange(1, most)
    held = constants((1 / integers.double()).to(of), False)
    assert bool((held * integers % PRIME == 1).all())


def test_a_root_is_preferred_to_a_fraction_that_is_not_short() -> None:
    value = torch.tensor(1 / 11).sqrt().bfloat16().item()  # Within its roundings also 3/10.
    assert pow(of_number(value, 8, (PRIME, 0)), 2, PRIME) * 11 % PRIME == 1


@pytest.mark.parametrize(
    ("square", "order"), [(Fraction(1, 2), 2), (Fraction(3), 2), (Fraction(1, 6), 4)]
)
def test_the_number_of_a_root_is_a_root(square: Fraction, order: int) -> None:
    number = of_number(float(square) ** (1 / order), 53, (PRIME, 0))
    assert pow(number, order, PRIME) * square.denominator % PRIME == square.numerator
    assert pow(number, PRIME // 2, PRIME) == 1, "it has a root, as the real number has"


def test_a_constant_that_is_near_a_simple_number_is_not_it() -> None:
    ulp = math.ulp(0.1)
    assert of_number(0.1 + 2 * ulp, 53, (PRIME, 0)) != of_number(0.1, 53, (PRIME, 0))
    near = torch.nextafter(torch.tensor(0.1), torch.tensor(1.0)).item()
    assert of_number(near, 24, (PRIME, 0)) != of_number(0.1, 53, (PRIME, 0))


DTYPES = (
    torch.bool,
    torch.int8,
    torch.uint8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
)
"""In rows and columns of the tables."""  # fmt: skip
CASTS = {
    "bits": """
        =+++++....
        .=.+++....
        ..=+++....
        ...=++....
        ....=.....
        .....=....
        ......=...
        .......=..
        ........=.
        .........=""",
    "reals": """
        =+++++++++
        .=.+++++++
        ..=+++++++
        ...=++++++
        ....=+++++
        ....+=++++
        ......=+++
        ......+=++
        ......++=+
        ......+++=""",
}
"""Which conversions keep the numbers of all values."""


@pytest.mark.parametrize("kind", CASTS)
def test_conversions_that_keep_numbers(kind: str) -> None:
    table = list[str]()
    for given in DTYPES:
        marks = ""
        for wanted in DTYPES:
            made = Arithmetic(kind == "bits")
            is_kept = torch.equal(made.cast(NUMBERS, given, wanted), NUMBERS)
            marks += "=" if given == wanted else "+" if is_kept else "."
            assert made.narrows == (kind == "reals" and (given, wanted) == (DTYPES[5], DTYPES[4]))
        table.append(marks)
    assert table == CASTS[kind].split()


def test_floats_of_a_byte_are_no_numbers() -> None:
    for given, wanted in ((torch.float8_e4m3fn, DTYPES[-1]), (DTYPES[-1], torch.float8_e4m3fn)):
        with pytest.raises(RuntimeError):
            REALS.cast(NUMBERS, given, wanted)


def test_a_truth_is_that_of_a_number() -> None:
    held = [BITS.cast(NUMBERS, of, torch.bool) for of in (torch.float32, torch.int8)]
    assert torch.equal(held[0], digest("nonzero", NUMBERS))
    assert torch.equal(*held)


def test_which_types_are_rounded() -> None:
    assert "".join("01"[BITS.rounds(of)] for of in DTYPES) == "1111001111"
    assert "".join("01"[REALS.rounds(of)] for of in DTYPES) == "1111000000"


def test_names_of_values() -> None:
    x = BITS.made(variable("x", (2, 3), 0), torch.float32)
    made = (x.held.flip(1), torch.float32), (x.held, torch.int32), (x.held.view(3, 2), x.dtype)
    other = [*(BITS.made(*each) for each in made), torch.ones(2, 3), 1, 1.0, "1"]
    names = [BITS.name_of(value) for value in (x, *other)]
    assert len(set(names)) == len(names)
    assert BITS.name_of(BITS.made(x.held.clone(), torch.float32)) == names[0]


def test_elements_that_are_not_set_or_drawn_have_no_numbers() -> None:
    x = REALS.made(variable("x", (1, 2, 3, 4), 0), torch.float32)
    attention = torch.ops.aten.scaled_dot_product_attention
    asked: list[Any] = [torch.empty_like, torch.rand_like, torch.ops.aten.new_empty]
    asked += [torch.Tensor.neg_, attention]
    given: list[tuple[Any, ...]] = [(x,), (x,), (x, [3]), (x,), (x, x, x, None, 0.5)]
    for ask, operands in zip(asked, given, strict=True):
        with pytest.raises((RuntimeError, NotImplementedError)), torch.no_grad():
            ask(*operands)


def test_attention_is_its_steps() -> None:
    q, k, v = (REALS.made(variable(n, (1, 2, 3, 4), 0), torch.float32) for n in "qkv")
    with torch.no_grad():
        made = torch.nn.functional.scaled_dot_product_attention(q, k, v)
        steps = torch.softmax(q @ k.mT * 0.5, -1) @ v
    assert torch.equal(REALS.numbers(made), REALS.numbers(steps))
    assert not torch.equal(REALS.numbers(made), REALS.numbers(v))


def test_which_values_are_whole() -> None:
    whole = REALS.made(variable("x", (3,), 0), torch.float64)
    other = REALS.made(variable("y", (3,), 0), torch.float64)
    whole.is_whole = True
    integers = REALS.made(variable("n", (3,), 0), torch.int32)
    half = torch.tensor([1.0, 0.5, 2.0], dtype=torch.float64)
    single = REALS.made(variable("z", (3,), 0), torch.float32)
    with torch.no_grad():
        yes = [
            whole,
            integers,
            3,
            3.0,
            torch.tensor([2.0, -1.0]),
            torch.arange(3),
            whole + 1,
            whole * 2.0,
            whole - whole,
            -whole,
            whole + half.trunc(),
            whole.sum(),
            whole.view(3, 1),
            whole.clamp(-2, 3),
            whole.double(),
            torch.mm(whole.view(1, 3), whole.view(3, 1)),
        ]
        no = [
            other,
            0.5,
            half,
            whole + 0.5,
            whole * half,
            whole + other,
            whole / 2,
            whole.exp(),
            other.double(),
            integers.float(),
            integers.float().double(),
            single.double(),
            torch.mm(whole.view(1, 3), other.view(3, 1)),
            whole.clamp(-0.5, 3),
        ]
    assert all(map(expressions._is_whole, yes))
    assert not any(map(expressions._is_whole, no))


def test_numbers_of_python() -> None:
    assert int(BITS.numbers(3)) == int(REALS.numbers(3)) == 3
    assert int(REALS.numbers(0.1, torch.float32)) == of_number(0.1, 53, (PRIME, 0))
    single = torch.tensor(0.1)
    assert torch.equal(BITS.numbers(0.1, torch.float32), constants(single, True))
    assert not torch.equal(BITS.numbers(0.1), constants(single, True))
    assert int(BITS.numbers(True)) == 1


# -- statements ------------------------------------------------------------------------------------


def symbolic(ranges: str = "") -> Program:
    kind = 'tensor<?x?xf32, #stepwell.shape<["s0", "s1"]>>'
    return Program.parse(f"""builtin.module {{
      func.func @equal(%v0: {kind}) -> ({kind}, {kind}){ranges} {{
        %v1 = aten.neg.default(%v0) : ({kind}) -> {kind}
        %v2 = aten.mul.Scalar(%v0, -1.0) : ({kind}) -> {kind}
        func.return %v1, %v2 : {kind}, {kind}
      }}
    }}""")


def test_two_choices_of_symbolic_sizes() -> None:
    assert statements._sizes(symbolic()) == [{"s0": 4, "s1": 6}, {"s0": 6, "s1": 8}]
    assert decide(symbolic(), KINDS) == "reals, at sizes that were tried"
    ranges = ' attributes {stepwell.ranges = ["10 <= s0", "2 <= s1 <= 5"]}'
    assert statements._sizes(symbolic(ranges)) == [{"s0": 10, "s1": 5}, {"s0": 10, "s1": 5}]
    ranges = ' attributes {stepwell.ranges = ["1 <= s0 <= 5", "7 <= s1 <= 9"]}'
    assert statements._sizes(symbolic(ranges)) == [{"s0": 4, "s1": 7}, {"s0": 5, "s1": 8}]
    assert statements._sizes(program(("", "neg.default(x)", "x"))) == [{}]


def test_constants_that_a_statement_contains() -> None:
    store = WeightStore()
    for name, count in {"one": 1, "two": 2, "new#1": 4096, "new#2": 4097, "many": 4097}.items():
        store.add(name, torch.arange(float(count)))
    store.add_unknown("unknown", store.type_of("one"))
    read = {key: (statements.is_constant(store, key), statements.is_constant(store, key, True))
            for key in store}  # fmt: skip
    assert read == {
        "one": (True, True), "two": (False, True), "new#1": (True, True), "new#2": (False, False),
        "many": (False, False), "unknown": (False, False),
    }  # fmt: skip


def test_a_statement_of_more_ops_than_the_limit_is_not_decided(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    case = program(("reals", "neg.default(x)", "mul.Scalar(x, -1.0)"))
    monkeypatch.setattr(statements, "MOST_STEPS", 2)
    assert decide(case, KINDS) == "reals"
    monkeypatch.setattr(statements, "MOST_STEPS", 1)
    with pytest.raises(Undecided, match="it is not so: a statement evaluates more than 1 ops"):
        decide(case, KINDS)


def test_no_kind_proves_nothing() -> None:
    with pytest.raises(Undecided, match="no proof is claimed"):
        decide(program(("bits", "neg.default(x)", "neg.default(x)")), ())


def branches(other: str) -> Any:
    kind = "tensor<4xf32>"
    one = f"({kind}) -> {kind}"
    return Program.parse(f"""builtin.module {{
      func.func @equal(%v0: {kind}, %v1: tensor<i1>) -> ({kind}, {kind}) {{
        %v2 = control.cond %v1(%v0) : (tensor<i1>, {kind}) -> {kind} {{
        ^bb0(%a: {kind}):
          %b = aten.neg.default(%a) : {one}
          control.yield %b : {kind}
        }} else {{
        ^bb0(%a: {kind}):
          %b = aten.exp.default(%a) : {one}
          control.yield %b : {kind}
        }}
        %v3 = aten.neg.default(%v0) : {one}
        %v4 = aten.exp.default(%v0) : {one}
        %v5 = aten.where.self(%v1, {other}) : (tensor<i1>, {kind}, {kind}) -> {kind}
        func.return %v2, %v5 : {kind}, {kind}
      }}
    }}""")


def test_a_result_of_another_shape_than_the_text_says_is_not_followed() -> None:
    for size in (4, 5):
        kind, said = "tensor<4xf32>", f"tensor<{size}xf32>"
        case = Program.parse(f"""builtin.module {{
          func.func @equal(%v0: {kind}) -> ({kind}, {said}) {{
            %v1 = aten.neg.default(%v0) : ({kind}) -> {kind}
            %v2 = aten.neg.default(%v0) : ({kind}) -> {said}
            func.return %v1, %v2 : {kind}, {said}
          }}
        }}""")
        if size == 4:
            assert decide(case, KINDS) == "bits"
        else:
            with pytest.raises(Undecided):
                decide(case, KINDS)


def test_a_branch_that_is_known_is_taken() -> None:
    made = "%v1 = aten.full.default([], true, dtype = i1) : () -> tensor<i1>"
    text = str(branches("%v3, %v4")).replace(", %v1: tensor<i1>)", ")")
    text = text.replace("%v2 = control", f"{made}\n%v2 = control")
    text = text.replace("return %v2, %v5", "return %v2, %v3")
    assert decide(Program.parse(text), KINDS) == "bits"
    with pytest.raises(Undecided):
        decide(Program.parse(text.replace("return %v2, %v3", "return %v2, %v4")), KINDS)


@pytest.mark.parametrize("is_known", [True, False])
@pytest.mark.parametrize(("height", "op"), [(1023, "conv"), (1024, "conv"), (1, "mm")])
def test_sums_of_too_many_products_are_not_followed(height: int, op: str, is_known: bool) -> None:
    """Sums of fewer than 2²⁰ products are exact."""
    count = (1 << 20) - is_known if op == "mm" else height * 1024
    shape = (1, count) if op == "mm" else (1, 1, height, 1024)
    x, w = (REALS.made(variable(name, shape, 0), torch.float32) for name in "xw")
    with torch.no_grad():
        run = (lambda: torch.mm(x, w.mT)) if op == "mm" else lambda: torch.conv2d(x, w)
        if count < 1 << 20:
            wanted = sum(a * b for a, b in zip(x.held.view(-1).tolist(), w.held.view(-1).tolist(),
                                               strict=True))  # fmt: skip
            assert int(REALS.numbers(run())) == wanted % PRIME
        else:
            with pytest.raises((RuntimeError, NotImplementedError)):
                run()


def test_a_branch_is_a_choice_of_both_results() -> None:
    assert decide(branches("%v3, %v4"), KINDS) == "bits"
    for other in ("%v4, %v3", "%v3, %v3"):
        with pytest.raises(Undecided):
            decide(branches(other), KINDS)
