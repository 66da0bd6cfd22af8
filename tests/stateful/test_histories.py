"""Programs with a history on every target, a few in the suite and a thousand each in `make soak`."""

from __future__ import annotations

import copy
from dataclasses import replace
from itertools import count

import pytest
import torch

import stepwell

from ..random_programs.judging import Judge
from ..random_programs.verdicts import BAD, TAKEN
from .drawing import draw, smaller, spread
from .source import Call, Part, Program
from .verdicts import LANES, judge, judge_seed, judge_whole

QUICK = {
    "program": 2,
    "xnnpack": 2,
    "xnnpack, int8": 2,
    "cortex-m55": 1,
    "tosa fp": 1,
    "tosa int": 1,
}
"""Programs of the suite, by lane."""


@pytest.mark.parametrize("lane", QUICK)
def test_a_few_histories_are_right_or_refused(lane: str) -> None:
    for seed in range(QUICK[lane]):
        found = judge_seed(seed, lane)
        assert found.kind not in BAD, f"{found.kind}: {found.said}\n{found.text}"


@pytest.mark.slow
@pytest.mark.parametrize("lane", LANES)
def test_a_thousand_histories_are_right_or_refused(lane: str) -> None:
    taken, wrong = 0, list[str]()
    with Judge(by="tests.stateful.child") as judge:
        for seed in count():
            found = judge.seed(seed, lane)
            taken += found["kind"] in TAKEN
            if found["kind"] in BAD:
                wrong.append(f"seed {seed}: {found['kind']}: {found['said']}")
            if taken == 1000:
                break
    assert not wrong, "\n".join(wrong)


def test_a_seed_gives_the_same_program_always() -> None:
    for seed in range(20):
        program = draw(seed, LANES["xnnpack"].profile)
        assert draw(seed, LANES["xnnpack"].profile) == program
        assert Program.of_json(program.as_json()) == program


def test_every_step_of_the_shrinker_is_a_module() -> None:
    for seed in range(10):
        for less in smaller(draw(seed, LANES["program"].profile)):
            assert less.core() is not None


def test_seven_sizes_hold_both_ends_and_stay_within() -> None:
    import random

    for low, high in ((1, 7), (2, 13), (3, 20), (4, 10)):
        sizes = spread(random.Random(0), low, high)
        assert len(sizes) == 7
        assert {low, low + 1, high} <= set(sizes) <= set(range(low, high + 1))


COUNTS = Part(
    ("self.s0.add_(1)", "h = h * self.s0"), held=(("self.s0", "nn.Buffer(torch.zeros(1))"),)
)


def test_a_target_that_forgets_its_state_is_a_mismatch(monkeypatch: pytest.MonkeyPatch) -> None:
    program = Program(("1", "3", "4"), ((COUNTS,),), (Call(0, {}),) * 4, streams=(True,))
    assert judge(program, "program").kind == "equal"
    forgetful = property(lambda self: {}, lambda self, value: None)
    monkeypatch.setattr("stepwell.ir.program.Session.state", forgetful, raising=False)
    found, _ = judge_whole(program, LANES["program"])
    assert found.kind == "mismatch" and "call 1" in found.said


def test_a_method_that_has_state_of_its_own_is_a_mismatch(monkeypatch: pytest.MonkeyPatch) -> None:
    program = Program(
        ("1", "3", "4"),
        ((COUNTS,), (COUNTS,)),
        (Call(0, {}), Call(1, {}), Call(0, {}), Call(1, {}, fed=True)),
        streams=(True, True),
    )
    assert judge(program, "xnnpack").kind == "equal"
    call = stepwell.Program.start

    def apart(self: stepwell.Program) -> object:
        sessions = {name: call(self) for name in self.methods}

        class Apart:
            def run(self, *args: object, method: str) -> object:
                return sessions[method].run(*args, method=method)

        return Apart()

    monkeypatch.setattr(stepwell.Program, "start", apart)
    found, _ = judge_whole(program, LANES["program"])
    assert found.kind == "mismatch" and "call 1" in found.said


def test_a_part_that_is_refused_is_taken_out_and_the_rest_judged() -> None:
    gamma = Part(("h = torch.igamma(h.abs() + 0.1, h.abs())",))
    program = Program(("1", "3", "4"), ((gamma, COUNTS),), (Call(0, {}),) * 4, streams=(True,))
    found = judge(program, "tosa fp")
    assert found.kind == "equal" and found.refusals and found.statements == 1


def test_a_line_of_the_text_belongs_to_its_part() -> None:
    program = draw(3, LANES["xnnpack"].profile)
    lines = program.text.split("\n")
    for method in program.methods:
        for part in method:
            line = next(
                i for i, text in enumerate(lines, 1) if text.strip().startswith(part.lines[0])
            )
            method_of, at_of = program.part_of(line) or (-1, -1)
            assert program.methods[method_of][at_of].lines[0] == part.lines[0]
    assert program.part_of(1) is None


def test_what_is_fed_back_is_the_callers_own() -> None:
    program = Program(
        ("1", "3", "4"),
        ((replace(COUNTS, given=("self.s0",)),),),
        (Call(0, {}), Call(0, {}, fed=True), Call(0, {}, fed=True), Call(0, {})),
        streams=(True,),
    )
    from .source import eager

    given = [program.given(i) for i in range(4)]
    kept = copy.deepcopy(given)
    outputs = eager(program)(*given)
    assert [float(v) for v in outputs[1::2]] == [1.0, 2.0, 3.0, 4.0]
    assert all(torch.equal(a[0], b[0]) for a, b in zip(given, kept, strict=True))


def test_a_draw_shares_buffers_between_methods() -> None:
    shared = 0
    for seed in range(60):
        program = draw(seed, LANES["program"].profile)
        if len(program.methods) > 1:
            names = [
                {n for part in m for n, t in part.held if "Buffer" in t} for m in program.methods
            ]
            shared += bool(names[0] & names[1])
    assert shared >= 3
