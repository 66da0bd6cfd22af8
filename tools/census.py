"""Counts of repeated facts in the code base: rows for `tools/house.py`.

Each function counts one fact that an engine, a declaration or a name should state once; the row
contains the target value.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import check_imports

ROOT = Path(__file__).resolve().parents[1]
VAGUE = frozenset("held found given made got thing things stuff tmp temp foo bar said".split())
"""Names that say nothing about a value."""
SIZES = ("size", "dim", "length", "extent")
FAMILIES = ("movement", "elementwise", "reduction", "write", "random")


@cache
def trees() -> dict[Path, ast.Module]:
    """Parse every hand-written file of the package."""
    return {
        path: ast.parse((ROOT / path).read_text(encoding="utf-8"))
        for path in check_imports.source_files(ROOT)
        if "generated" not in str(path)
    }


def bound_names(tree: ast.AST) -> Iterator[str]:
    """Yield every name that a file binds: variables, parameters, functions, classes, captures."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                yield name
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                yield name
            case _:
                pass


def vague_names() -> tuple[int, int, Counter[str]]:
    """Count the bound names that are vague, all bound names, and the occurrences of each."""
    names = [name.strip("_") for tree in trees().values() for name in bound_names(tree)]
    vague = Counter(name for name in names if name in VAGUE)
    return vague.total(), len(names), vague


def engines_of_values() -> list[str]:
    """List `translate/range_analysis`, and classes elsewhere that store an interval for
    each value.
    """
    places = ["translate/range_analysis"]
    for path, tree in trees().items():
        if path.is_relative_to("translate/range_analysis"):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                fields = [ast.unparse(n) for n in node.body if isinstance(n, ast.AnnAssign)]
                if any("dict[SSAValue" in text and "Interval" in text for text in fields):
                    places.append(f"{path}: {node.name}")
    return places


def tables() -> Iterator[tuple[str, Any]]:
    """Yield (place, value) of every module constant above the dialects."""
    for path, tree in trees().items():
        if path.parts[0] in ("ir", "dialects"):
            continue
        names = {
            target.id
            for node in tree.body
            for target in (
                node.targets
                if isinstance(node, ast.Assign)
                else [node.target]
                if isinstance(node, ast.AnnAssign) and node.value is not None
                else ()
            )
            if isinstance(target, ast.Name) and target.id.isupper()
        }
        if names:
            module = import_module(check_imports.module_name(path))
            yield from ((f"{path}: {name}", getattr(module, name)) for name in sorted(names))


def op_names(table: Any) -> list[str]:
    """List the names of the ops in a tuple or set; empty if it contains anything else."""
    if not isinstance(table, tuple | set | frozenset) or len(table) < 2:
        return []
    names = [each if isinstance(each, str) else getattr(each, "name", None) for each in table]
    return [name for name in names if isinstance(name, str) and "." in name]


@cache
def asked_about() -> frozenset[str]:
    """Return the names after `in`, or used as the classes of an `isinstance`."""
    questions: set[str] = set()
    for tree in trees().values():
        for node in ast.walk(tree):
            tested: list[ast.AST] = []
            if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn):
                tested = [node.comparators[0]]
            elif isinstance(node, ast.Call) and ast.unparse(node.func) == "isinstance":
                tested = [node.args[1]]
            questions |= {
                n.id for each in tested for n in ast.walk(each) if isinstance(n, ast.Name)
            }
    return frozenset(questions)


def private_sets() -> list[tuple[str, str]]:
    """List (place, family) of sets that contain only ops of one family and that are used in a test
    of an op.

    Anchors of a rewrite, or the names of the ops that a lowering supports, do not count.
    """
    from stepwell.ir.declared.families import families_of

    listed: list[tuple[str, str]] = []
    for place, table in tables():
        names = op_names(table)
        if names and len(names) == len(table) and place.partition(": ")[2] in asked_about():
            shared = frozenset.intersection(*(families_of(name) for name in names))
            listed += [(place, family) for family in FAMILIES if family in shared][:1]
    return listed


def questions_of_strings() -> list[str]:
    """List the uses of `isinstance(size, str)` for names of sizes."""
    return [
        f"{path}:{node.lineno}"
        for path, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) == "isinstance"
        and ast.unparse(node.args[1]) == "str"
        and any(word in ast.unparse(node.args[0]).lower() for word in SIZES)
    ]


def importers(package: str) -> list[str]:
    """List the files that import a package, also within functions."""
    return [
        str(path)
        for path in trees()
        if any(
            imported.name.split(".")[0] == package
            for imported in check_imports.imports_of(ROOT / path, check_imports.module_name(path))
        )
    ]


def rooms(folders: Iterable[str]) -> Counter[str]:
    """Count the files in each folder."""
    return Counter(str(path.parent) for path in trees() if str(path).startswith(tuple(folders)))


def rows() -> Iterator[tuple[str, str]]:
    """Yield (quantity, value), with the target value in brackets."""
    from stepwell.ir.rewriting.rewrite import step_name
    from stepwell.pipelines.pass_pipeline.ordering import places_of
    from stepwell.targets.table import PIPELINES

    engines = engines_of_values()
    yield "engines of value analysis (1)", f"{len(engines)}: {', '.join(engines)}"
    sets = private_sets()
    for family in FAMILIES:
        of = [place for place, each in sets if each == family]
        aim = " (0)" if family == "movement" else ""
        yield f"private sets of ops that are all of: {family}{aim}", " ".join([str(len(of)), *of])
    strings = questions_of_strings()
    yield "`isinstance(…, str)` of a size (< 20)", str(len(strings))
    yield "files that import sympy (1)", ", ".join(importers("sympy"))
    problems = check_imports.problems(ROOT)
    yield "import cycles, all kinds (0)", str(sum(p.startswith("import cycle") for p in problems))
    above = [p for p in problems if p.startswith("ir/") and " names " in p]
    yield "names of upper layers in ir/ (0)", str(len(above))
    for folders in (("translate/rewrites",), ("translate", "dialects", "backends"), ("ir", "src")):
        (room, most), *_ = rooms(folders).most_common(1)
        yield f"files in one folder, most, of {', '.join(folders)} (20)", f"{most} ({room})"
    for target in ("xnnpack", "tosa-1.0+fp", "cortex-m55"):
        if target not in PIPELINES:
            continue
        steps, places = [step_name(step) for step in PIPELINES[target].steps], places_of(target)
        why = sum(bool(places[name].because) for name in steps if name in places)
        forms = sum(
            bool(places[name].needs or places[name].leaves) for name in steps if name in places
        )
        yield (
            f"steps to {target} (xnnpack: 40), with a reason, with forms needed or left",
            f"{len(steps)}, {why}, {forms}",
        )
    vague, names, counts = vague_names()
    yield (
        "vague names (< 3 %)",
        f"{vague} of {names}, {vague / names:.1%}: "
        + ", ".join(f"{name} {count}" for name, count in counts.most_common(5)),
    )
