import shutil
import subprocess
from pathlib import Path

import pytest

from stepwell.backends.cortex_m.c_array import to_c_array
from stepwell.ir.diagnostics import StepwellError

DATA = bytes(range(256)) * 3 + b"\x00\xff"


def test_the_header_holds_the_bytes() -> None:
    text = to_c_array(DATA, "net")
    listed = text.split("{", 1)[1].split("}", 1)[0]
    assert bytes(int(word, 16) for word in listed.replace(",", " ").split()) == DATA


@pytest.mark.skipif(shutil.which("cc") is None, reason="this machine has no C compiler")
def test_a_c_compiler_reads_the_bytes_back(tmp_path: Path) -> None:
    (tmp_path / "net.h").write_text(to_c_array(DATA, "net"))
    (tmp_path / "main.c").write_text(
        '#include "net.h"\n#include <stdio.h>\n'
        "int main(void) { fwrite(net, 1, net_length, stdout); return ((uintptr_t)net) % 16; }\n"
    )
    subprocess.run(["cc", "main.c", "-o", "main"], cwd=tmp_path, check=True)
    assert subprocess.run([tmp_path / "main"], capture_output=True, check=True).stdout == DATA


def test_a_name_that_is_no_identifier_is_refused() -> None:
    with pytest.raises(StepwellError, match="no C identifier"):
        to_c_array(DATA, "my net")
