"""What README, the pages and the changelog name is there: files, tests, commands, options, classes.

Code between backquotes is read, not blocks: `test_blocks.py` runs those. A link is followed, with
its heading. Names of other projects are in a table, under whose they are; a name that is no longer
used must leave it.
"""

import argparse
import importlib
import re
from functools import cache
from pathlib import Path

import pytest

from stepwell.cli import main

from .test_blocks import BLOCK, ROOT

OTHERS = {
    "ExecuTorch": """examples/arm backends/cortex_m/ops kernels_llm kernels_quantized
    custom_ops_lib.py gen_oplist.py EdgeProgramManager ExportPass
    FoldQDQPass RingKVCache XNNStaticSlice adamw_step linear_q4gsw_backward q4gsw_requant exir_ops
    eval_upper_bound executorch_kernels print_delegation_info test_linear_qd8_as_fp32 test_qd8_f
    unload_method""",
    "PyTorch": "replace_set_grad_with_hop_pass register_lstm_while_loop_decomposition",
    "torch-mlir": "export_and_import",
    "MLIR": "sparse_tensor --print-debuginfo --print-op-generic",
    "CMSIS-NN": "arm_lstm_unidirectional_s8",
    "OpenVINO": "HardSigmoid",
    "Kotlin": "ByteArray",
    "onnxsim": "check_n",
    "GPTQ": "desc_act",
    "compilers and Debian": "--whole-archive --include",
    "the reader": "file.py model.py my_rewrite.py fault.py halved_twice model_length bench/results "
    "MODEL_INPUT_0_SCALE MODEL_INPUT_0_ZERO_POINT src/stepwell_toy/__init__.py",
    "examples of names that are not there": "XNNRound test_permute_of_permute_merges",
    "an option of an f-string": "--torch",
}
KNOWN = {name for names in OTHERS.values() for name in names.split()}
PAGES = sorted(
    {*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")}
    - {*ROOT.glob("docs/reference/**/*.md")}
)
CODE = re.compile(r"`([^`\n]+)`")
WORD = re.compile(r"--[a-z][\w-]+|stepwell(?:\.\w+)+|\w+")
FOLDERS = "ir dialects translate backends src tests tools bench examples docs".split()
TEXTS = {".py", ".cpp", ".c", ".h", ".toml", ".yml", ".js", ".css", ".kts", ".kt", ".swift"}


@cache
def tree() -> tuple[Path, ...]:
    """Every file of the project."""
    inside = (file for folder in FOLDERS for file in (ROOT / folder).rglob("*"))
    return (*ROOT.iterdir(), *(file for file in inside if "__pycache__" not in file.parts))


@cache
def words() -> frozenset[str]:
    """Every word of every text of the project, but of this one; options with their hyphens."""
    files = (file for file in tree() if file.suffix in TEXTS and file.is_file())
    texts = (f.read_text(encoding="utf-8") for f in files if f != Path(__file__).resolve())
    found = frozenset(word for text in texts for word in WORD.findall(text))
    return found | {part for word in found for part in word.split(".")}


def named(page: Path) -> list[str]:
    """The pieces of code in a page's sentences and tables."""
    text = BLOCK.sub("", page.read_text(encoding="utf-8"))
    return CODE.findall(re.sub(r"<!--.*?-->", "", text, flags=re.S))


def missing(code: str) -> list[str]:
    """The names in a piece of code that nothing in the project has."""
    names = {file.name for file in tree()}
    found = [
        path
        for path in re.findall(r"(?<![\w/.:-])(?:[\w.-]+/)+[\w.*-]*", code)
        if path.partition("/")[0] in {*FOLDERS, ".github"}
        if not re.fullmatch(r"examples/\w+\.\w+", path)  # The zoo's name of an example.
        if not (any(ROOT.glob(path)) if "*" in path else (ROOT / path.rstrip(".")).exists())
    ]
    found += [
        f for f in re.findall(r"(?<![\w/.*-])[\w-]+\.(?:py|md|cpp)\b", code) if f not in names
    ]
    found += [o for o in re.findall(r"(?<![\w-])--[a-z][\w-]+", code) if o not in words()]
    stems = {name.partition(".")[0] for name in names}
    tests = re.findall(r"\btest_\w+(?!\w*[.*…])\b", code)
    found += [test for test in tests if test not in words() | stems]
    if re.fullmatch(r"@?[A-Za-z_][\w.]*(?:\([^)]*\))?", code):
        parts = re.findall(r"\w+", code.partition("(")[0])
        is_name = re.compile(r"[A-Za-z]+_\w+|(?:[A-Z]+[a-z]+\d*){2,}").fullmatch
        found += [x for x in parts if is_name(x) and x not in words() | stems and x not in tests]
    return [name for name in found if name not in KNOWN]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_names_is_there(page: Path) -> None:
    assert {code: lost for code in named(page) if (lost := missing(code))} == {}


def test_a_stale_name_is_found() -> None:
    stale = ["tests/docs/test_gone.py", "gone.py", "--gone-with", "test_that_is_gone", "GoneName"]
    assert [missing(f"{name}"[:99]) for name in stale] == [[name] for name in stale]
    assert missing("tests/docs/test_names.py") == missing("StepwellPartitioner") == []


def test_the_table_of_others_has_no_name_that_is_not_used() -> None:
    used = " ".join(code for page in PAGES for code in named(page))
    assert [name for name in KNOWN if name not in used] == []


@cache
def options() -> dict[str, set[str]]:
    """The options of every command."""
    (commands,) = (a for a in main._parser()._actions if isinstance(a, argparse._SubParsersAction))
    return {name: set(p._option_string_actions) for name, p in commands.choices.items()}


def lost_commands(page: Path) -> list[str]:
    """The pieces of code that name a command or an option that there is not."""
    lost: list[str] = []
    for code in named(page):
        if (found := re.match(r"stepwell ([a-z][a-z-]*)", code)) is None:
            continue
        given = set(re.findall(r"(?<!\S)-{1,2}[a-zA-Z][\w-]*", code))
        has = options().get(found[1])
        if has is None or (found[1] != "opt" and not given <= has):  # xDSL parses those of `opt`.
            lost.append(code)
    return lost


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_and_options_in_a_sentence_are_there(page: Path) -> None:
    assert lost_commands(page) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_names_of_the_package_can_be_imported(page: Path) -> None:
    for name in {
        n for code in named(page) for n in re.findall(r"(?<![\w./])stepwell(?:\.\w+)+", code)
    }:
        assert name in words() or resolves(name), name


def resolves(name: str) -> bool:
    """Whether a dotted name is a module, or an attribute of one."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            value = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for part in parts[length:]:
            if not hasattr(value, part):
                return False
            value = getattr(value, part)
        return True
    return False


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as Python-Markdown and GitHub make them."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    plain = [
        re.sub(r"[`*]|\]\([^)]*\)|\[", "", each) for each in re.findall(r"^#+ (.+)$", text, re.M)
    ]
    return {re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", each).strip().lower()) for each in plain}


def lost_links(page: Path) -> list[str]:
    """The links of a page to a file or a heading that there is not."""
    lost: list[str] = []
    prose = BLOCK.sub("", page.read_text(encoding="utf-8"))
    for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]+))?\)", prose):
        if target.startswith(("http", "reference/", "tutorials/", "figures/", "mailto:")):
            continue
        file = (page.parent / target).resolve() if target else page
        is_page = anchor and file.suffix == ".md"
        if not file.exists() or (is_page and anchor not in anchors(file)):
            lost.append(f"{target}#{anchor}")
    return lost


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_a_file_and_a_heading(page: Path) -> None:
    assert lost_links(page) == []


def test_stale_links_and_commands_are_found(tmp_path: Path) -> None:
    page, lost = tmp_path / "page.md", ["`stepwell tune`", "`stepwell show m.pte --htm x`"]
    fine = "`stepwell show m.pte --html x` [here](#it-is) [b](page.md#it-is)"
    page.write_text(f"# It `is`\n{fine} {' '.join(lost)} [a](gone.md) [b](page.md#gone)\n")
    assert lost_commands(page) == [code.strip("`") for code in lost]
    assert lost_links(page) == ["gone.md#", "page.md#gone"]
