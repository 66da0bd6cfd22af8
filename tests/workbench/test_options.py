"""Options: what is not declared is an error in words, wherever it is given."""

from pathlib import Path
from typing import Any

import pytest
import torch
from eager import exported

import stepwell
from stepwell.ir.context import Context
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.options import ByName, Option, Ranges, chosen, read_options
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import History, Pass
from stepwell.targets.arm import C_OPTIONS, CORTEX_M_OPTIONS, ETHOSU_OPTIONS, TOSA_OPTIONS
from stepwell.targets.table import PIPELINES, find_target
from stepwell.targets.target import OPTIONS
from stepwell.targets.xnnpack import XNNPACK_OPTIONS

from .commands import Commands

DOCS = Path(__file__).parents[2] / "docs"
KINDS = (
    Option("words", ("torch", "finite", "strict"), "torch", "…"),
    Option("flag", bool, False, "…"),
    Option("bytes", range(1, 1 << 32), None, "…"),
    Option("count", int, 1, "…"),
    Option("factor", float, 1.0, "…"),
    Option("table", Path, None, "…"),
    Option("ranges", Ranges(), None, "…"),
    Option("ports", ByName(("int8", "float32")), None, "…"),
)


@pytest.fixture(scope="module")
def program() -> Any:
    return stepwell.from_exported_program(exported(torch.relu, torch.ones(2, 3)))


def said(call: Any, *args: Any, **kwargs: Any) -> str:
    with pytest.raises(StepwellError) as error:
        call(*args, **kwargs)
    return str(error.value)


@pytest.mark.parametrize(
    "given",
    [
        {"words": "strictly"},
        {"words": 3},
        {"words": None},
        {"flag": 1},
        {"flag": "yes"},
        {"bytes": 0},
        {"bytes": True},
        {"bytes": 2.0},
        {"count": "7"},
        {"factor": "7"},
        {"table": 7},
        {"word": "torch"},
        {"ports": "int9"},
        {"ports": {"x": "int9"}},
    ],
    ids=str,
)
def test_a_value_of_another_kind_is_refused_with_what_is_taken(given: dict[str, Any]) -> None:
    (name,) = given
    assert name in said(chosen, KINDS, given, "the test")


def test_every_mistake_is_reported_at_once_with_the_nearest_that_there_is() -> None:
    told = said(chosen, KINDS, {"wrods": "torch", "words": "stric", "flag": 3}, "the test")
    assert "the test has no option 'wrods'" in told and "did you mean 'words'?" in told
    assert "did you mean 'strict'?" in told and "option flag cannot be 3" in told


def test_texts_of_a_command_line_are_read_as_values() -> None:
    texts = ["words=finite", "flag=true", "bytes = 4096", "count=-3", "factor=2", "table=a/b"]
    assert read_options(KINDS, texts, "the test") == {
        "words": "finite",
        "flag": True,
        "bytes": 4096,
        "count": -3,
        "factor": 2.0,
        "table": Path("a/b"),
    }
    assert read_options(KINDS, ["ports=int8"], "the test") == {"ports": "int8"}
    by_name = read_options(KINDS, ["ports=x:int8,y:float32"], "the test")
    assert by_name == {"ports": {"x": "int8", "y": "float32"}}
    ranges = read_options(KINDS, ["ranges=ids:0..9, mask:-1..1"], "the test")
    assert ranges == {"ranges": {"ids": (0, 9), "mask": (-1, 1)}}
    assert chosen(KINDS, {"ranges": {"ids": [0, 9]}}, "the test") == {"ranges": {"ids": (0, 9)}}
    for wrong in (
        "ranges=ids",
        "ranges=ids:0",
        "ranges=ids:3..1",
        "ranges=ids:0..1..2",
        "ports=x:int9",
        "flag=maybe",
        "bytes=many",
        "bytes=0",
        "factor=x",
        "words",
        "nothing=3",
    ):
        said(read_options, KINDS, [wrong], "the test")
    assert "is repeated" in said(read_options, KINDS, ["count=1", "count=2"], "the test")


