"""`stepwell discover`: enumerate terms of targets' nodes, report equal ones of different cost."""

import argparse
from dataclasses import asdict

from stepwell.cli.terminal.outcome import Outcome
from stepwell.cost_model.discovery.running import discover_each, table, with_results
from stepwell.cost_model.discovery.tables import grammars
from stepwell.ir.platform.files import write_atomically


def run(arguments: argparse.Namespace) -> Outcome:
    """Print the results of each grammar, and the proved rules that today's flow lacks."""
    if arguments.list:
        for name, each in grammars().items():
            print(f"{name}: up to {each.most} of {', '.join(each.nodes)}")
        return Outcome({"grammars": list(grammars())})
    results = []
    for result in discover_each(
        arguments.grammars, arguments.state, arguments.jobs, arguments.terms, arguments.candidates
    ):
        results.append(result)
        print(
            f"{result.grammar}: {result.terms} terms, {result.candidates} candidates, "
            f"{sum(f.is_new for f in result.judged)} of {len(result.judged)} are new "
            f"({result.seconds:.0f} s)",
            flush=True,
        )
    print(table(results))
    files = [arguments.state]
    if arguments.table is not None:
        page = arguments.table.read_text(encoding="utf-8")
        write_atomically(arguments.table, with_results(page, results).encode())
        files.append(arguments.table)
    if arguments.rules is not None:
        found = [f for result in results for f in result.judged if f.is_new and f.rule]
        texts = [
            f"# {f.before} => {f.after}: {f.scope}\n# costs: {f.flows}\n{f.rule}" for f in found
        ]
        write_atomically(arguments.rules, "\n".join(texts).encode())
        files.append(arguments.rules)
    return Outcome({"results": [asdict(result) for result in results]}, files)
