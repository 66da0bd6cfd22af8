"""What is built from the tree is whole, wherever it is built and wherever it is installed."""

import ast
import json
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Callable
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

import stepwell
from stepwell.backends.ethos_u.vela import compile_tosa
from stepwell.cli.main import main
from stepwell.ir.platform.dataframes import frame
from stepwell.language_models import load_causal_lm
from stepwell.model_zoo.catalogue.models import entries_of, find
from stepwell.model_zoo.sweep.cluster import import_dask

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("ir", "dialects", "translate", "backends")
CODE = (*FOLDERS, "src", "examples")
NO_CODE = shutil.ignore_patterns("__pycache__", "*.egg-info")


def copied(target: Path) -> Path:
    """The tree as a clone without symbolic links has it: a link is a small text file."""
    for name in CODE:
        shutil.copytree(ROOT / name, target / name, symlinks=True, ignore=NO_CODE)
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE", "MANIFEST.in", "Makefile"):
        shutil.copy(ROOT / name, target / name)
    for name in FOLDERS:
        link = target / "src/stepwell" / name
        link.unlink(missing_ok=True)
        link.write_text(f"../../{name}")
    return target


def build(source: Path, kind: str) -> Path:
    code = f"from setuptools import build_meta; build_meta.build_{kind}('dist')"
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=source, capture_output=True, text=True, check=False
    )
    if ran.returncode:
        raise RuntimeError(ran.stderr)
    (made,) = (source / "dist").glob("*.whl" if kind == "wheel" else "*.tar.gz")
    return made


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as held:
        return {name: held.read(name) for name in held.namelist() if "dist-info" not in name}


