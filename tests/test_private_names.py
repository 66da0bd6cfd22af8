"""Private names of torch, xDSL and ExecuTorch stand in one module each, and are where it says."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from stepwell.ir.compat.private_names import PrivateName, look_up
from stepwell.ir.compat.torch import torch_private
from stepwell.ir.compat.xdsl import xdsl_private
from stepwell.ir.diagnostics import StepwellError
from stepwell.translate import executorch_private

ROOT = Path(__file__).resolve().parents[1]
ADAPTERS = (
    "ir/compat/torch/torch_private.py",
    "ir/compat/xdsl/xdsl_private.py",
    "translate/executorch_private.py",
)
READER = ("ir/syntax/parser.py", "ir/syntax/printer.py")
"""They extend xDSL's own; `xdsl_private.EXTENDED` lists what of it they override."""
PACKAGES = ("torch", "executorch", "xdsl", "torchao")
OF_OBJECTS = {
    "_schema",
    "_bytes_to_dataclass",
    "_cdata",
    "_type",
    "_current_token",
    "_first_op",
    "_next_op",
    "_next_use",
    "_operand_uses",
    "_operands",
    "_prev_op",
    "_instruction_id",
    "_load_constants",
    "_load_state_dict",
    "_opname",
    "_overloadname",
    "_overloadpacket",
}
"""Private attributes of what those packages make."""

DOCUMENTED = ("torch._check",)
"""Public in all but its name: https://docs.pytorch.org/docs/stable/generated/torch._check.html."""

NAMES = {
    **torch_private.NAMES,
    **executorch_private.NAMES,
    **{name.place.partition(":")[2]: name for name in xdsl_private.EXTENDED},
}


@pytest.mark.parametrize("name", NAMES)
def test_a_private_name_is_where_its_adapter_says(name: str) -> None:
    """The failure names what breaks when a version moves it: `PrivateName.serves`."""
    assert NAMES[name].found() is not None


def test_what_objects_hold_in_private_is_read_by_the_adapters() -> None:
    import torch
    from xdsl.dialects.builtin import f32, i32
    from xdsl.ir import Block

    assert torch_private.schema_of(torch.ops.aten.relu.default).name == "aten::relu"
    x = torch.zeros(4)
    storages = (x.untyped_storage(), x[1:].untyped_storage())
    assert len(set(map(torch_private.memory_of, storages))) == 1
    (value,) = Block(arg_types=[f32]).args
    xdsl_private.set_type(value, i32)
    assert value.type == i32


def test_ops_are_made_moved_and_erased_as_xdsl_does_it() -> None:
    """`create`, `put_before`, `replace_uses` and `discard` beside xDSL's own, use by use."""
    from xdsl.dialects.builtin import f32
    from xdsl.dialects.test import TestOp
    from xdsl.ir import Block, Region, SSAValue

    def uses(value: SSAValue) -> list[tuple[int, int]]:
        return [(list(block.ops).index(use.operation), use.index) for use in value.uses]

    told: list[object] = []
    for ours in (False, True):
        block = Block(arg_types=[f32, f32])
        x, y = block.args
        if ours:
            made = [xdsl_private.create(TestOp, (x, y, x), (f32,), {}) for _ in range(3)]
        else:
            made = [TestOp.create(operands=(x, y, x), result_types=(f32,)) for _ in range(3)]
        first, second, third = made
        block.add_op(first)
        if ours:
            xdsl_private.put_before(second, first)
            xdsl_private.put_before(third, first)
            xdsl_private.replace_uses(x, second.results[0])
            xdsl_private.discard(third)
        else:
            block.insert_op_before(second, first)
            block.insert_op_before(third, first)
            x.replace_all_uses_with(second.results[0])
            third.detach()
            third.erase()
        assert list(block.ops) == xdsl_private.ops_below(TestOp(regions=[Region(block)]), [])
        assert tuple(first.operands) == xdsl_private.operands_of(first)
        told.append((uses(x), uses(y), uses(second.results[0]), block.last_op is first))
    assert told[0] == told[1]
    with pytest.raises(ValueError, match="still has uses"):
        xdsl_private.discard(second)


def test_a_name_that_a_version_moved_is_named_with_what_needs_it() -> None:
    moved = {"gone": PrivateName("torch._ops:Gone", "import of control flow")}
    with pytest.raises(StepwellError, match=r"torch \S+ has no torch._ops.Gone: import of control"):
        look_up(moved, "gone")


def first_word(node: ast.AST) -> str:
    """`torch` of `torch.a(b)[c].d`."""
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def private_uses(path: Path) -> Iterator[str]:
    """Each private name of another package that a file says."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        found = ""
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in PACKAGES:
            found = ".".join((node.module or "", "|".join(alias.name for alias in node.names)))
        elif isinstance(node, ast.Import):
            found = " ".join(a.name for a in node.names if a.name.split(".")[0] in PACKAGES)
        elif isinstance(node, ast.Attribute):
            if first_word(node) not in PACKAGES and node.attr not in OF_OBJECTS:
                continue  # Few need their text, which takes the time.
            spelled = ast.unparse(node)
            is_own = spelled.startswith(("self.", "cls."))
            if spelled.startswith(("torch.ops.", *DOCUMENTED)):
                continue
            if spelled.split(".")[0] in PACKAGES or (node.attr in OF_OBJECTS and not is_own):
                found = spelled
        if re.search(r"(^|[.|])_(?!_)", found):
            yield f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}: {found}"


def test_no_other_module_says_one() -> None:
    folders = ("ir", "dialects", "translate", "backends")
    files = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    front = ROOT / "src/stepwell"
    files += [
        path
        for path in front.rglob("*.py")
        if not any((front / part).is_symlink() for part in path.relative_to(front).parts[:1])
    ]
    others = [f for f in files if f.relative_to(ROOT).as_posix() not in (*ADAPTERS, *READER)]
    assert [use for path in others for use in private_uses(path)] == []
