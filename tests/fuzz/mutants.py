"""Real artifacts and texts, damaged; each is tried in a process of its own, forked and small.

    python tests/fuzz/mutants.py KIND COUNT SEED        KIND may be `every`, of all but `gguf`

prints, for each outcome that is neither an error in words nor a right result, a line of JSON, and
at the end how often each outcome came: `refused`, `right`, `wrong`, `traceback`, `abort`, `hang`.
"""

import importlib.util
import json
import os
import random
import resource
import select
import signal
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import torch

import stepwell
from stepwell.ir.rewriting.failures import StepFailure

sys.path.insert(0, str(Path(__file__).parent))
from damaging import damaged, reworded

SECONDS = 20
MEMORY = 1 << 30
"""Bytes beyond what the libraries hold."""


class Net(torch.nn.Module):
    """Layers, a norm, attention and kernels left outside, with nothing that blows up."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(2, 4, 3)
        self.norm = torch.nn.BatchNorm2d(4)
        self.fc = torch.nn.Linear(4, 6)
        self.last = torch.nn.LayerNorm(6)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = torch.relu(self.norm(self.conv(x))).flatten(2).transpose(1, 2)
        z = self.last(self.fc(y))
        held = torch.nn.functional.scaled_dot_product_attention(z, z, z)
        return torch.cat([held[:, 1:5] * 0.5, z[:, :2]], 1).softmax(-1), z.argmax(-1)


INPUTS = (torch.randn(1, 2, 6, 6, generator=torch.Generator().manual_seed(1)),)


@cache
def net() -> stepwell.Program:
    torch.manual_seed(0)
    return stepwell.from_exported_program(torch.export.export(Net().eval(), INPUTS))


@cache
def quantized() -> stepwell.Program:
    """A small convolution as PT2E quantizes it for Cortex-M."""
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    from stepwell.translate.pt2e.cortex_m_quantizer import CortexMQuantizer

    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(2, 4, 3), torch.nn.ReLU(), torch.nn.AvgPool2d(2), torch.nn.Flatten(),
        torch.nn.Linear(16, 5), torch.nn.Softmax(-1),
    ).eval()  # fmt: skip
    prepared = prepare_pt2e(torch.export.export(model, INPUTS).module(), CortexMQuantizer())
    prepared(*INPUTS)
    return stepwell.from_exported_program(torch.export.export(convert_pt2e(prepared), INPUTS))


@cache
def lowered(target: str) -> stepwell.Lowered:
    source = quantized() if target.startswith(("cortex", "ethos")) or "int" in target else net()
    return stepwell.lower(source, target)


def tensors(outputs: Any) -> Any:
    return [o if isinstance(o, torch.Tensor) else torch.tensor(o) for o in outputs]


def compare(found: Any, wanted: Any, where: str) -> None:
    """Raise where two engines part by more than a percent of the largest number."""
    found, wanted = tensors(found), tensors(wanted)
    assert len(found) == len(wanted), f"{where}: {len(found)} outputs for {len(wanted)}"
    for one, other in zip(found, wanted, strict=True):
        assert one.shape == other.shape, f"{where}: {list(one.shape)} for {list(other.shape)}"
        if one.is_floating_point() and other.is_floating_point():
            finite = other.double()[other.isfinite()]
            away = 0.02 * float(finite.abs().max()) if finite.numel() else 0.0
            same = torch.isclose(one.double(), other.double(), 0.02, away, equal_nan=True)
            assert bool(same.all()), f"{where}: {one.reshape(-1)[:4]} for {other.reshape(-1)[:4]}"


def inputs_of(program: stepwell.Program, draw: random.Random) -> list[Any]:
    """Inputs as a program's signature asks for them; a small number where a size is symbolic."""
    from xdsl.dialects.builtin import TensorType

    from stepwell.dialects.quant.types import quantization, storage_dtype
    from stepwell.ir.dtypes import torch_dtype
    from stepwell.ir.types import dims, element

    made: list[Any] = []
    for type_ in program.method().function_type.inputs:
        if not isinstance(type_, TensorType):
            made.append(2)
            continue
        held = quantization(type_)
        dtype = storage_dtype(held) if held is not None else torch_dtype(element(type_))
        shape = [d if isinstance(d, int) else 2 for d in dims(type_)]
        if sum(shape) > 1 << 16:
            raise stepwell.StepwellError("an input too large to try")
        made.append((torch.rand(shape) * 3).to(dtype))
    return made


