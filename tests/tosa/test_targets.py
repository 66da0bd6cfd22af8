"""A target decides which operators and element types may stand; tosa-opt's validation agrees."""

from pathlib import Path

import pytest

from stepwell.backends.tosa.read import read_tosa
from stepwell.dialects.tosa.targets import parse_target

from .graphs import conformance, deserialize, tosa_opt, validate


def kinds(*prefixes: str) -> list[str]:
    names = sorted(conformance("positive"))
    return [name for name in names if any(name.startswith(prefix) for prefix in prefixes)]


SAMPLE = [
    name
    for name in kinds(
        "abs", "add_", "clamp", "bitwise_and", "equal", "sigmoid", "intdiv", "maximum"
    )
    if "shape" not in name
]


@pytest.mark.parametrize("name", SAMPLE)
def test_a_profile_takes_what_tosa_opt_takes(name: str, tmp_path: Path) -> None:
    path = tmp_path / "graph.tosa"
    path.write_bytes(conformance("positive")[name]["test.tosa"])
    program = read_tosa(path.read_bytes())
    for name, target in (("pro_fp", "tosa-1.1+fp"), ("pro_int", "tosa-1.1+int")):
        options = f"specification_version=1.1.draft profiles={name}"
        is_ours = not list(parse_target(target).problems(program.module))
        assert is_ours or tosa_opt(deserialize(path), validate(options))


@pytest.mark.parametrize(
    ("prefix", "target", "complaint"),
    [
        ("cond_if", "tosa-1.1+fp+int+bf16", "controlflow"),
        ("cast_to_block_scaled", "tosa-1.1+fp+bf16", "mxfp"),
        ("add_shape", "tosa-1.1+fp", "shape"),
        ("rescale", "tosa-1.1+fp", "profile int"),
        ("matmul_t_block", "tosa-1.1+fp+shape", "mxfp"),
    ],
)
def test_a_missing_extension_or_profile_is_named(prefix: str, target: str, complaint: str) -> None:
    program = read_tosa(conformance("positive")[kinds(prefix)[0]]["test.tosa"])
    problems = list(parse_target(target).problems(program.module))
    assert any(complaint in problem.fact for problem in problems)


def test_fp8_under_mxfp_alone_is_legal_only_in_block_scaled_operators() -> None:
    target = parse_target("tosa-1.1+fp+mxfp")
    data = conformance("positive")
    casts = [n for n in kinds("cast_to_block_scaled") if "f32" in n]
    for name in casts:
        assert not list(target.problems(read_tosa(data[name]["test.tosa"]).module))
    plain = next(n for n in kinds("concat", "reverse", "gather", "scatter") if "f8e" in n)
    assert list(target.problems(read_tosa(data[plain]["test.tosa"]).module))
