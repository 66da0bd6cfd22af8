"""Applications in examples/ parse and use ExecuTorch's published API; those for here run."""

import importlib
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch

import stepwell

ROOT = Path(__file__).resolve().parents[2]
API: dict[str, Any] = json.loads((Path(__file__).parent / "published_api.json").read_text())
"""By language: types, their members and the type of each, and labels of arguments."""
LANGUAGE = {".kt": "kotlin", ".kts": "kotlin", ".swift": "swift"}
SOURCES = sorted(
    path
    for folder in ("android_app", "ios_app")
    for path in (ROOT / "examples" / folder).rglob("*")
    if path.suffix in LANGUAGE
)
CALLS = {"call_expression", "constructor_expression", "index_expression"}
WRAPPED = {"user_type", "type_annotation", "nullable_type", "try_expression", "value_argument"}


def tree(language: str, text: str) -> Any:
    """The root of a parsed text."""
    parser = pytest.importorskip("tree_sitter", reason="tree-sitter is not installed")
    grammar = importlib.import_module(f"tree_sitter_{language}")
    return parser.Parser(parser.Language(grammar.language())).parse(text.encode()).root_node


def walked(node: Any) -> Iterator[Any]:
    yield node
    for child in node.children:
        yield from walked(child)


def named(node: Any) -> str:
    return node.text.decode()


def unknown(language: str, text: str) -> list[str]:
    """The members and labels that a text uses of ExecuTorch's types and that these do not have.

    The type of a name is that of its declaration, which must state it.
    """
    types, labels = API[language]["types"], API[language]["labels"]
    root = tree(language, text)
    assert not root.has_error, "it does not parse"
    known = {name: name for name in types}
    for node in walked(root):
        if node.type in ("variable_declaration", "property_declaration", "parameter"):
            found = re.match(r"(?:\w+ )*?(\w+): (?:Array<)?(\w+)", named(node))
            if found and found[2] in types:
                known[found[1]] = found[2]
    wrong: list[str] = []

    def type_of(node: Any) -> str | None:
        parts = [child for child in node.children if child.is_named]
        if node.type in ("identifier", "simple_identifier", "type_identifier"):
            return known.get(named(node))
        if node.type == "navigation_expression":
            owner = type_of(parts[0])
            member = named(parts[-1]).removeprefix("?").lstrip(".")
            if owner is not None and member not in types[owner]:
                wrong.append(f"{owner}.{member}")
            return types.get(owner, {}).get(member) or None
        return type_of(parts[0]) if parts and node.type in CALLS | WRAPPED else None

    for node in walked(root):
        if node.type == "navigation_expression":
            type_of(node)
        elif node.type in CALLS and (own := named(node).partition("(")[0].partition("<")[0]):
            arguments = (n for n in walked(node.children[-1]) if n.type == "value_argument")
            for argument in arguments if own in labels else ():
                label, _, value = named(argument).partition(": ")
                if value and label not in labels[own]:
                    wrong.append(f"{own}({label}:)")
                if value not in labels.get(label, [value]):
                    wrong.append(f"{label}: {value}")
    return sorted(set(wrong))


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_source_parses_and_uses_the_published_api(path: Path) -> None:
    language, text = LANGUAGE[path.suffix], path.read_text()
    assert unknown(language, text) == []
    own = API[language]
    for name in re.findall(r"^import (?:.*\.)?(\w+)$", text, re.M):
        package = f"{own['package']}.{name}"
        assert f"import {package}" not in text or name in own["types"], package
    coordinates = re.findall(r'implementation\("([^:]+:[^:]+):|product\(name: "(\w+)"', text)
    assert {one or other for one, other in coordinates} <= set(own["packages"])


@pytest.mark.parametrize(
    ("name", "right", "wrong", "told"),
    [
        ("Classifier.kt", "module.forward(", "module.run(", "Module.run"),
        ("Classifier.kt", "outputs[0].toTensor()", "outputs[0].asTensor()", "EValue.asTensor"),
        ("Classifier.kt", "output.dataAsFloatArray", "output.floats", "Tensor.floats"),
        ("Classifier.swift", "module.forward(", "module.predict(", "Module.predict"),
        ("Classifier.swift", "filePath:", "path:", "Module(path:)"),
        ("Classifier.swift", "[0]?.shape", "[0]?.sizes", "TensorMetadata.sizes"),
        ("Classifier.swift", ".mmap)", ".map)", "loadMode: .map"),
    ],
)
def test_name_that_is_not_published_is_found(name: str, right: str, wrong: str, told: str) -> None:
    (path,) = (path for path in SOURCES if path.name == name)
    text = path.read_text()
    assert right in text
    assert unknown(LANGUAGE[path.suffix], text.replace(right, wrong)) == [told]