def try_text(text: str, weights: Any, target: str | None) -> None:
    """Parse, verify, print, run; lower to a target, and run that."""
    program = stepwell.parse(text, weights)
    program.verify()
    assert str(stepwell.parse(str(program), weights)) == str(program), "its text is another"
    inputs = inputs_of(program, random.Random(0))
    wanted = program.run(*inputs)
    if target is not None:
        made = stepwell.lower(program, target)
        compare(made.program.run(*inputs), wanted, "interpreter")
        if target == "xnnpack":
            compare(made.run(*inputs), wanted, target)


def try_level(text: str, weights: Any, artifact: str) -> None:
    """A text of a target's level: what verifies is emitted, or refused."""
    program = stepwell.parse(text, weights)
    program.verify()
    inputs = inputs_of(program, random.Random(0))
    wanted = program.run(*inputs)
    from stepwell.targets.table import find_target

    target = find_target(artifact)
    data = target.emitter(target.artifact)(program, **target.for_artifact(target.artifact, {}, {}))
    compare(target.run(data, inputs, "forward"), wanted, artifact)


def try_pte(data: bytes) -> None:
    program = stepwell.read_pte(data)
    program.verify()
    program.run(*inputs_of(program, random.Random(0)))
    str(program)


def try_runtime(data: bytes) -> None:
    from stepwell.loaders.artifacts import random_inputs

    stepwell.run_pte(data, random_inputs(data, "forward", 0))


def try_tosa(data: bytes) -> None:
    program = stepwell.read_tosa(data)
    program.verify()
    str(program)
    program.run(*inputs_of(program, random.Random(0)))


@cache
def saved() -> tuple[bytes, bytes]:
    with tempfile.TemporaryDirectory() as name:
        net().save(Path(name) / "m.mlir")
        return (Path(name) / "m.mlir").read_bytes(), (Path(name) / "m.safetensors").read_bytes()


def try_weights(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "m.mlir").write_bytes(saved()[0])
        (Path(name) / "m.safetensors").write_bytes(data)
        program = stepwell.load(Path(name) / "m.mlir")
        program.verify()
        program.run(*INPUTS)


def try_load(data: bytes) -> None:
    """Whatever kind of file the bytes are: an archive, a bundle, a program of any target."""
    program = stepwell.load(data)
    program.verify()
    str(program)


def try_shown(suffix: str) -> Callable[[bytes], None]:
    """The command that prints what is in a file."""

    def show(data: bytes) -> None:
        from stepwell.cli.main import main

        with tempfile.TemporaryDirectory() as name:
            file = Path(name) / f"m{suffix}"
            file.write_bytes(data)
            assert main(["show", str(file), "--summary"]) in (0, 1, 2)

    return show


def try_gguf(data: bytes) -> None:
    from stepwell.language_models import load_causal_lm

    with tempfile.TemporaryDirectory() as name:
        file = Path(name) / "m.gguf"
        file.write_bytes(data)
        load_causal_lm(file)


def try_certificate(data: bytes) -> None:
    from stepwell.validation.certificates.audit import verify_certificate
    from stepwell.validation.certificates.certificate import Certificate

    try:
        text = data.decode()
    except UnicodeDecodeError:
        return
    verify_certificate(Certificate.from_json(text))


@cache
def pt2() -> bytes:
    with tempfile.TemporaryDirectory() as name:
        torch.export.save(torch.export.export(Net().eval(), INPUTS), Path(name) / "m.pt2")
        return (Path(name) / "m.pt2").read_bytes()


@cache
def files() -> dict[str, tuple[bytes, Callable[[bytes], None]]]:
    """A file of each further kind that is read, and what reads it."""
    from stepwell.backends.executorch.external import read_external
    from stepwell.inspection.playground import Playground, sharing

    here = Path(__file__).parents[1]
    pte = stepwell.lower(net(), "xnnpack", certify=True)
    return {
        "bpte": (pte.to_bpte({"forward": [INPUTS]}), try_load),
        "pt2": (pt2(), try_load),
        "vgf": ((here / "tosa" / "vgf" / "twice.vgf").read_bytes(), try_load),
        "pte shown": (pte.artifact, try_shown(".pte")),
        "tosa shown": (lowered("tosa-1.0+int").artifact, try_shown(".tosa")),
        "ptd": (pte.to_pte_and_ptd()[1], read_external),
        "playground": (Playground(net(), "net").file({}), sharing.from_file),
        "certificate": (pte.certificate.to_json().encode(), try_certificate),
    }


