"""A program as C text: through the compiler and back, by the API and by the command line."""

import shutil
import subprocess
from pathlib import Path

import pytest
import torch

import stepwell
from stepwell.backends.cortex_m.c.array import identifier_of, to_c_array
from stepwell.cli.main import main
from stepwell.ir.diagnostics import StepwellError

DATA = bytes(range(256)) * 3 + b"\x00\xff"
COMPILER = shutil.which("cc") or shutil.which("gcc")
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="this machine has no C compiler")


def bytes_in(text: str) -> bytes:
    listed = text.split("= {", 1)[1].split("}", 1)[0]
    return bytes(int(word, 16) for word in listed.replace(",", " ").split())


def compiled(folder: Path, name: str, text: str, *, header: bool) -> bytes:
    """What a program that the machine's C compiler makes of the text writes out."""
    (folder / f"{name}.{'h' if header else 'c'}").write_text(text)
    declared = f'#include "{name}.h"\n' if header else ""
    if not header:
        declared = f"extern const unsigned char {name}[]; extern const unsigned long {name}_length;"
    (folder / "main.c").write_text(
        f"#include <stdio.h>\n#include <stdint.h>\n{declared}\n"
        f"int main(void) {{ fwrite({name}, 1, {name}_length, stdout); "
        f"return ((uintptr_t){name}) % 16; }}\n"
    )
    sources = ["main.c", *([] if header else [f"{name}.c"])]
    flags = ["-Wall", "-Werror", "-std=c99"]
    subprocess.run([str(COMPILER), *flags, *sources, "-o", "main"], cwd=folder, check=True)
    return subprocess.run([folder / "main"], capture_output=True, check=True).stdout


@pytest.mark.parametrize("header", [True, False])
def test_the_text_holds_the_bytes(header: bool) -> None:
    assert bytes_in(to_c_array(DATA, "net", header=header)) == DATA


@needs_compiler
@pytest.mark.parametrize("header", [True, False])
def test_a_c_compiler_reads_the_bytes_back_aligned(tmp_path: Path, header: bool) -> None:
    text = to_c_array(DATA, "net", header=header)
    assert compiled(tmp_path, "net", text, header=header) == DATA


@pytest.mark.parametrize("name, fact", [("my net", "not a C identifier"), ("new", "a keyword")])
def test_a_name_that_cannot_be_one_is_refused(name: str, fact: str) -> None:
    with pytest.raises(StepwellError, match=fact):
        to_c_array(DATA, name)


def test_a_files_name_becomes_an_identifier() -> None:
    made = [identifier_of(stem) for stem in ("ds-cnn.v2", "3d", "new", "größe")]
    assert made == ["ds_cnn_v2", "model_3d", "model_new", "gr__e"]


MODEL = """
import torch

def tiny():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU()).eval(), (torch.ones(2, 4),)
"""


@pytest.mark.parametrize("suffix", [".h", ".c"])
def test_the_command_line_writes_c_whose_bytes_are_the_pte(tmp_path: Path, suffix: str) -> None:
    (tmp_path / "tiny_model.py").write_text(MODEL)
    model = f"{tmp_path / 'tiny_model.py'}:tiny"
    for output in (f"net-1{suffix}", "net.pte"):
        assert main(["lower", model, "-t", "cortex-m4", "-o", str(tmp_path / output)]) == 0
    text = (tmp_path / f"net-1{suffix}").read_text()
    data = (tmp_path / "net.pte").read_bytes()
    assert bytes_in(text) == data
    if COMPILER is not None:
        assert compiled(tmp_path, "net_1", text, header=suffix == ".h") == data


def test_only_cortex_m_programs_have_a_form_in_c() -> None:
    exported = torch.export.export(torch.nn.Linear(2, 2).eval(), (x := torch.ones(1, 2),))
    lowered = stepwell.lower(exported, "cortex-m4")
    assert bytes_in(lowered.to_c("net")) == lowered.to_pte()
    assert torch.equal(lowered.run(x)[0], lowered.program.run(x)[0])
    with pytest.raises(StepwellError, match="'xnnpack' has no c artifact"):
        stepwell.lower(exported, "xnnpack").to_c()