@pytest.fixture(scope="module")
def without_links(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(copied(tmp_path_factory.mktemp("plain") / "stepwell"), "wheel")


def test_a_clone_without_links_builds_a_wheel_with_every_file(without_links: Path) -> None:
    expected = {
        f"stepwell/{path.relative_to(ROOT).as_posix().removeprefix('src/stepwell/')}": path
        for name in CODE
        for path in (ROOT / name).rglob("*")
        if path.is_file()
        and not path.is_symlink()
        and not {"__pycache__", "stepwell.egg-info"} & set(path.parts)
    }
    packed = contents(without_links)
    assert set(packed) == set(expected)
    assert all(packed[name] == path.read_bytes() for name, path in expected.items())


def test_a_clone_with_links_and_the_sdist_build_the_same_wheel(
    without_links: Path, tmp_path: Path
) -> None:
    tree = copied(tmp_path / "linked")
    for name in FOLDERS:
        (tree / "src/stepwell" / name).unlink()
        (tree / "src/stepwell" / name).symlink_to(f"../../{name}", target_is_directory=True)
    with tarfile.open(build(tree, "sdist")) as packed:
        packed.extractall(tmp_path / "unpacked", filter="data")
    (unpacked,) = (tmp_path / "unpacked").iterdir()
    wanted = contents(without_links)
    assert contents(build(tree, "wheel")) == wanted
    assert contents(build(unpacked, "wheel")) == wanted


def test_a_tree_that_is_not_whole_stops_with_a_sentence(tmp_path: Path) -> None:
    tree = copied(tmp_path / "part")
    shutil.rmtree(tree / "translate")
    with pytest.raises(RuntimeError, match=r"translate is not beside setup\.py"):
        build(tree, "wheel")


def test_the_sdist_takes_all_that_the_tree_has() -> None:
    """Every folder at the root is named by MANIFEST.in or is code; tools leave hidden ones."""
    manifest = (ROOT / "MANIFEST.in").read_text()
    folders = {path.name for path in ROOT.iterdir() if path.is_dir()}
    folders = {name for name in folders if not name.startswith(".") or name == ".ci"}
    for name in folders - {"build", "dist", "site", "src", *FOLDERS, "__pycache__"}:
        assert f"graft {name}\n" in manifest, name


@pytest.fixture(scope="module")
def fresh(without_links: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel in it, torch and the rest from ours, and no checkout."""
    held = tmp_path_factory.mktemp("environment") / "fresh"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", held], check=True)
    (site,) = held.glob("lib/python*/site-packages")
    ours = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
    (site / "torch_and_others.pth").write_text("\n".join(ours) + "\n")
    with zipfile.ZipFile(without_links) as wheel:
        wheel.extractall(site)
    return held


@pytest.mark.types
def test_tutorials_and_the_plugin_pass_pyright_in_a_users_project(
    fresh: Path, tmp_path: Path
) -> None:
    examples = ROOT / "examples"
    for path in [*examples.glob("*.py"), *examples.glob("notebooks/*.py")]:
        if "import marimo" not in path.read_text() or find_spec("marimo"):
            shutil.copy(path, tmp_path)
    shutil.copytree(examples / "plugin/src/stepwell_toy", tmp_path / "stepwell_toy")
    beside = [str(examples / "models"), str(ROOT / "bench")]
    rules = {"typeCheckingMode": "standard", "extraPaths": beside}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(rules))
    command = [sys.executable, "-m", "pyright", "--pythonpath", str(fresh / "bin/python")]
    ran = subprocess.run(
        [*command, "--level", "error", "--outputjson"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    said = json.loads(ran.stdout)
    assert said["summary"]["filesAnalyzed"] >= len(list(examples.glob("*.py")))
    assert [(one["file"], one["message"]) for one in said["generalDiagnostics"]] == []


DEMO = """
import contextlib, io, re, shlex, sys
from stepwell.cli.main import main

with contextlib.redirect_stdout(io.StringIO()) as said:
    assert main(["demo", "--quick", "--load", sys.argv[1]]) == 0
print(said.getvalue())
told = re.findall(r"^(?:see every pass|read it as text): .*?stepwell (.*)$", said.getvalue(), re.M)
print([main(shlex.split(line)) for line in told][-2:])
"""


def test_the_demo_runs_from_a_wheel_outside_the_clone(fresh: Path, tmp_path: Path) -> None:
    """And so do the two lines that it tells its reader to enter."""
    plugin = tmp_path / "plugin.py"
    plugin.write_text("def plugin(registry):\n    print('the plug-in was loaded')\n")
    ran = subprocess.run(
        [fresh / "bin/python", "-I", "-c", DEMO, plugin],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert "the plug-in was loaded" in ran.stdout
    assert "same class predicted: yes" in ran.stdout
    assert str(ROOT) not in ran.stdout
    assert ran.stdout.endswith("[0, 0]\n"), ran.stderr


POSIX = {"fcntl", "grp", "pty", "pwd", "resource", "termios"}
"""Modules that Windows has not."""


def test_what_windows_has_not_is_imported_by_no_module_that_lowers() -> None:
    """What a sweep and a replay start has it; they say so where there is no fork."""
    found: set[str] = set()
    for path in (path for name in CODE[:-1] for path in (ROOT / name).rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if not any(name in text for name in POSIX):
            continue
        for node in ast.parse(text).body:
            names = [one.name for one in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            found |= {path.name for name in names if name in POSIX}
    assert found <= {"warm.py", "child.py"}


@pytest.mark.parametrize("command", [["sweep", "examples/*"], ["replay"]])
def test_without_fork_a_sentence_says_what_to_do(
    command: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delattr("os.fork")
    assert main(command) == 1
    assert "by fork, which this system does not support" in capsys.readouterr().err


def test_the_version_is_semantic_and_the_changelog_has_it() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert [part.isdigit() for part in project["version"].split(".")] == [True] * 3
    assert f"\n## {project['version']}" in (ROOT / "CHANGELOG.md").read_text()
    assert f"\nversion: {project['version']}\n" in (ROOT / "CITATION.cff").read_text()
    assert stepwell.__version__ == project["version"]


def test_the_license_is_the_one_that_is_declared() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    text = (ROOT / "LICENSE").read_text()
    assert project["license"] == "BSD-3-Clause"
    assert "Redistributions in binary form" in text and "Neither the name" in text


def test_every_extra_that_is_named_to_a_user_is_declared() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    texts = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
    texts += [path for name in (*CODE, "tests") for path in (ROOT / name).rglob("*.py")]
    named = {
        extra
        for path in texts
        for found in re.findall(r"stepwell\[([\w,-]+)\]", path.read_text(encoding="utf-8"))
        for extra in found.split(",")
    }
    assert named and named <= set(project["optional-dependencies"])


def adapter_folder() -> Path:
    """A folder that says it is an adapter."""
    folder = Path(tempfile.mkdtemp())
    (folder / "adapter_config.json").write_text('{"base_model_name_or_path": "base"}')
    return folder


ABSENT: dict[str, tuple[str, Callable[[], object]]] = {
    "ethos-u": ("ethosu", lambda: compile_tosa(b"", "ethos-u55-128")),
    "sweep": ("distributed", import_dask),
    "notebook": ("pandas", lambda: frame(["a"], [[1]])),
    "hf": ("transformers", lambda: load_causal_lm(Path("folder"))),
    "gguf": ("accelerate", lambda: load_causal_lm(Path("model.gguf"))),
    "peft": ("peft", lambda: load_causal_lm(adapter_folder())),
    "zoo": ("timm", lambda: find("timm/resnet18")),
}
"""What is asked for, and the package of its extra that is not there."""


@pytest.mark.parametrize("extra", ABSENT)
def test_what_an_absent_extra_would_do_says_which_it_is(
    extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    package, ask = ABSENT[extra]
    monkeypatch.setitem(sys.modules, package, None)
    entries_of.cache_clear()
    with pytest.raises(stepwell.StepwellError) as raised:
        ask()
    entries_of.cache_clear()
    assert re.search(rf"stepwell\[{extra}\]|extra '{extra}'", str(raised.value))
    assert "not installed" in str(raised.value)


def test_the_suite_of_other_versions_names_tests_that_are_there() -> None:
    spec = spec_from_file_location("versions", ROOT / "tools/versions.py")
    assert spec is not None and spec.loader is not None
    versions = module_from_spec(spec)
    sys.modules["versions"] = versions  # Dataclasses look for their module.
    spec.loader.exec_module(versions)
    del sys.modules["versions"]
    for name in versions.SUITE:
        file, _, test = name.partition("::")
        function, _, parameter = test.rstrip("]").partition("[")
        text = (ROOT / file).read_text(encoding="utf-8")
        assert (
            f"def {function}(" in text and parameter.rpartition(":")[2].partition("-")[0] in text
        ), name
