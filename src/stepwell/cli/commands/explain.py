"""`stepwell explain MODEL -t TARGET`: what was each op lowered to, and why were some not?"""

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from stepwell.backends.executorch.reading.read import read_container
from stepwell.cli.commands import options_of
from stepwell.cli.terminal.outcome import Outcome
from stepwell.cli.terminal.progress import waiting
from stepwell.cli.terminal.quantization import quantization_of
from stepwell.cli.terminal.sources import open_artifact
from stepwell.cost_model.cost_differences import cost_differences
from stepwell.cost_model.optimum import optimum
from stepwell.inspection.reports.deployment import Deployment, deployment, deployment_of_c
from stepwell.inspection.reports.explaining import explain, explain_artifact
from stepwell.inspection.viewer.memory import memory_plans, to_text
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.platform.files import read_bytes
from stepwell.loaders.models import open_model
from stepwell.lowering import Lowered


def run(arguments: argparse.Namespace) -> Outcome:
    """Lower a model and print what became of each of its ops, the costliest first."""
    path = Path(arguments.model)
    is_pte = path.suffix == ".pte"
    if arguments.memory and (is_pte or path.suffix in (".tosa", ".vgf")):
        return _draw_memory(arguments.model, read_bytes(path) if is_pte else None)
    artifact = open_artifact(arguments.model, largest=arguments.deploy)
    if arguments.deploy and artifact is not None:
        if not is_pte:
            raise StepwellError(f"{arguments.model} is not a .pte", help="--deploy reads a .pte")
        container = read_container(artifact.data)
        return _tell_needs(deployment(container, artifact.program, len(artifact.data)))
    if artifact is not None:
        for note in artifact.notes:
            print(note, file=sys.stderr)
        explanation = explain_artifact(artifact.program, path.name, artifact.target)
    else:
        options = options_of(arguments)
        with waiting(f"lowering {arguments.model}"):
            model = open_model(arguments.model, trust=arguments.trust, **quantization_of(arguments))
            if arguments.costs:
                differences = cost_differences(
                    model.program, arguments.costs, arguments.target, **options
                )
                print(differences)
                return Outcome({"costs": differences})
            if arguments.optimum:
                best = optimum(model.program, arguments.target, arguments.optimum, **options)
                print(best)
                return Outcome({"target": best.target, "gain": best.gain, "steps": best.steps})
            explanation = explain(model.program, arguments.target, **options)
        assert explanation.lowered is not None
        if arguments.deploy:
            return _tell_needs(_needs_of(explanation.lowered))
        if arguments.memory:
            return _memory_of(explanation.lowered)
    if arguments.outside:
        explanation = replace(explanation, only_outside=True)
    print(explanation)
    return Outcome({"target": explanation.target, "ops": explanation.shown})


def _needs_of(lowered: Lowered) -> Deployment:
    """Return what a lowering needs; of a project in C, what its program does."""
    if "project" not in lowered.options:
        return lowered.deployment()
    return deployment_of_c(lowered.to_c(runtime=None), lowered.program)


def _tell_needs(needs: Deployment) -> Outcome:
    print(needs)
    names = "kernels backends libraries arena constants packed workspace resident runtime".split()
    told = {name: getattr(needs, name) for name in names}
    ports = {" ".join(side): list(map(str, each)) for side, each in needs.ports.items()}
    return Outcome({**told, "ports": ports, "selective_build": needs.selective_build_yaml()})


def _memory_of(lowered: Lowered) -> Outcome:
    """Print the memory plan of a lowering: of a `.pte` in full, of C its size."""
    kind, made = lowered.target.artifact, lowered.artifact
    if kind == "c":
        print(f"{made}\nthe plan of C is in model.c; the same model for cortex-m55 is drawn")
        return Outcome({"memory": [{"size": made.arena}]})
    return _draw_memory(f"what {lowered.target.name} makes", made if kind == "pte" else None)


def _draw_memory(what: str, data: bytes | None) -> Outcome:
    """Print the plan of each arena of a `.pte`."""
    if data is None:
        raise StepwellError(
            f"{what} is not a .pte, so it has no arena",
            help="-t cortex-m55, ethos-u55-128 or xnnpack writes a .pte",
        )
    plans = memory_plans(read_container(data))
    print("\n\n".join(map(to_text, plans)) if plans else "no method plans memory")
    return Outcome({"memory": plans})
