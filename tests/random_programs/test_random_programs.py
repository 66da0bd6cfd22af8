"""Random programs on every target, a few in the suite and a thousand each in `make soak`."""

import shutil
from collections.abc import Callable
from itertools import count

import pytest
import torch
import torch.nn.functional as F

from .drawing import draw
from .judging import Judge, candidates
from .oracle import Expected
from .profiles import FLOATS, PROFILES, TOSA_COARSE, lane_of
from .source import Program, exported
from .verdicts import BAD, TAKEN, judge_seed

QUICK = {
    "program": 15,
    "xnnpack": 8,
    "tosa-1.0+fp": 6,
    "tosa-1.0+int": 3,
    "tosa-1.0+int, int8": 2,
    "tosa-1.1+fp, mxfp": 2,
    "xnnpack, int8": 2,
    "cortex-m55": 3,
    "cortex-m0": 2,
    "c": 3,
    "c, int8": 2,
    "ethos-u85-256": 1,
    "stateful: program": 2,
    "stateful: xnnpack": 2,
    "stateful: xnnpack, int8": 2,
    "stateful: cortex-m55": 1,
    "stateful: c": 1,
    "stateful: tosa fp": 1,
    "stateful: tosa int": 1,
    "checked: xnnpack, int8": 2,
}
"""Programs of the suite that a target takes, by profile and target."""
EVERY = [f"{profile}: {lane}" for profile, lanes in PROFILES.items() for lane in lanes]


def program_of(*statements: str, **more: object) -> Program:
    more = {"outputs": ("v0",), **more}
    return Program.of((("x0", "normal(0, (3, 4), f32)"),), *statements, **more)  # type: ignore[arg-type]


def expected_of(program: Program, *more: object) -> Expected:
    return Expected.of(program, program.every_given(), exported(program), *more)  # type: ignore[arg-type]


@pytest.mark.parametrize("lane", QUICK)
def test_a_few_programs_are_right_or_refused(lane: str) -> None:
    if lane_of(lane).target == "c" and shutil.which("cc") is None:
        pytest.skip("no C compiler is installed")
    taken = 0
    for seed in range(4 * QUICK[lane] + 4):
        found = judge_seed(seed, lane)
        assert found.kind not in BAD, f"seed {seed}: {found.kind}: {found.said}\n{found.text}"
        taken += found.kind in TAKEN
        if taken == QUICK[lane]:
            return
    pytest.fail(f"only {taken} programs were taken")


@pytest.mark.slow
@pytest.mark.parametrize("lane", EVERY)
def test_a_thousand_programs_are_right_or_refused(lane: str) -> None:
    taken, wrong = 0, list[str]()
    with Judge() as judge:
        for seed in count():
            found = judge.seed(seed, lane)
            taken += found["kind"] in TAKEN
            if found["kind"] in BAD:
                wrong.append(f"seed {seed}: {found['kind']}: {found['said']}")
            if taken == 1000:
                break
    assert not wrong, "\n".join(wrong)


def test_a_seed_gives_the_same_text_always() -> None:
    for seed in range(20):
        assert draw(seed, FLOATS) == draw(seed, FLOATS)


def test_a_text_runs_on_its_own() -> None:
    program = draw(3, FLOATS)
    space: dict[str, object] = {}
    exec("from tests.random_programs.values import *\n" + program.text.partition("\n")[2], space)
    assert space["RandomProgram"]()(*space["inputs"]()) is not None  # type: ignore[operator]


SOFTMAX, OVERFLOW = "torch.softmax(x0 * 3, -1)", "x0 * 1e30 * 1e30 - x0 * 1e30 * 1e30"
ANGLE = "(x0 * 1000).round().sin()"
Changed = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
ANSWERS: dict[str, tuple[str, Changed, str | None]] = {
    "the result": (SOFTMAX, lambda y, x: y, None),
    "off by more than rounding": (SOFTMAX, lambda y, x: y * (1 + 2**-12), ""),
    "another dtype": (
        SOFTMAX, lambda y, x: y.double(), "output 0: torch.float64 instead of torch.float32"
    ),
    "zero for NaN": ("x0.sqrt()", lambda y, x: y.nan_to_num(), "nan"),
    "right where a dtype overflows": (
        "(x0 * 1e30) / (x0 * 1e30 * 1e30) * 1e30", lambda y, x: y, None
    ),
    "a number where all overflows": (OVERFLOW, lambda y, x: torch.full_like(y, 7.0), None),
    "infinity where all overflows": (OVERFLOW, lambda y, x: torch.full_like(y, torch.inf), ""),
    "an angle within its own precision": (ANGLE, lambda y, x: near(x, 2**-24, 0.0), None),
    "an angle beyond its precision": (ANGLE, lambda y, x: near(x, 0.0, 0.01), ""),
}  # fmt: skip
"""A statement, an answer made of its result and `x0`, and what is said of it."""