@pytest.mark.parametrize("target", ["xnnpack", "cortex-m55", "tosa-1.0+fp"])
@pytest.mark.parametrize("call", [stepwell.lower, stepwell.explain, stepwell.check])
def test_a_misspelt_option_is_an_error(call: Any, target: str, program: Any) -> None:
    told = said(call, program, target, bias_from="both", method_="x")
    assert "no option 'bias_from'" in told and "no option 'method_'" in told
    assert ("did you mean 'bias_form'?" in told) == (target == "cortex-m55")


def test_a_misspelt_option_is_an_error_on_the_command_line(command: Commands) -> None:
    command.write(
        "m.py",
        "import torch\ndef good(): return torch.nn.Linear(3, 3).eval(), (torch.ones(2, 3),)\n",
    )
    for name in ("lower", "check", "explain", "show"):
        said = command(f"{name} m.py:good -t cortex-m55 -O bias-from=both", 1)
        assert "did you mean 'bias_form'?" in said.err
    command("explain m.py:good -t cortex-m55 -O bias_form=both")


def test_an_option_of_the_lowering_is_none_of_the_artifact_and_the_other_way_round(
    program: Any,
) -> None:
    lowered = stepwell.lower(program, "xnnpack")
    assert "has no option 'embed'" in said(lowered.to_pte, embed=True)
    assert "cannot be 1" in said(lowered.to_pte, embed_unpacked_constants=1)
    assert lowered.to_pte(embed_unpacked_constants=True)
    graph = stepwell.lower(program, "tosa-1.0+fp")
    assert graph.to_tosa(method="forward") == graph.to_tosa()
    quantized = find_target("cortex-m55")
    told = said(quantized.for_artifact, "pte", {}, {"bias_form": "both"})
    assert "these options belong to lowering" in told


def test_an_option_that_shapes_the_own_pipeline_says_nothing_about_another(program: Any) -> None:
    own = PIPELINES["cortex-m55"]
    assert "changes the target's own pipeline" in said(
        stepwell.lower, program, "cortex-m55", own, bias_form="both"
    )


@pytest.mark.parametrize(
    "wrong",
    [
        {"target": 5},
        {"target": None},
        {"target": "xnpack"},
        {"pipeline": 3},
        {"pipeline": [torch.nn.ReLU]},
        {"observer": 5},
        {"sizes": [2]},
        {"sizes": 2.5},
    ],
    ids=str,
)
def test_arguments_of_another_type_are_errors_in_words(wrong: dict[str, Any], program: Any) -> None:
    told = said(stepwell.lower, program, **{"target": "xnnpack", **wrong})
    assert ("did you mean 'xnnpack'?" in told) == (wrong == {"target": "xnpack"})


def test_steps_read_the_options_of_their_lowering(program: Any) -> None:
    """A step finds every option of the target in the context, with its default if not given."""
    seen: list[Context] = []

    class Look(Pass):
        """Notes the context."""

        name = "look"

        def apply(self, program: Program, history: History) -> int:
            seen.append(program.context)
            return 0

    pipeline = PIPELINES["tosa-1.0+fp"].before("normalize", Look)
    stepwell.lower(program, "tosa-1.0+fp", pipeline)
    stepwell.lower(program, "tosa-1.0+fp", pipeline, method="forward")
    first, second = seen
    assert first is not second and first.target == "tosa-1.0+fp"
    assert first.option("method") == "forward"
    assert not program.context.options and not program.context.target
    assert set(first.options) == {option.name for option in find_target("tosa-1.0+fp").options}


def test_the_page_lists_every_option() -> None:
    rows = [
        f"| {target} | `{o.name}` | {o.values} | {o.default!r} | {o.meaning} | {', '.join(o.at)} |"
        for target, options in (
            ("all", OPTIONS),
            ("xnnpack", XNNPACK_OPTIONS),
            ("cortex-m*", CORTEX_M_OPTIONS),
            ("c, c-*", C_OPTIONS),
            ("ethos-u*", ETHOSU_OPTIONS),
            ("tosa-*, vgf", TOSA_OPTIONS),
        )
        for o in options
    ]
    lines = (DOCS / "options.md").read_text().splitlines()
    assert [line for line in lines if line.startswith("|")][2:] == rows, "\n".join(rows)
