"""`stepwell env` says what does not work with what is installed."""

import pytest

from stepwell.inspection.reports import environment
from stepwell.ir.compat.private_names import PrivateName
from stepwell.ir.compat.torch import torch_private

from .commands import Commands


def test_what_is_too_old_has_moved_or_is_absent_is_named(
    command: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = ["numpy>=99", "z3-solver>=4; extra == 'prove'", "no-such-package; extra == 'vgf'"]
    monkeypatch.setattr(environment, "requires", lambda _: asked)
    moved = PrivateName("torch:_nowhere", "symbolic sizes")
    monkeypatch.setitem(torch_private.NAMES, "nowhere", moved)
    said = command("env", 1).out
    assert "(>=99 is asked for)" in said
    assert "torch:_nowhere has moved; needed for symbolic sizes" in said
    lines = {line.split("  ")[1]: line for line in said.splitlines() if line.startswith("  t")}
    assert "no: pip install 'stepwell[vgf]' for no-such-package (absent)" in lines["target vgf"]
    assert lines["targets tosa-*"].endswith("yes")
