"""Every step of every pipeline stands where it does for a reason that programs bear out."""

from collections.abc import Iterable, Iterator, Mapping

import pytest
from example_models import program
from rewrite_runs import program_of

from stepwell.ir.program import Program
from stepwell.ir.rewriting.forms import Form, Position
from stepwell.ir.rewriting.rewrite import History, Step, apply_step, step_name
from stepwell.pipelines.arm import tosa_pipeline
from stepwell.pipelines.pass_pipeline.ordering import PLAIN, places_of
from stepwell.plugins.plugins import registry
from stepwell.targets.table import PIPELINES

MOST_STEPS = {"xnnpack": 40}
PROGRAMS = (
    "control_flow:cond_model",
    "dynamic:dynamic_length",
    "llama:llama_block",
    "recurrent:gru",
    "transformer:transformer_encoder_2layers",
)
TARGETS = ("xnnpack", "tosa-1.1+fp+int+shape+controlflow", "cortex-m55")


def misplaced(steps: Iterable[Step], places: Mapping[str, Position]) -> Iterator[str]:
    """Each step without a reason, and each whose required form is not established."""
    forms: set[Form] = set()
    for step in steps:
        name = step_name(step)
        place = places.get(name)
        if place is None:
            yield f"{name} states no reason for its position"
            continue
        yield from (
            f"{name} needs a {form.name} program ({form.says}); no earlier pass leaves it so"
            for form in place.needs
            if form not in forms
        )
        forms.difference_update(place.ends)
        forms.update(place.leaves)


def breach(form: Form, at: Program) -> str | None:
    """Why a program is not of a form; None if it is."""
    history = History()
    if not apply_step(form.step, at.clone(), history):
        return None
    first = history.events[0] if history.events else None
    where = f": {first.rewrite} applies to {first.where}" if first else ""
    return f"the program is not {form.name} ({form.says}){where}"


@pytest.mark.parametrize("target", [name for name in PIPELINES if name not in registry().targets])
def test_every_step_has_a_reason_and_finds_the_form_it_needs(target: str) -> None:
    steps = PIPELINES[target].steps
    assert list(misplaced(steps, places_of(target))) == []
    assert len(steps) <= MOST_STEPS.get(target, 45)


def test_a_step_ahead_of_what_it_needs_is_named() -> None:
    pipeline = PIPELINES["xnnpack"].without("/normalize")
    (first, *_) = misplaced(pipeline.steps, places_of("xnnpack"))
    assert first == (
        "fold-weights needs a plain program (each operation is in canonical form); "
        "no earlier pass leaves it so"
    )


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_form_holds_from_the_step_that_leaves_it_to_the_one_that_ends_it(
    name: str, target: str
) -> None:
    places, held = places_of(target), dict[Form, str]()

    def look(step: Step, at: Program, applied: int) -> None:
        place = places[step_name(step)]
        for form in place.ends:
            held.pop(form, None)
        held.update(dict.fromkeys(place.leaves, step_name(step)))
        if applied or place.leaves:
            broken = [f"{step_name(step)}: {said}" for form in held if (said := breach(form, at))]
            assert not broken

    pipeline = tosa_pipeline(target) if target.startswith("tosa") else PIPELINES[target]
    pipeline.run(program(name), look)


def test_a_program_that_is_not_of_a_form_says_what_it_has() -> None:
    said = breach(PLAIN, program_of("%y = aten.relu.default(%x: f32[2])"))
    assert said and said.startswith(
        "the program is not plain (each operation is in canonical form)"
    )
    assert "relu-to-clamp" in said