def near(x: torch.Tensor, relative: float, by: float) -> torch.Tensor:
    """The sine of an angle that is off."""
    angle = (x * 1000).round().double()
    return torch.sin(angle + angle.abs() * relative + by).float()


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_is_right_within_rounding_and_classes(name: str) -> None:
    statement, change, said = ANSWERS[name]
    program = program_of(f"v0 = {statement}")
    (x,) = program.given()
    complaint = expected_of(program).complaint([change(program.module()(x)[0], x)])
    assert complaint is None if said is None else complaint is not None and said in str(complaint)


def test_what_rounding_decides_is_not_asked() -> None:
    program = program_of("v0 = (x0 - x0.mean() + x0.mean()) > x0")
    expected = expected_of(program)
    assert any(not torch.equal(run[0], expected.runs[0][0]) for run in expected.runs)
    known = torch.stack([run[0] == expected.runs[0][0] for run in expected.runs]).all(0)
    assert (
        expected.complaint([torch.where(known, expected.runs[0][0], ~expected.runs[0][0])]) is None
    )


def test_a_class_that_the_stock_flow_gives_too_is_told_apart() -> None:
    program = program_of("v0 = x0.sqrt()")
    expected = expected_of(program)
    right = program.module()(*program.given())[0]
    lost = right.nan_to_num(0.0)
    assert right.isnan().any() and expected.complaint([lost], forgiven=[right]) is not None
    assert expected.complaint([lost], forgiven=[lost]) is None
    assert expected.complaint([lost + 1], forgiven=[lost + 1]) is not None


def test_denormal_numbers_may_be_read_as_zero_and_no_others() -> None:
    if not torch.set_flush_denormal(True):
        pytest.skip("this CPU has no mode that reads denormal numbers as zero")
    torch.set_flush_denormal(False)
    program = program_of("v0 = (x0.sign() * 1e-38 + x0 * 0) * 1e6")
    expected = expected_of(program)
    right = program.module()(*program.given())[0]
    assert expected.complaint([right]) is None
    assert expected.complaint([right * 0]) is None
    normal = program_of("v0 = x0.sign() * 1e-36 * 1e6")
    expected = expected_of(normal)
    assert expected.complaint([right * 0]) is not None


def test_a_convolution_may_skip_what_lies_outside_the_image_and_nothing_else() -> None:
    image = (("x0", "normal(1, (1, 1, 4, 4), f32, mean=9.0)"),)
    text = "v0 = F.conv2d(x0, torch.tensor([[[[torch.nan, 1], [1, 1.0]]]]), None, 1, 1)"
    program = Program.of(image, text, outputs=("v0",))
    expected = expected_of(program)
    skipped = F.conv2d(*program.given(), torch.ones(1, 1, 2, 2), None, 1, 1)
    skipped[:, :, 1:, 1:] = torch.nan
    assert expected.complaint([torch.full_like(skipped, torch.nan)]) is None
    assert expected.complaint([skipped]) is None
    skipped[0, 0, 4, 4] = 1.0
    assert "1 of 25" in str(expected.complaint([skipped]))


def test_a_small_tanh_is_as_right_as_tosa_asks() -> None:
    program = program_of("v0 = (x0 * 1e-4).tanh()")
    given = program.given()
    near = [program.module()(*given)[0] + 2**-24]
    assert expected_of(program).complaint(near) is not None
    coarse = expected_of(program, TOSA_COARSE)
    assert coarse.complaint(near) is None
    assert coarse.complaint([near[0] + 2**-14]) is not None


def test_what_is_removed_takes_its_readers_along() -> None:
    program = program_of("v0 = x0 * 2", "v1 = x0 + 1", "v2 = v1 * v0")
    assert program.methods[0].without([1]).statements == ("v0 = x0 * 2",)
    assert program.tidy().methods[0].statements == ("v0 = x0 * 2",)


@pytest.mark.parametrize("lane", ["functional: xnnpack", "stateful: xnnpack"])
def test_every_step_of_the_shrinker_is_smaller_and_runs(lane: str) -> None:
    for seed in range(10):
        program = draw(seed, lane_of(lane).profile)
        for smaller in candidates(program):
            assert len(smaller.text) < len(program.text)
            smaller.module()


@pytest.mark.parametrize("lane", ["functional: xnnpack", "stateful: xnnpack"])
def test_a_refusal_names_the_statement_it_is_about(lane: str) -> None:
    program = draw(3, lane_of(lane).profile)
    lines = program.text.split("\n")
    for number, method in enumerate(program.methods):
        for index, text in enumerate(method.statements):
            last = text.split("\n")[-1]
            at = next(i for i, line in enumerate(lines, 1) if line.strip() == last.strip())
            assert program.statement_of(at) == (number, index)
    assert program.statement_of(1) is None and program.statement_of(10**6) is None