def try_options(seed: int) -> None:
    """Any value for any option, and names that are none."""
    from stepwell.targets.table import find_target

    draw = random.Random(seed)
    target = draw.choice(["xnnpack", "cortex-m55", "tosa-1.0+fp", "tosa-1.0+int", "ethos-u55-128"])
    values: list[Any] = [
        None, True, 0, -1, 1 << 70, 1.5, float("nan"), "", "x", "\0", [], {}, {"x": 1}, {1: "int8"},
        object(), torch.ones(2), b"x", Path("x"), ("a", 1), lambda: None, "int8", "finite", "speed",
    ]  # fmt: skip
    names = [option.name for option in find_target(target).options]
    chosen = {draw.choice([*names, "x", "Numerics"]): draw.choice(values) for _ in range(2)}
    source = quantized() if "fp" not in target and target != "xnnpack" else net()
    more: dict[str, Any] = {}
    if draw.random() < 0.4:
        more[draw.choice(["sizes", "pipeline", "observer"])] = draw.choice(values)
    if draw.random() < 0.1:
        target = draw.choice(values)
    if draw.random() < 0.1:
        source = draw.choice(values)
    assert stepwell.lower(source, target, **more, **chosen).artifact


WORDS = """lower show explain check opt run demo -t xnnpack cortex-m55 tosa-1.0+fp -o out.pte
--emit-ir --html --json --sizes max s0=4 s0= =4 4 -1 nan --method forward --profile --repeat 0
-O numerics=finite numerics= =x bias_form=both --largest --seed 99999999999999999999 m.mlir m.pte
m.tosa m.safetensors models.py:good models.py models.py: :good models.py:boom . .. / /dev/null ''
-p merge-views merge-views{ normalize lower-to-xnnpack{x=1} --split-input-file --frontend mlir
--print-between-passes --summary --generic --dot --help --version -v --check --etrecord --trust
--model-explorer --color never --no-artifact --outside merge-views,,merge-views -f py
--verify-diagnostics""".split()


