"""Each defect that was measured once, as a class: one of its kind in the suite, all in a soak.

`docs/contracts.md` says which test holds which defect.
"""

import random
from collections.abc import Iterator

import pytest

from .defects import CLASSES, program_of
from .judging import Judge
from .verdicts import BAD

LANES = ("xnnpack", "tosa-1.0+fp", "cortex-m55")
TRANSPOSED = "HELD<seeded(nn.ConvTranspose2d(3, 4, 3), 1)>(x0)"
ONCE_WRONG = (
    ("xnnpack", "torch.bincount(torch.tensor([1, 2])).sum() + x1"),
    ("xnnpack", "HELD<seeded(nn.BatchNorm1d(6), 9, bf16)>(x1.to(f16))"),
    ("xnnpack", "HELD<seeded(nn.LayerNorm(8), 9, f64)>(x1)"),
    ("tosa-1.0+fp", "HELD<seeded(nn.BatchNorm1d(6), 9, f16)>(x1.to(bf16))"),
    ("tosa-1.0+fp", f"HELD<seeded(nn.BatchNorm2d(4), 9, f16)>({TRANSPOSED})"),
    ("tosa-1.0+fp", "x1[..., 8:]"),
    ("tosa-1.0+fp", "x0.exp() given normal(0, (2, 0, 3), f64, 3.0)"),
    ("cortex-m55", "x0.amin(0) given normal(0, (2, 0, 3), f32, 3.0)"),
    ("cortex-m55", "HELD<seeded(nn.Linear(8, 4), 3, f16)>(x1.to(f16))"),
    ("cortex-m55", "HELD<seeded(nn.Linear(8, 4), 3, bf16)>(x1.to(bf16))"),
    ("cortex-m55", "x0 // 5 given integers(0, (3, 8), -9, 9, i64)"),
    ("cortex-m55", "x0.argmax(0) given normal(0, (1, 1), f32, 3.0)"),
)  # fmt: skip
"""What else fell when the classes were tried for the first time."""


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    with Judge(seconds=300) as one:
        yield one


def assert_right_or_refused(judge: Judge, lane: str, text: str) -> None:
    found = judge.ask(program=program_of(text).as_json(), lane=lane)
    assert found["kind"] not in BAD, f"{found['kind']}: {found['said']}\n{text}"
    assert not any("without an end" in reason for reason in found["refusals"]), text


@pytest.mark.parametrize(("lane", "text"), ONCE_WRONG)
def test_what_fell_once_is_right_or_refused(judge: Judge, lane: str, text: str) -> None:
    assert_right_or_refused(judge, lane, text)


@pytest.mark.parametrize("lane", LANES)
@pytest.mark.parametrize("name", CLASSES)
def test_one_of_each_class_is_right_or_refused(judge: Judge, name: str, lane: str) -> None:
    every = list(CLASSES[name]())
    assert_right_or_refused(judge, lane, random.Random(f"{name} {lane}").choice(every))


@pytest.mark.slow
@pytest.mark.parametrize("lane", LANES)
@pytest.mark.parametrize("name", CLASSES)
def test_all_of_each_class_are_right_or_refused(judge: Judge, name: str, lane: str) -> None:
    for text in CLASSES[name]():
        assert_right_or_refused(judge, lane, text)
