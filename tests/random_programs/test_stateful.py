"""Programs that are called several times: what the test of state notices, and what it draws."""

import copy
import random
import re
from dataclasses import replace

import pytest
import torch

import stepwell

from .drawing import draw
from .profiles import STATE, lane_of
from .sizes import spread
from .source import Call, Method, Program, all_calls
from .verdicts import judge, judge_whole


def test_a_seed_gives_the_same_program_always() -> None:
    for seed in range(20):
        program = draw(seed, STATE)
        assert draw(seed, STATE) == program
        assert Program.of_json(program.as_json()) == program


def test_seven_sizes_hold_both_ends_and_stay_within() -> None:
    for low, high in ((1, 7), (2, 13), (3, 20), (4, 10)):
        sizes = spread(random.Random(0), low, high, 5)
        assert len(sizes) == 7
        assert {low, low + 1, high} <= set(sizes) <= set(range(low, high + 1))


INPUTS = (("x0", "normal(k, (1, 3, 4), f32)"),)
HELD = (("self.c0", "nn.Buffer(torch.zeros(1))"),)
COUNTS = Method(("self.c0.add_(1)\nv0 = x0 * self.c0",), ("v0",))
AGAIN = Method(("self.c0.add_(1)\nv1 = x0 * self.c0",), ("v1",))


def counting(*methods: Method, calls: tuple[Call, ...] = (Call(),) * 4) -> Program:
    return Program(INPUTS, methods, HELD, calls)


def test_a_target_that_forgets_its_state_is_a_mismatch(monkeypatch: pytest.MonkeyPatch) -> None:
    program = counting(COUNTS)
    assert program.has_state
    assert judge(program, "program").kind == "equal"
    forgetful = property(lambda self: {}, lambda self, value: None)
    monkeypatch.setattr("stepwell.ir.program.Session.state", forgetful, raising=False)
    found, _ = judge_whole(program, lane_of("program"))
    assert found.kind == "mismatch" and "call 1" in found.said


def test_a_method_that_has_state_of_its_own_is_a_mismatch(monkeypatch: pytest.MonkeyPatch) -> None:
    program = counting(COUNTS, AGAIN, calls=(Call(0), Call(1), Call(0), Call(1, fed=True)))
    assert judge(program, "xnnpack").kind == "equal"
    call = stepwell.Program.start

    def apart(self: stepwell.Program) -> object:
        sessions = {name: call(self) for name in self.methods}

        class Apart:
            def run(self, *args: object, method: str) -> object:
                return sessions[method].run(*args, method=method)

        return Apart()

    monkeypatch.setattr(stepwell.Program, "start", apart)
    found, _ = judge_whole(program, lane_of("program"))
    assert found.kind == "mismatch" and "call 1" in found.said


def test_a_refused_statement_is_removed_and_the_rest_judged() -> None:
    gamma = "v1 = torch.igamma(x0.abs() + 0.1, x0.abs())"
    program = counting(Method((gamma, *COUNTS.statements), ("v0", "v1")))
    found = judge(program, "stateful: tosa fp")
    assert found.kind == "equal" and found.refusals and found.statements == 1


def test_an_output_is_fed_back_as_a_copy() -> None:
    method = replace(COUNTS, outputs=("v0", "self.c0"))
    program = counting(method, calls=(Call(), Call(fed=True), Call(fed=True), Call()))
    given = program.every_given()
    kept = copy.deepcopy(given)
    outputs = all_calls(program)(*given)
    assert [float(v) for v in outputs[1::2]] == [1.0, 2.0, 3.0, 4.0]
    assert torch.equal(outputs[2], outputs[0] * 2) and torch.equal(outputs[4], outputs[2] * 3)
    assert all(torch.equal(a[0], b[0]) for a, b in zip(given, kept, strict=True))


def test_a_draw_shares_buffers_between_methods() -> None:
    shared = 0
    for seed in range(60):
        program = draw(seed, STATE)
        if len(program.methods) > 1:
            used = [set(re.findall(r"self\.c\d+", " ".join(m.statements))) for m in program.methods]
            buffers = {name for name, text in program.held if "Buffer" in text}
            shared += bool(used[0] & used[1] & buffers)
    assert shared >= 3
