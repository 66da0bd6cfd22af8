"""Every level as an entrance: each stage's text, artifacts read again, and the way up, counted.

    nice python bench/levels.py                                   # what has no row yet
    python bench/levels.py --models 'examples/resnet*' --targets xnnpack --again
    python bench/levels.py --only raised --models 'transformers/*' --every 20
    python bench/levels.py --table docs/levels.md                 # writes the table alone

Of each model of the zoo (small ones first) and target, `_levels.py` asks: does each stage's text
lead on to the bytes of the direct way; is an artifact, ours or the stock flow's, the same when it
is read and written again; is an artifact that is raised within bounds in torch, lowered again, and
on another target. Rows go to bench/results/levels.jsonl (`--rows`) as they are found, and are not
asked for twice, not even if the process died of one. A question has `--limit` CPU seconds.
"""

from __future__ import annotations

import argparse
import gc
import json
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from _levels import ASKED, EQUAL, Model, NotTaken, is_asked
from _report import RESULTS, between_markers, cpu_name, prepare

import stepwell
from stepwell.model_zoo.catalogue.models import select

BEGUN = "begun: the process ended in it"
TARGETS = (
    "xnnpack",
    "xnnpack-published",
    "cortex-m55",
    "cortex-m4",
    "ethos-u55-128",
    "tosa-1.0+fp",
    "tosa-1.1+fp",
    "tosa-1.0+int",
    "tosa-1.0+fp+int",
    "tosa-1.0+fp+cpu",
    "tosa-1.0+int+cpu",
    "vgf",
)
Row = dict[str, Any]


def kept(file: Path) -> dict[tuple[str, str, str], Row]:
    """The last row of each question."""
    if not file.exists():
        return {}
    rows = map(json.loads, file.read_text(encoding="utf-8").splitlines())
    return {(row["model"], row["target"], row["asked"]): row for row in rows}


def answers(name: str, asked: Sequence[tuple[str, str]], limit: float) -> Iterator[Row]:
    """A row for each (target, question) of a model."""
    model = Model(name)
    torch.manual_seed(0)
    for target, question in asked:
        row = {"model": name, "target": target, "asked": question, "said": BEGUN, "s": 0.0}
        yield row
        started = time.process_time()
        signal.setitimer(signal.ITIMER_PROF, limit)
        try:
            said = ASKED[question](model, target)
        except stepwell.StepwellError as error:
            said = "refused: " + " ".join(str(error).split())[:300]
        except NotTaken as error:
            said = f"untaken: {error}"
        except TimeoutError:
            said = f"not finished in {limit:.0f} s"
        except Exception as error:  # It is a row too.
            said = f"fault: {type(error).__name__}: {' '.join(str(error).split())[:300]}"
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        yield row | {"said": said, "s": round(time.process_time() - started, 2)}


def ask(name: str, asked: Sequence[tuple[str, str]], limit: float, file: Path) -> None:
    """Ask, and keep the rows; that of a question of which the process dies stays as it began."""
    for row in answers(name, asked, limit):
        with file.open("a", encoding="utf-8") as out:
            out.write(json.dumps(row) + "\n")
        if row["said"] != BEGUN:
            line = f"{row['model']:44} {row['target']:18} {row['asked']:9} {row['said'][:110]}"
            print(f"{line} ({row['s']} s)", flush=True)
    gc.collect()


def kind_of(said: str) -> str:
    """`equal`, `differs`, `refused`, `fault`, `not` (finished), `begun`; `untaken`: no way down."""
    return said.partition(" ")[0].rstrip(":,")


def table(rows: Sequence[Row]) -> list[str]:
    """Counts of each question and target."""
    lines = [
        "| asked | target | models that lower | met | named | differ | refused or unfinished |",
        "|---|---|---|---|---|---|---|",
    ]
    for question in ASKED:
        for target in TARGETS:
            found = Counter(
                kind_of(r["said"]) for r in rows if (r["asked"], r["target"]) == (question, target)
            )
            whole = found.total() - found["untaken"]
            if whole:
                other = whole - found[EQUAL] - found["named"] - found["differs"]
                lines.append(
                    f"| {question} | `{target}` | {whole} | {found[EQUAL]} "
                    f"| {found['named']} | {found['differs']} | {other} |"
                )
    return [*lines, "", f"Measured on {cpu_name()}, one thread."]


def main() -> None:
    """Ask what is to be asked, or write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", default=["examples/*"])
    parser.add_argument("--targets", nargs="+", default=TARGETS)
    parser.add_argument("--only", nargs="+", choices=ASKED, default=list(ASKED))
    parser.add_argument("--every", type=int, default=1, help="one model of so many")
    parser.add_argument("--limit", type=float, default=60.0, help="CPU seconds for a question")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--rows", type=Path, default=RESULTS / "levels.jsonl", help="kept here")
    parser.add_argument("--table", type=Path)
    arguments = parser.parse_args()
    if arguments.table:
        between_markers(arguments.table, "levels", table(list(kept(arguments.rows).values())))
        return
    prepare()
    arguments.rows.parent.mkdir(exist_ok=True)

    def over(*_: object) -> None:
        raise TimeoutError

    signal.signal(signal.SIGPROF, over)
    for entry in select(arguments.models)[:: arguments.every]:
        had = {} if arguments.again else kept(arguments.rows)
        asked = [
            (target, question)
            for target in arguments.targets
            for question in arguments.only
            if is_asked(question, target) and (entry.name, target, question) not in had
        ]
        if asked:
            ask(entry.name, asked, arguments.limit, arguments.rows)
    print(Counter(kind_of(row["said"]) for row in kept(arguments.rows).values()), file=sys.stderr)


if __name__ == "__main__":
    main()
