"""What becomes of NaN, infinities, zeros, denormals and overflow: eager, the stock flow, stepwell.

Each form of tests/numerics/forms.py is run on special numbers, placed singly and mixed. Results are
compared by the class of each element. `--table` writes docs/semantics.md, whose first part is
docs/semantics_contract.md: the parts of the dtypes that were measured, those of others stay.

    python bench/semantics.py [--only PATTERN] [--dtypes float32] [--targets PATTERN] [--table PAGE]
    python bench/semantics.py --cores cortex-a53 cortex-a76 neoverse-v1 --table docs/arm64.md
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import torch
from _report import between_markers, cpu_name, prepare

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "numerics"))
from forms import FORMS, INTEGER_FORMS, Form, declared
from measuring import Result, Verdict, eager, exact, judge, stepwells, stock
from specials import NAMES, classes

DOCS = Path(__file__).parent.parent / "docs"
TARGETS = {
    "float32": (
        ("xnnpack", "torch"),
        ("xnnpack", "finite"),
        ("xnnpack", "strict"),
        ("tosa-1.0+fp", "torch"),
        ("cortex-m55", "torch"),
    ),
    "float16": (
        ("xnnpack", "torch"),
        ("xnnpack", "finite"),
        ("xnnpack", "strict"),
        ("tosa-1.0+fp", "torch"),
    ),
    "bfloat16": (("xnnpack", "torch"), ("tosa-1.0+fp+bf16", "torch")),
    "float64": (("xnnpack", "torch"),),
}
"""Targets that hold an element type, with their modes."""
OF_INTEGERS = (("xnnpack", "torch"), ("tosa-1.0+int", "torch"), ("cortex-m55", "torch"))
INTEGERS = ("int8", "int16", "int32", "int64", "uint8")
ALL = (*TARGETS, *INTEGERS)
FLOATS = tuple(TARGETS)
"""What is measured on other cores: integers are the same kernels, and bit for bit."""
KERNELS = ("strict", "cortex-m55")
"""A mode and a target that are compared with the runtime's own kernels: no delegate is theirs."""
CHUNK = 40
"""Forms in a program."""


def changes(found: torch.Tensor, form: Form, dtype: torch.dtype, where: torch.Tensor) -> str:
    """`NaN → +0 ×15`, of the elements that are meant; the commonest three."""
    pairs = zip(
        classes(found)[where].tolist(), classes(eager(form, dtype))[where].tolist(), strict=True
    )
    counted = Counter((NAMES[wanted], NAMES[ours]) for ours, wanted in pairs)
    return ", ".join(f"{one} → {other} ×{n}" for (one, other), n in counted.most_common(3))


def verdict_of(
    found: Result, beside: Result | None, form: Form, dtype: torch.dtype, *, on_arm: bool = False
) -> str:
    """One word for a form: how its classes compare."""
    judged = judge(found, beside, form, dtype)
    if judged is None:
        return "refused"
    if bool(judged.worse.any()) and declared(form.name, dtype, on_arm=on_arm):
        return "declared"
    if bool(judged.worse.any()):
        return "worse" if judged.stock is not None else "differs"
    if bool((judged.ours >= 2).any()):
        only_flush = bool((judged.by_flush | (judged.ours < 2)).all())
        return "denormals read as zero" if only_flush else "as stock"
    return "zeros and denormals" if bool((judged.ours == 1).any()) else "as eager"


ORDER = (
    "as eager",
    "zeros and denormals",
    "denormals read as zero",
    "as stock",
    "differs",
    "declared",
    "worse",
    "refused",
)


def measurable(forms: Sequence[Form], dtype: torch.dtype) -> list[Form]:
    """The forms that eager computes in a dtype."""
    kept: list[Form] = []
    for form in forms:
        try:
            eager(form, dtype)
            exact(form, dtype)
        except RuntimeError:
            continue
        kept.append(form)
    return kept


def in_chunks(forms: Sequence[Form], run: object) -> dict[str, Result]:
    """Results by name, some forms a program."""
    found: dict[str, Result] = {}
    for start in range(0, len(forms), CHUNK):
        some = forms[start : start + CHUNK]
        for form, result in zip(some, run(some), strict=True):  # type: ignore[operator]
            found[form.name] = result
    return found


