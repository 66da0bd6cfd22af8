"""Figures of the code base, counted from its files and classes: `python tools/house.py`.

One row each for: lines, rules as text, engines and the targets that use them, axis maps, the toy
target; and facts that should be stated once (`tools/census.py`), each with its target value.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tools")]

import census  # noqa: E402
import check_imports  # noqa: E402
import lines  # noqa: E402

from stepwell.translate.passes import PACKAGES  # noqa: E402

TARGETS = ("cmsis", "tosa", "xnnpack")
ENGINES = {
    "layout": ("stepwell.translate.layout.assign",),
    "affine propagation": ("stepwell.translate.scale_folding",),
    "quantization recognizer": ("stepwell.translate.quantized.recognize",),
}


def users(engine: Iterable[str]) -> list[str]:
    """List the folders of rewrites with a file that imports an engine."""
    found: set[str] = set()
    files = (path for name in PACKAGES for path in (ROOT / "translate" / name).rglob("*.py"))
    for path in files:
        names = [held.name for held in check_imports.imports_of(path, "stepwell.x")]
        if any(name.startswith(tuple(engine)) for name in names):
            found.add(path.parent.name)
    return sorted(found)


def cost_constants() -> list[str]:
    """List constants that are named as costs, prices or weights of copies, outside the targets'
    cost files.
    """
    named = ("NODE", "COPY", "BLOCK", "WORTH", "PRICE", "COST")
    found: list[str] = []
    for path in (ROOT / "translate").rglob("*.py"):
        for line in path.read_text(encoding="utf-8").splitlines():
            name, equals, value = line.partition(" = ")
            if equals and name.strip("_") in named and value[:1].isdigit():
                found.append(f"{path.relative_to(ROOT)}: {line}")
    return found


def rows() -> Iterator[tuple[str, str]]:
    """Yield (quantity, value)."""
    from stepwell.dialects.aten.op import SchemaOp
    from stepwell.ir.axes.maps import HasAxes, mapped_names
    from stepwell.ir.rewriting.rewrite import Rewrite
    from stepwell.pipelines.pass_pipeline.named_passes import step_classes
    from stepwell.translate.lowerings.lowering import LayerLowering, Lowering
    from stepwell.translate.rules.rewrite import RuleRewrite

    for folder in (f"translate/{name}" for name in PACKAGES):
        counted = [
            lines.counted(path.read_text(encoding="utf-8"))
            for path in (ROOT / folder).rglob("*.py")
        ]
        total, code = (sum(column) for column in zip(*counted, strict=True))
        yield f"lines of {folder} (of code)", f"{total} ({code})"
    steps: list[Any] = [cls for cls in step_classes().values() if issubclass(cls, Rewrite)]
    rules = [cls for cls in steps if issubclass(cls, RuleRewrite)]
    forms = sum(len(cls.rule.forms) for cls in rules)
    others = sum(names_another_dialect(cls) for cls in rules)
    yield "rules as text (forms) among rewrites", f"{len(rules)} ({forms}) of {len(steps)}"
    yield "rules that name an op of another dialect than aten (80)", str(others)
    functions = [cls for cls in steps if issubclass(cls, Lowering)]
    layers = sum(issubclass(cls, LayerLowering) for cls in functions)
    yield "functions (of layers between casts)", f"{len(functions)} ({layers})"
    written = [cls for cls in steps if not issubclass(cls, RuleRewrite | Lowering)]
    yield "classes with match and build", str(len(written))
    alone = sorted(cls.name for cls in written if is_of_one_op(cls))
    yield "of them, whose example is one op (15)", f"{len(alone)}: {', '.join(alone)}"
    for name, engine in ENGINES.items():
        yield f"users of the one engine: {name}", ", ".join(users(engine))
    yield "cost constants outside dialects/*/costs", str(len(cost_constants()))
    names = sum(len(mapped_names(dialect)) for dialect in ("aten", "tosa", "cmsis", "xnnpack"))
    own = [cls for cls in classes(HasAxes) if "axis_map" in vars(cls) and cls is not SchemaOp]
    yield "axis maps: by name, by class", f"{names}, {len(own)}"
    toy = (ROOT / "tests/layout/toy3.py").read_text(encoding="utf-8").splitlines()
    yield "lines of a toy target on all engines", str(len(toy))
    yield from census.rows()


def is_of_one_op(rewrite: Any) -> bool:
    """Whether the pattern of a rewrite's example is one op, apart from weights."""
    from stepwell.ir.core import WeightOp
    from stepwell.ir.syntax.text import parse_module
    from stepwell.translate.rewrites.documentation import examples_of

    beside = ("builtin.module", "func.func", "func.return", WeightOp.name)
    examples = examples_of(sys.modules[rewrite.__module__])
    ops = [
        [op for op in parse_module(text).walk() if op.name not in beside] for text, _ in examples
    ]
    return bool(ops) and min(map(len, ops)) == 1


def names_another_dialect(rule: Any) -> bool:
    """Whether a rule matches, reads or writes an op that is not torch's."""
    lines = {line.op for form in rule.rule.forms for line in (*form.before, *form.after)}
    ops = lines | {cls.name for cls in rule.anchors if cls.name}
    return any("." in op and not op.startswith("aten.") for op in ops)


def classes(base: type) -> Iterator[type]:
    """Yield all subclasses of a class."""
    for cls in base.__subclasses__():
        yield cls
        yield from classes(cls)


def main() -> int:
    """Print the table."""
    print("| what | figure |\n|---|---|")
    for what, figure in rows():
        print(f"| {what} | {figure} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
