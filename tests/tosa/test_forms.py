"""Every operator on every choice of element types, for every target: tosa-opt says what we say."""

import random
import re
import subprocess
from bisect import bisect
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import pytest

from stepwell.backends.tosa.installed import tool
from stepwell.dialects.tosa.generated import OPERATORS
from stepwell.dialects.tosa.structural import STRUCTURAL
from stepwell.dialects.tosa.targets import EXTENSIONS, TosaTarget, parse_target
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.levels import set_level
from stepwell.ir.syntax.text import parse_module
from stepwell.ir.verification import verify

from .instances import SCALED, Instance, instances

TOSA_OPT = tool("tosa-opt")
KNOWN = frozenset(EXTENSIONS) - {"dynamic"}
"""Extensions that element types ask for."""

VARIED = frozenset(("conv2d", "matmul", "matmul_t"))


def stricter(instance: Instance, target: TosaTarget) -> str | None:
    """Why we refuse what tosa-opt takes: the sentence of the specification that it leaves out."""
    name, types = instance.operator, instance.types
    if name == "reshape_block_scaled":
        return "the table of RESHAPE_BLOCK_SCALED; tosa-opt has none"
    if name == "resize" and types[0] in ("i8", "i16"):
        return "bilinear gives int32 and int48, nearest neighbor the type of the input"
    if name in VARIED and types[0] != types[1]:
        return "deduced extensions and EXT-FP8E4M3 and EXT-FP8E5M2: both operands' are needed"
    if {"f16", "f32"} & set(types) and "fp" not in target.profiles:
        return "PRO-FP and EXT-INT64, PRO-FP and EXT-SHAPE"
    return None


def targets() -> Iterator[TosaTarget]:
    """Versions and profiles, with each extension alone, with those of a payload, with all."""
    for version in ("1.0", "1.1"):
        for profiles in ({"fp"}, {"int"}, {"fp", "int"}):
            able = {
                name
                for name in KNOWN
                if EXTENSIONS[name][0] <= version and EXTENSIONS[name][1] in (None, *profiles)
            }
            sets = [set[str](), able, *({name} for name in sorted(able))]
            sets += [{"mx_common", name} for name in sorted(able) if name.startswith("mx_")]
            for extensions in sets:
                yield TosaTarget(version, frozenset(profiles), frozenset(extensions))


EVERYTHING = parse_target("tosa-1.1+fp+int+" + "+".join(sorted(KNOWN)))


def module_for(instance: Instance, target: TosaTarget) -> str:
    """The instance in a module that bears its target. Upstream cannot read an empty list."""
    version = "1.0" if target.version == "1.0" else "1.1.draft"
    profiles = ", ".join(f"pro_{name}" for name in sorted(target.profiles))
    extensions = ", ".join(sorted(target.extensions | {"variable"}))
    level = target.level.name.lower()
    return (
        f"module attributes {{tosa.target_env = #tosa.target_env<specification_version = "
        f'"{version}", level = "{level}", '
        f"profiles = [{profiles}], extensions = [{extensions}]>}} {{\n"
        f"{instance.text}}}\n// -----\n"
    )


def refused_upstream(cases: Sequence[tuple[Instance, TosaTarget]], folder: Path) -> set[int]:
    """The numbers of the cases that one run of tosa-opt reports errors in."""
    texts = [module_for(*case) for case in cases]
    starts = [1]
    for text in texts:
        starts.append(starts[-1] + text.count("\n"))
    path = folder / "cases.mlir"
    path.write_text("".join(texts))
    passes = "--pass-pipeline=builtin.module(tosa-validate{strict-op-spec-alignment})"
    command = [TOSA_OPT, "--split-input-file", passes, path, "-o", "/dev/null"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = re.findall(r"cases\.mlir:(\d+):\d+: error:", done.stderr)
    return {bisect(starts, int(line)) - 1 for line in lines}


@cache
def ours(instance: Instance, target: TosaTarget) -> str | None:
    """Why we refuse an instance for a target, or None."""
    try:
        module = parse_module(instance.text)
        set_level(module, "tosa")
        verify(module)
    except StepwellError as error:
        return error.problems[0].fact
    return next((problem.fact for problem in target.problems(module)), None)


def disagreements(cases: Sequence[tuple[Instance, TosaTarget]], folder: Path) -> list[str]:
    """What one side takes and the other does not, but where tosa-opt is known to be lax."""
    refused = refused_upstream(cases, folder)
    found: list[str] = []
    for index, (instance, target) in enumerate(cases):
        reason = ours(instance, target)
        if (reason is not None) == (index in refused):
            continue
        if reason is None or stricter(instance, target) is None:
            what = f"{instance.operator} {' '.join(instance.types)} for {target.name}"
            found.append(f"{what}: {reason or 'taken, tosa-opt refuses'}")
    return found


def test_a_sample_of_operators_types_and_targets_is_taken_as_tosa_opt_takes_it(
    tmp_path: Path,
) -> None:
    source = random.Random(0)
    every = list(targets())
    likely = [case for case in instances() if not set(case.types) & set(SCALED)]
    chosen = source.sample(likely, 300) + source.sample(list(instances()), 100)
    cases = [(case, source.choice([EVERYTHING, source.choice(every)])) for case in chosen]
    assert disagreements(cases, tmp_path) == []


def test_every_operator_has_instances_but_those_that_hold_no_types() -> None:
    every = {cls.name.removeprefix("tosa.") for cls in (*OPERATORS, *STRUCTURAL)}
    missing = every - {instance.operator for instance in instances()}
    assert missing == {"custom", "variable", "variable_read", "variable_write", "yield"}


@pytest.mark.slow
def test_every_choice_of_types_is_taken_as_tosa_opt_takes_it(tmp_path: Path) -> None:
    assert disagreements([(case, EVERYTHING) for case in instances()], tmp_path) == []


@pytest.mark.slow
@pytest.mark.parametrize("target", targets(), ids=lambda target: target.name)
def test_a_target_takes_the_forms_that_tosa_opt_takes(target: TosaTarget, tmp_path: Path) -> None:
    cases = [(case, target) for case in instances() if ours(case, EVERYTHING) is None]
    assert disagreements(cases, tmp_path) == []