def try_command(seed: int) -> None:
    """A command line of words that belong elsewhere."""
    from stepwell.cli.main import main

    draw = random.Random(seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.chdir(folder)
        text, weights = saved()
        (folder / "m.mlir").write_bytes(text)
        (folder / "m.safetensors").write_bytes(weights)
        (folder / "m.pte").write_bytes(lowered("xnnpack").artifact)
        (folder / "m.tosa").write_bytes(damaged(b"TOSA" * 100, draw))
        (folder / "models.py").write_text(
            "import torch\ndef good(): return torch.nn.Linear(3, 3).eval(), (torch.ones(2, 3),)\n"
            "def boom(): raise SystemExit(0)\n"
        )
        command = [draw.choice(WORDS[:6])]
        if draw.random() < 0.7:
            command.append(draw.choice(["m.mlir", "m.pte", "models.py:good", "models.py:boom"]))
        command += [draw.choice(WORDS) for _ in range(draw.randint(0, 4))]
        draw.shuffle(command) if draw.random() < 0.1 else None
        try:
            status = main(command)
        except SystemExit as stop:
            status = stop.code
        left = [p.name for p in folder.rglob("*") if p.name.startswith((".stepwell", "tmp"))]
        assert not left, f"{command} leaves {left}"
        assert status in (0, 1, 2), f"{command} ends with {status!r}"


HAS_GGUF = all(importlib.util.find_spec(n) for n in ("gguf", "transformers", "accelerate"))
OTHERS = [*"bpte pt2 vgf ptd playground certificate".split(), "pte shown", "tosa shown"]


@cache
def gguf() -> bytes:
    """A small language model of four bits."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "translate"))
    from test_gguf import write_llama

    with tempfile.TemporaryDirectory() as name:
        write_llama(Path(name) / "m.gguf")
        return (Path(name) / "m.gguf").read_bytes()


def kinds() -> dict[str, Callable[[random.Random], Callable[[], None]]]:
    """What is damaged, and how it is tried."""

    def text_of(target: str) -> Callable[[random.Random], Callable[[], None]]:
        program = lowered(target).program
        whole = str(program)

        def make(draw: random.Random) -> Callable[[], None]:
            text = reworded(whole, draw)
            return shown(lambda: try_level(text, program.weights, target), text)

        return make

    def source(program: stepwell.Program, target: str | None) -> Any:
        whole = str(program)

        def make(draw: random.Random) -> Callable[[], None]:
            text = reworded(whole, draw)
            return shown(lambda: try_text(text, program.weights, target), text)

        return make

    def data(whole: bytes, read: Callable[[bytes], None]) -> Any:
        def make(draw: random.Random) -> Callable[[], None]:
            held = damaged(whole, draw)
            return shown(lambda: read(held), f"{len(held)} bytes")

        return make

    def seeded(call: Callable[[int], None]) -> Any:
        def make(draw: random.Random) -> Callable[[], None]:
            seed = draw.randrange(1 << 30)
            return shown(lambda: call(seed), f"seed {seed}")

        return make

    return {
        "text": lambda d: source(net(), None)(d),
        "text to xnnpack": lambda d: source(net(), "xnnpack")(d),
        "text to tosa": lambda d: source(net(), "tosa-1.0+fp")(d),
        "text to cortex-m": lambda d: source(quantized(), "cortex-m55")(d),
        "text to tosa integers": lambda d: source(quantized(), "tosa-1.0+int")(d),
        "text of xnnpack": lambda d: text_of("xnnpack")(d),
        "text of tosa": lambda d: text_of("tosa-1.0+fp")(d),
        "text of cortex-m": lambda d: text_of("cortex-m55")(d),
        "pte": lambda d: data(lowered("xnnpack").artifact, try_pte)(d),
        "pte of cortex-m": lambda d: data(lowered("cortex-m55").artifact, try_pte)(d),
        "pte run": lambda d: data(lowered("xnnpack").artifact, try_runtime)(d),
        "tosa": lambda d: data(lowered("tosa-1.0+fp").artifact, try_tosa)(d),
        "tosa of integers": lambda d: data(lowered("tosa-1.0+int").artifact, try_tosa)(d),
        "weights": lambda d: data(saved()[1], try_weights)(d),
        **{name: lambda d, name=name: data(*files()[name])(d) for name in OTHERS},
        **({"gguf": lambda d: data(gguf(), try_gguf)(d)} if HAS_GGUF else {}),
        "options": seeded(try_options),
        "commands": seeded(try_command),
    }


def shown(call: Callable[[], None], what: str) -> Callable[[], None]:
    call.__doc__ = what
    return call


def outcome(call: Callable[[], None]) -> tuple[str, str]:
    """What comes of a call in a forked process."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _in_child(call, writing)
    os.close(writing)
    said = b""
    while True:
        ready, _, _ = select.select([reading], [], [], 20 * SECONDS)
        got = os.read(reading, 1 << 16) if ready else b""
        if not got:
            break
        said += got
    os.close(reading)
    if not ready:
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if not ready:
        return "hang", f"more than {SECONDS} s"
    if said:
        kind_, _, why = said.decode(errors="replace").partition("\n")
        return kind_, why
    number = os.waitstatus_to_exitcode(status)
    if number == -signal.SIGXCPU:
        return "hang", f"more than {SECONDS} s of computing"
    return "abort", signal.Signals(-number).name if number < 0 else f"exit {number}"


def _in_child(call: Callable[[], None], writing: int) -> None:
    held = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (held + MEMORY,) * 2)
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS + 1))
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 1)
    os.dup2(null, 2)
    warnings.simplefilter("ignore")
    try:
        call()
        said = "right"
    except stepwell.StepwellError as error:
        told = str(error)
        said = ("traceback\n" if isinstance(error, StepFailure) else "refused\n") + told[:300]
        if not all(problem.fact for problem in error.problems) or len(told) > 50_000:
            said = "wrong\nan error of many letters or none: " + told[:300]
    except AssertionError as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        mine = last.filename == __file__
        said = ("wrong\n" if mine else "traceback\n") + _traced(error)
    except BaseException as error:
        said = "traceback\n" + _traced(error)
    os.write(writing, said.encode(errors="replace"))
    os._exit(0)


def _traced(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)[-5:]
    places = " < ".join(f"{Path(f.filename).name}:{f.lineno}" for f in reversed(frames))
    return f"{type(error).__name__}: {str(error)[:300]} [{places}]"


GOOD = ("right", "refused")


@cache
def warm() -> None:
    """What every fork is to find done: imports, exports, artifacts."""
    for target in ("xnnpack", "tosa-1.0+fp", "cortex-m55"):
        assert lowered(target).artifact
    saved()
    import stepwell.cli.main  # noqa: F401


def campaign(name: str, count: int, seed: int) -> Iterator[tuple[str, str, str]]:
    """(outcome, what was said, what was tried) of so many mutants."""
    warm()
    make = kinds()[name]
    draw = random.Random(f"{name} {seed}")
    for _ in range(count):
        call = make(draw)
        found, said = outcome(call)
        yield found, said, call.__doc__ or ""


def main(name: str, count: int, seed: int) -> None:
    torch.set_num_threads(1)
    for each in [k for k in kinds() if k != "gguf"] if name == "every" else [name]:
        found: Counter[str] = Counter()
        for what, said, tried in campaign(each, count, seed):
            found[what] += 1
            if what not in GOOD:
                said = json.dumps({"kind": each, "outcome": what, "said": said, "tried": tried})
                print(said, flush=True)
        print(json.dumps({"kind": each, **found}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