@pytest.mark.parametrize(
    ("page", "language", "source"),
    [("android", "kotlin", "Classifier.kt"), ("ios", "swift", "Classifier.swift")],
)
def test_lines_on_a_page_are_those_of_the_example(page: str, language: str, source: str) -> None:
    text = (ROOT / f"docs/deploy/{page}.md").read_text()
    shown = re.findall(rf"^```{language}\n(.*?)^```$", text, re.M | re.S)
    (path,) = (path for path in SOURCES if path.name == source)
    assert shown and set("".join(shown).splitlines()) <= set(path.read_text().splitlines())


def test_manifest_names_a_class_of_the_example() -> None:
    folder = ROOT / "examples/android_app/app/src/main"
    root = ElementTree.parse(folder / "AndroidManifest.xml").getroot()
    (activity,) = root.iter("activity")
    name = activity.attrib["{http://schemas.android.com/apk/res/android}name"]
    assert f"class {name.removeprefix('.')} " in "".join(
        path.read_text() for path in folder.rglob("*.kt")
    )


def test_python_runs_a_program_without_stepwell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, x = torch.nn.Linear(4, 2).eval(), torch.randn(3, 4)
    stepwell.lower(torch.export.export(model, (x,)), "xnnpack").save(tmp_path / "m.pte")
    numpy.save(tmp_path / "x.npy", x.numpy())
    script = ROOT / "examples/python_app/run.py"
    imports = re.findall(r"^(?:import|from) (\w+)", script.read_text(), re.M)
    assert set(imports) == {"sys", "numpy", "torch", "executorch"}
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["run.py", "m.pte", "x.npy"])
    runpy.run_path(str(script), run_name="__main__")
    found = torch.from_numpy(numpy.load(tmp_path / "output_0.npy"))
    torch.testing.assert_close(found, model(x))


@pytest.mark.skipif(not shutil.which("cmake"), reason="cmake is not installed")
@pytest.mark.parametrize("place", ["here", "cortex-m55"])
def test_firmware_prints_the_scores_of_the_interpreter(tmp_path: Path, place: str) -> None:
    is_board = place != "here"
    if is_board and not all(map(shutil.which, ("arm-none-eabi-gcc", "qemu-system-arm"))):
        pytest.skip("arm-none-eabi-gcc or qemu-system-arm is not installed")
    torch.manual_seed(0)
    layers = torch.nn.Conv2d(1, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(144, 3)
    net = torch.nn.Sequential(*layers).eval()
    x = (0.1 * (torch.arange(64) % 21 - 10).float()).reshape(1, 1, 8, 8)
    module = stepwell.quantize(net, "int8-cortex-m", [(x,)])
    lowered = stepwell.lower(torch.export.export(module, (x,)), "cortex-m55", io="int8")
    lowered.to_c(runtime=None).save(tmp_path / "model")
    app = ROOT / "examples/microcontroller_app"
    given = [f"-DMODEL={tmp_path / 'model'}", "-S", str(app), "-B", "build"]
    if is_board:
        given.append(f"-DCMAKE_TOOLCHAIN_FILE={app / 'arm.cmake'}")
    clean = {name: value for name, value in os.environ.items() if name != "CFLAGS"}
    program = ["build/firmware"]
    if is_board:
        quiet = "-display none -serial none -monitor none -semihosting".split()
        program = ["qemu-system-arm", "-M", "mps3-an547", *quiet, "-kernel", "build/firmware"]
    for command in (["cmake", *given], ["cmake", "--build", "build"], program):
        done = subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, env=clean, timeout=120
        )
        assert done.returncode == 0, done.stderr
    port, score = (lowered.deployment().ports["forward", side][0] for side in ("input", "output"))
    assert port.quantization is not None and score.quantization is not None
    steps = x / torch.tensor(port.quantization.scale)
    q = steps.sign() * (steps.abs() + 0.5).floor() + port.quantization.zero_point  # As lroundf.
    (wanted,) = lowered.program.run(q.clamp(-128, 127).to(torch.int8))
    wanted = (wanted.float() - score.quantization.zero_point) * score.quantization.scale
    found = [float(line.partition(": ")[2]) for line in done.stdout.splitlines()]
    torch.testing.assert_close(torch.tensor(found), wanted[0], atol=1e-5, rtol=0)
