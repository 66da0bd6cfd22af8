"""What no public function takes: each parameter of each is given each of these, one at a time.

A call must return or raise a `StepwellError`; anything else is a bare error.
"""

import contextlib
import functools
import inspect
import io
import pickle
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import torch

import stepwell
from stepwell.backends.cortex_m.c.writer import Sources

from .trial import Trial


class Unknown:
    """Knows nothing of what it is asked."""


def things(folder: Path) -> dict[str, Any]:
    """By name: what is given for a parameter."""
    return {
        "None": None,
        "True": True,
        "3": 3,
        "-1": -1,
        "2.5": 2.5,
        "NaN": float("nan"),
        "empty text": "",
        "text": "no",
        "text with a zero": "a\0b",
        "bytes": b"x",
        "zeros": bytes(64),
        "list": [],
        "list of numbers": [1, 2],
        "dictionary": {},
        "dictionary of numbers": {3: 4},
        "dictionary of texts": {"a": "b"},
        "set": {1},
        "tensor": torch.ones(2),
        "module": torch.nn.ReLU(),
        "class": Unknown,
        "object": Unknown(),
        "function": lambda: None,
        "path": folder / "is not there",
        "folder": folder,
        "open file": io.BytesIO(b"x"),
        "dtype": torch.float32,
    }


VGF = Path(__file__).parents[1] / "tosa" / "vgf" / "twice.vgf"
ELSEWHERE = frozenset(
    "sweep load_plugin unload_plugin xdsl_interpreter torch_alone infers interprets "
    "set_level quantize".split()
)
"""They run campaigns, calibrate, or change what this process knows; their own tests call them."""


def subjects(folder: Path) -> dict[str, tuple[Callable[..., Any], dict[str, Any]]]:
    """By name: a public function or method, and arguments that it takes."""
    x = torch.ones(2, 3)
    exported = torch.export.export(torch.nn.Linear(3, 3).eval(), (x,))
    program = stepwell.from_exported_program(exported)
    lowered = stepwell.lower(program, "xnnpack")
    tosa = stepwell.lower(program, "tosa-1.0+fp")
    cortex = stepwell.lower(program, "cortex-m55")
    program.save(folder / "there.mlir")
    pte = lowered.to_pte()
    found: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
        "from_exported_program": (stepwell.from_exported_program, {"exported": exported}),
        "parse": (stepwell.parse, {"text": str(program), "weights": program.weights}),
        "load": (stepwell.load, {"path": folder / "there.mlir"}),
        "lower": (
            stepwell.lower,
            {
                "program": exported,
                "target": "xnnpack",
                "pipeline": None,
                "observer": None,
                "sizes": None,
                "start": None,
                "stop": None,
                "check": False,
                "numerics": "torch",
            },
        ),
        "emit": (
            stepwell.emit,
            {"program": lowered.program, "target": "xnnpack", "kind": None},
        ),
        "read_pte": (stepwell.read_pte, {"data": pte, "external": None, "largest": False}),
        "read_tosa": (stepwell.read_tosa, {"data": tosa.to_tosa()}),
        "read_vgf": (stepwell.read_vgf, {"data": VGF.read_bytes()}),
        "join_ptds": (stepwell.join_ptds, {"files": [lowered.to_pte_and_ptd()[1]]}),
        "run_pte": (
            stepwell.run_pte,
            {"data": pte, "inputs": [x], "method": "forward", "cpu": None},
        ),
        "to_mxfp": (stepwell.to_mxfp, {"model": program}),
        "transform_pass": (
            stepwell.transform_pass,
            {"rewrite": "lift-constant-scalar"},
        ),
        "register_op": (stepwell.register_op, {"overload": torch.ops.aten.relu.default}),
        "check": (stepwell.check, {"program": program, "target": "xnnpack"}),
        "validate": (stepwell.validate, {"artifact": pte, "source": program, "inputs": None}),
        "budget": (
            stepwell.budget,
            {"lowered": lowered, "delegates": 1, "outside": None, "bytes": None, "arena": None},
        ),
        "dynamic_shapes": (
            lambda model, inputs, dynamic: stepwell.dynamic_shapes(model, inputs, dynamic=dynamic),
            {"model": torch.nn.ReLU(), "inputs": (x,), "dynamic": "batch"},
        ),
        "tune": (stepwell.tune, {"program": program, "inputs": [x]}),
        "mx_accuracy": (stepwell.mx_accuracy, {"model": program, "samples": [(x,)]}),
        "accuracy": (
            stepwell.accuracy,
            {
                "model": program,
                "target": "tosa-1.1+fp+mx_common+mx_fp8e4m3",
                "data": [((x,), None)],
                "levels": 0,
            },
        ),
        "explain": (stepwell.explain, {"program": program, "target": "xnnpack"}),
        "Program.method": (program.method, {"name": "forward"}),
        "Program.signature": (program.signature, {"name": "forward"}),
        "Program.run": (program.run, {"method": "forward", "args": x}),
        "Program.text": (program.text, {"constants": 3}),
        "Program.save": (program.save, {"path": folder / "saved.mlir"}),
        "Program.to_exported_program": (program.to_exported_program, {"method": "forward"}),
        "Session.run": (program.start().run, {"method": "forward", "args": x}),
        "Lowered.run": (lowered.run, {"method": "forward", "args": x}),
        "Lowered.save": (lowered.save, {"path": folder / "saved.pte", "progress": None}),
        "Lowered.emit": (lowered.emit, {"kind": None}),
        "Lowered.to_pte": (lowered.to_pte, {"cpu": "", "optimize": "speed"}),
        "Lowered.to_tosa": (tosa.to_tosa, {"version": "1.0"}),
        "Lowered.to_c": (
            cortex.to_c,
            {
                "name": "m",
                "header": True,
                "runtime": "executorch",
                "kernels": "portable",
                "method": "forward",
                "project": None,
            },
        ),
        "Lowered.to_c of c": (
            stepwell.lower(program, "c").to_c,
            {"name": "m", "method": "forward", "kernels": "portable", "project": "arduino"},
        ),
        "Lowered.to_etrecord": (lowered.to_etrecord, {"method": "forward"}),
        "Lowered.to_pte_and_ptds": (lowered.to_pte_and_ptds, {"files": {"w": "*weight*"}}),
        "Sources.save": (Sources({"m.c": ""}, 0, 0, 0).save, {"folder": folder / "c"}),
        "pickled program": (lambda protocol: pickle.dumps(program, protocol), {"protocol": 4}),
        "pickled lowering": (lambda protocol: pickle.dumps(lowered, protocol), {"protocol": 4}),
    }
    return found