def report(name: str, only: str, targets: str) -> str:
    """The measured part of a dtype."""
    dtype = getattr(torch, name)
    forms = FORMS if dtype.is_floating_point else INTEGER_FORMS
    kept = measurable([form for form in forms if re.search(only, form.name)], dtype)
    beside = in_chunks(kept, lambda some: stock(some, dtype))
    kernels = in_chunks(kept, lambda some: stock(some, dtype, delegates=False))
    nothing: dict[str, Result | None] = dict.fromkeys(beside)
    rows: dict[str, Counter[str]] = {}
    for label, theirs in (("stock", beside), ("stock, no delegate", kernels)):
        rows[label] = Counter(verdict_of(theirs[f.name], None, f, dtype) for f in kept)
    rows["stock"]["as stock"] += rows["stock"].pop("differs", 0)
    details: list[str] = []
    for target, mode in TARGETS.get(name, OF_INTEGERS):
        label = f"{target}, {mode}"
        if not re.search(targets, label):
            continue
        found = in_chunks(
            kept, lambda some, t=target, m=mode: stepwells(some, dtype, t, numerics=m)
        )
        compared = beside if target == "xnnpack" else nothing
        if mode in KERNELS or target in KERNELS:
            compared = kernels
        words = {f.name: verdict_of(found[f.name], compared[f.name], f, dtype) for f in kept}
        rows[label] = Counter(words.values())
        for form in kept:
            if words[form.name] not in ("as eager", "zeros and denormals", "refused"):
                said = detail(found[form.name], compared[form.name], form, dtype)
                details.append(f"| {label} | `{form.name}` | {words[form.name]} | {said} |")
    lines = [
        f"### {name}: {len(kept)} forms",
        "",
        "| | " + " | ".join(ORDER) + " |",
        "|---|" + "---|" * len(ORDER),
        *(
            f"| {label} | " + " | ".join(str(counted[w]) for w in ORDER) + " |"
            for label, counted in rows.items()
        ),
    ]
    if details:
        lines += [
            "",
            f"#### Forms of {name} that differ from eager by more than a zero",
            "",
            "| target | form | verdict | eager → stepwell | eager → stock |",
            "|---|---|---|---|---|",
            *details,
        ]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def report_of_cores(name: str, only: str, cores: Sequence[str]) -> list[str]:
    """Return what the default preserves of a dtype on cores, then losses; cores share lines."""
    dtype = getattr(torch, name)
    kept = measurable([form for form in FORMS if re.search(only, form.name)], dtype)
    theirs = in_chunks(kept, lambda some: stock(some, dtype, cores=cores))
    ours = in_chunks(kept, lambda some: stepwells(some, dtype, "xnnpack", cores))
    lines: dict[str, list[str]] = {}
    details: dict[str, list[str]] = {}
    for at, core in enumerate(cores):
        here, there = ({f: part(held[f], at) for f in held} for held in (ours, theirs))
        words = {
            f.name: verdict_of(here[f.name], there[f.name], f, dtype, on_arm=True) for f in kept
        }
        counted = Counter(words.values())
        lines.setdefault(" | ".join(str(counted[w]) for w in ORDER), []).append(core)
        for form in kept:
            if (word := words[form.name]) in ("worse", "declared"):
                said = detail(here[form.name], there[form.name], form, dtype)
                details.setdefault(f"`{form.name}` | {word} | {said}", []).append(core)
    rows = (
        [f"| {name} | {', '.join(on)} | {row} |" for row, on in of.items()]
        for of in (lines, details)
    )
    return [*next(rows), "", *next(rows)]


def part(held: Result, at: int) -> Result:
    """The result of one of several cores."""
    return held[at] if isinstance(held, torch.Tensor) else held


def write_cores(found: Sequence[Sequence[str]], page: Path | None) -> None:
    """Both tables, on the page or on the screen."""
    counts = [line for lines in found for line in lines[: lines.index("")]]
    details = [line for lines in found for line in lines[lines.index("") + 1 :]]
    text = [
        "",
        "| | core | " + " | ".join(ORDER) + " |",
        "|---" * (len(ORDER) + 2) + "|",
        *counts,
        "",
        "| | core | form | verdict | eager → stepwell | eager → stock |",
        "|---|---|---|---|---|---|",
        *details,
        "",
    ]
    if page is None:
        print("\n".join(text))
    else:
        between_markers(page, "cores", text)


def detail(found: Result, theirs: Result | None, form: Form, dtype: torch.dtype) -> str:
    """What became of eager's classes, here and in the stock flow."""
    judged = judge(found, theirs, form, dtype)
    assert isinstance(judged, Verdict)
    assert isinstance(found, torch.Tensor)
    ours = changes(found, form, dtype, judged.ours >= 2)
    if not isinstance(theirs, torch.Tensor) or judged.stock is None:
        return f"{ours} | none"
    return f"{ours} | {changes(theirs, form, dtype, judged.stock >= 2) or 'as eager'}"


def enter(page: Path, name: str, text: str) -> None:
    """Put a dtype's part into the page, after the contract; notes and other parts stay."""
    command = "`python bench/semantics.py --table docs/semantics.md`"
    written = page.read_text(encoding="utf-8") if page.exists() else ""
    measured = written.partition("## Measured\n")[2] or f"\nOn {cpu_name()}, by {command}.\n"
    part = f"<!-- {name} -->\n\n{text}\n<!-- /{name} -->"
    held = re.compile(f"<!-- {name} -->.*?<!-- /{name} -->", re.DOTALL)
    if held.search(measured):
        measured = held.sub(lambda _: part, measured)
    else:
        measured += f"\n{part}\n"
    contract = (DOCS / "semantics_contract.md").read_text(encoding="utf-8")
    page.write_text(f"{contract}\n## Measured\n{measured}", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="a pattern of names of forms")
    parser.add_argument("--dtypes", nargs="+", default=ALL, choices=ALL)
    parser.add_argument("--targets", default="", help="a pattern of targets with their modes")
    parser.add_argument("--table", type=Path, help="the page that the dtypes' parts are written to")
    parser.add_argument("--cores", nargs="+", help="the default on these Arm64 cores instead")
    arguments = parser.parse_args()
    prepare()
    if arguments.cores:
        floats = [name for name in arguments.dtypes if name in FLOATS]
        write_cores(
            [report_of_cores(name, arguments.only, arguments.cores) for name in floats],
            arguments.table,
        )
        return
    for name in arguments.dtypes:
        text = report(name, arguments.only, arguments.targets)
        if arguments.table is None:
            print(text)
        else:
            enter(arguments.table, name, text)


if __name__ == "__main__":
    main()
