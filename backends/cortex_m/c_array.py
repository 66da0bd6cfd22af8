"""A `.pte` as C source, as firmware takes it: an aligned array and its length."""

from __future__ import annotations

from stepwell.ir.diagnostics import StepwellError

ALIGNMENT = 16
"""ExecuTorch reads constants in place; they start at multiples of 16 within the file."""

_PER_LINE = 16


def to_c_array(data: bytes, name: str = "model_pte") -> str:
    """A C or C++ header that defines `name` and `name_length`.

    Args:
        data: the bytes of a `.pte`.
        name: a C identifier.

    Raises:
        StepwellError: the name is no identifier.
    """
    if not name.isidentifier() or not name.isascii():
        raise StepwellError(f"{name!r} is no C identifier", help="letters, digits and _ only")
    guard = f"{name.upper()}_H"
    rows = [
        "    " + " ".join(f"0x{byte:02x}," for byte in data[start : start + _PER_LINE])
        for start in range(0, len(data), _PER_LINE)
    ]
    return "\n".join(
        [
            f"#ifndef {guard}",
            f"#define {guard}",
            "",
            "#include <stddef.h>",
            "#include <stdint.h>",
            "",
            f"__attribute__((aligned({ALIGNMENT}))) static const uint8_t {name}[] = {{",
            *rows,
            "};",
            f"static const size_t {name}_length = sizeof({name});",
            "",
            f"#endif  // {guard}",
            "",
        ]
    )