SLOW = frozenset({"accuracy", "check", "explain", "tune"})
"""They are given garbage alone; a right call takes long."""


def garbage_trials(folder: Path, only: Collection[str] = ()) -> Iterator[Trial]:
    """Every public function × each of its parameters × each thing, or those named."""
    given = {name: value for name, value in things(folder).items() if not only or name in only}
    for name, (function, right) in subjects(folder).items():
        for parameter in right:
            for thing, value in given.items():
                if name.startswith("pickled") and not isinstance(value, int):
                    continue
                if name in SLOW and parameter not in ("program", "target"):
                    continue
                if thing == "module" and parameter in ("pipeline", "observer", "progress"):
                    continue  # A caller's own function, which takes arguments and raises.
                with contextlib.chdir(folder):  # Texts are paths to what saves.
                    outcome = _outcome(function, {**right, parameter: value})
                yield Trial("public functions", f"{name}({parameter}={thing})", outcome)


def _outcome(function: Callable[..., Any], arguments: dict[str, Any]) -> str:
    positional = [arguments.pop("args")] if "args" in arguments else []
    try:
        function(*positional, **arguments)
    except stepwell.StepwellError:
        return "refused"
    except Exception as error:
        return f"bare {type(error).__name__}: {str(error)[:100]}"
    return "equal"


def unchecked() -> list[str]:
    """Public functions that this table does not name."""
    held = {
        name
        for name in stepwell.__all__
        if inspect.isfunction(getattr(stepwell, name)) and name not in ELSEWHERE
    }
    return sorted(held - named())


@functools.cache
def named() -> frozenset[str]:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        return frozenset(subjects(Path(folder)))
