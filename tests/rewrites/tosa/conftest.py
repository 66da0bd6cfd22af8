"""The short spelling in which the near-misses of lowerings to TOSA are written."""

from __future__ import annotations

import re
from typing import Protocol

import pytest

_TYPE = re.compile(r"\b(ui8|i\d+|f\d+|bf16|f8E4M3FN)(?:<([^>]*)>)?\[([^\]]*)\]")


def _spelled(match: re.Match[str]) -> str:
    """`f32[2, s0]` is `tensor<2x?xf32, …>`; `i8<0.5:3>[4]` holds reals."""
    storage, numbers, sizes = match.groups()
    dims = [size.strip() for size in sizes.split(",")] if sizes else []
    held = storage
    if numbers is not None:
        held = f"!quant.uniform<{storage}:f32{'' if numbers.startswith(':') else ', '}{numbers}>"
    shape = "".join(f"{size if size.isdigit() else '?'}x" for size in dims)
    named = [size if size.isdigit() else f'"{size}"' for size in dims]
    symbolic = any(not size.isdigit() and size != "?" for size in dims)
    encoding = f", #stepwell.shape<[{', '.join(named)}]>" if symbolic else ""
    return f"tensor<{shape}{held}{encoding}>"


class Written(Protocol):
    def __call__(self, *lines: str, gives: str = "") -> str: ...


@pytest.fixture
def written() -> Written:
    """A method from its arguments and its lines; it returns `%y`, of the type the last line ends in."""

    def text(arguments: str, *lines: str, gives: str = "") -> str:
        gives = gives or re.split(r" -> | to ", lines[-1])[-1]
        body = "\n  ".join(lines)
        whole = f"func.func @forward({arguments}) -> {gives} {{\n  {body}\n  func.return %y : {gives}\n}}\n"
        return _TYPE.sub(_spelled, whole)

    return text  # pyright: ignore[reportReturnType]
