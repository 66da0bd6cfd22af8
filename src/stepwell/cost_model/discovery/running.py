"""Run discovery: grammars in parallel on Dask, with one file of results for each, which a later
run continues.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from stepwell.cost_model.discovery.candidates import flows
from stepwell.cost_model.discovery.enumeration import GAIN, Candidate, Enumeration, render
from stepwell.cost_model.discovery.evaluation import Evaluator
from stepwell.cost_model.discovery.proofs import decided, proved_rule
from stepwell.cost_model.discovery.tables import grammars
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.platform.files import write_atomically
from stepwell.model_zoo.sweep.cluster import connected, distributed, local_cluster


@dataclass
class Finding:
    """A candidate that was judged.

    Attributes:
        before, after: both terms as text.
        flows: the ratio of their costs after today's flow, by target.
        proof: how the equality is proved; empty if it is not.
        rule: the text of the rule, if it is proved as one.
        scope: the shapes for which the rule is proved.
    """

    before: str
    after: str
    flows: dict[str, float]
    proof: str = ""
    rule: str = ""
    scope: str = ""

    @property
    def is_new(self) -> bool:
        """Whether today's flow to some target does not reach the cheaper term."""
        return any(ratio > GAIN for ratio in self.flows.values())


@dataclass
class Result:
    """What was found in one grammar.

    Attributes:
        grammar: its name, `target/name`.
        terms, classes, implied: the number of terms, of different values, and of pairs of equal
            terms that a smaller candidate implies.
        complete: up to this number of nodes, all terms were enumerated.
        candidates: the number of candidates.
        judged: those that were lowered, proved if they are new.
        seconds: the CPU time.
    """

    grammar: str
    terms: int
    classes: int
    implied: int
    complete: int
    candidates: int
    judged: list[Finding] = field(default_factory=list[Finding])
    seconds: float = 0.0


def discover(name: str, terms: int, judged: int) -> Result:
    """Enumerate a grammar, and judge the smallest candidates."""
    start = time.process_time()
    found = Enumeration(grammars()[name], terms)
    found.run()
    pairs = [*found.candidates()]
    minimal = found.minimal(pairs)
    implied, count = len(pairs) - len(minimal), len(found.classes)
    result = Result(name, found.terms, count, implied, found.complete, len(minimal))
    for number, candidate in enumerate(minimal[:judged]):
        result.judged.append(_judged(found, candidate, f"{_slug(name)}-{number}"))
    result.seconds = time.process_time() - start
    return result


def _judged(found: Enumeration, pair: Candidate, name: str) -> Finding:
    grammar, nodes = found.grammar, found.nodes
    finding = Finding(
        render(pair.before, nodes),
        render(pair.after, nodes),
        flows(grammar, nodes, pair, Evaluator(grammar).large),
    )
    if finding.is_new:
        finding.proof = decided(grammar, nodes, pair)
        rule = proved_rule(name, grammar, nodes, pair) if finding.proof else None
        if rule is not None:
            finding.rule, finding.scope = rule[0], str(rule[1])
    return finding


def _slug(name: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in name)


def discover_each(
    names: Sequence[str], folder: Path, jobs: int, terms: int, judged: int
) -> Iterator[Result]:
    """Yield the results of grammars, those of an earlier run first; each is stored in a folder.

    Args:
        names: grammars, as in `grammars()`; all if there are none.
        folder: one JSON file for each grammar. A file of lower limits is written anew.
        jobs: the number of worker processes.
        terms, judged: the limits of each grammar.

    Raises:
        StepwellError: a grammar is unknown, or Dask is not installed.
    """
    known = grammars()
    if unknown := [name for name in names if name not in known]:
        raise StepwellError(
            f"there is no grammar {unknown[0]!r}", help=f"grammars are {', '.join(known)}"
        )
    folder.mkdir(parents=True, exist_ok=True)
    waiting: list[str] = []
    for name in names or known:
        held = _read(folder / f"{_slug(name)}.json", terms, judged)
        if held is None:
            waiting.append(name)
        else:
            yield held
    if not waiting:
        return
    with local_cluster(jobs) as address, connected(address) as client:
        futures = client.map(discover, waiting, terms=terms, judged=judged, pure=False)
        for future in distributed.as_completed(futures, loop=client.loop):
            result = future.result()
            rows = {"limits": [terms, judged], **asdict(result)}
            path = folder / f"{_slug(result.grammar)}.json"
            write_atomically(path, json.dumps(rows, indent=1).encode())
            yield result


def _read(path: Path, terms: int, judged: int) -> Result | None:
    if not path.exists():
        return None
    rows: dict[str, Any] = json.loads(path.read_text())
    limits = rows.pop("limits")
    if limits[0] < terms or limits[1] < judged:
        return None
    rows["judged"] = [Finding(**row) for row in rows["judged"]]
    return Result(**rows)


COLUMNS = ("grammar", "terms", "all up to", "values", "equal pairs", "minimal", "smallest",
           "not lowered", "new", "not proved", "changed by engines", "rules")  # fmt: skip
"""The columns of a page's table, which the page explains."""


def table(results: Sequence[Result]) -> str:
    """Return what was enumerated and found as a table of Markdown."""
    rows: list[tuple[Any, ...]] = [COLUMNS, ("---",) * len(COLUMNS)]
    for each in sorted(results, key=lambda r: r.grammar):
        new = [finding for finding in each.judged if finding.is_new]
        rows.append((
            f"`{each.grammar}`", each.terms, f"{each.complete} nodes", each.classes,
            each.candidates + each.implied, each.candidates, len(each.judged),
            sum(not finding.flows for finding in each.judged), len(new),
            sum(not finding.proof for finding in new),
            sum("special values" in f"{finding.proof}{finding.scope}" for finding in new),
            sum(bool(finding.rule) for finding in new),
        ))  # fmt: skip
    return "".join(f"| {' | '.join(map(str, row))} |\n" for row in rows)


SHOWN = 12
"""The rules of a grammar that a page lists."""
START = "<!-- results of stepwell discover -->\n"
"""The mark in a page behind which the results are."""


def with_results(page: str, results: Sequence[Result]) -> str:
    """Return a page with its results replaced; the text before them is unchanged."""
    return page.partition(START)[0] + START + "\n" + table(results) + listing(results)


def listing(results: Sequence[Result]) -> str:
    """Return the first rules that are new and proved, by grammar, as text for a page."""
    blocks: list[str] = []
    for each in sorted(results, key=lambda r: r.grammar):
        rules = [f"{f.before} => {f.after}: {f.scope or f'proved {f.proof}'}"
                 for f in each.judged if f.is_new and f.proof]  # fmt: skip
        if more := rules[SHOWN:]:
            rules[SHOWN:] = [f"… and {len(more)} more (`--rules` writes them)"]
        if rules:
            blocks += ["", f"`{each.grammar}`", "", "```text", *rules, "```"]
    return "\n".join(blocks) + "\n"
