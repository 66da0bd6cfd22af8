"""How often do rules that `stepwell discover` found match in programs of the zoo?

    python tools/rule_occurrences.py FOLDER MODELS... [-t TARGET]

FOLDER is that of `stepwell discover --state`. Each model is lowered, and every proved rule of the
folder is matched at every op of the lowered program, and of the same program raised to PyTorch's
operators.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

import stepwell
from stepwell.cost_model.discovery import proofs
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.program import Program
from stepwell.model_zoo.catalogue.models import select
from stepwell.translate.rules import read_rules
from stepwell.translate.rules.compiling import Matched


def found_rules(folder: Path) -> dict[str, list[tuple[str, Any]]]:
    """Return the proved rules of a folder by the op at which they match: (pair as text, rule)."""
    by_root: dict[str, list[tuple[str, Any]]] = defaultdict(list)
    for file in sorted(folder.glob("*.json")):
        for finding in json.loads(file.read_text())["judged"]:
            for rewrite in read_rules(finding["rule"], vars(proofs)) if finding["rule"] else ():
                said = f"{finding['before']} => {finding['after']}"
                for form in rewrite.rule.forms:
                    by_root[form.root.op].append((said, rewrite()))
    return by_root


def matches(program: Program, by_root: dict[str, list[tuple[str, Any]]]) -> Iterator[str]:
    """Yield the rules that match in a program, once for each place."""
    for op in program.module.walk():
        for said, rewrite in by_root.get(op.name, ()):
            if isinstance(rewrite.match(op, program), Matched):
                yield said


def programs(name: str, target: str) -> Iterator[Program]:
    """Yield the lowered program of a model, and the same raised to PyTorch's operators."""
    (entry,) = select([name])
    made = entry.make()
    exported = made.program
    if exported is None:
        assert made.module is not None
        exported = torch.export.export(made.module, made.inputs)
    lowered = stepwell.lower(stepwell.from_exported_program(exported), entry.target or target)
    yield lowered.program
    yield lowered.program.raise_to("aten")


def main() -> None:
    """Print how often each rule matches, and in which models."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("models", nargs="+")
    parser.add_argument("-t", "--target", default="xnnpack")
    arguments = parser.parse_args()
    by_root = found_rules(arguments.folder)
    counted: Counter[str] = Counter()
    where: dict[str, set[str]] = defaultdict(set)
    done = 0
    for entry in select(arguments.models):
        try:
            for program in programs(entry.name, arguments.target):
                for said in matches(program, by_root):
                    counted[said] += 1
                    where[said].add(entry.name)
            done += 1
        except (StepwellError, RuntimeError, ImportError) as error:
            print(f"{entry.name}: {str(error).splitlines()[0]}")
    print(f"{sum(map(len, by_root.values()))} rules, {done} models")
    for said, count in counted.most_common():
        names = sorted(where[said])
        print(f"{count:5} in {len(names)}: {said} ({', '.join(names[:3])})")


if __name__ == "__main__":
    main()
