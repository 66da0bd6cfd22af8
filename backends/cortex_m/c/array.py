"""A `.pte` as C source for firmware: an aligned array and its length."""

from stepwell.ir.diagnostics import StepwellError

ALIGNMENT = 16
"""ExecuTorch reads constants in place; they start at multiples of 16 within the file."""

_PER_LINE = 16
_KEYWORDS = frozenset(
    "alignas alignof asm auto bool break case catch char class const constexpr continue default "
    "delete do double else enum explicit export extern false float for friend goto if inline int "
    "long mutable namespace new nullptr operator private protected public register restrict return "
    "short signed sizeof static struct switch template this throw true try typedef typename union "
    "unsigned using virtual void volatile while".split()
)


def to_c_array(data: bytes, name: str = "model_pte", *, header: bool = True) -> str:
    """Return C (or C++) text that defines `name` and `name_length`.

    Args:
        data: the bytes of a `.pte`.
        name: a C identifier that is not a keyword.
        header: a guarded header with static constants; otherwise a source file whose constants
            other files declare `extern`.

    Raises:
        StepwellError: the name is not valid.
    """
    check_identifier(name)
    rows = [
        "    " + " ".join(f"0x{byte:02x}," for byte in data[start : start + _PER_LINE])
        for start in range(0, len(data), _PER_LINE)
    ]
    guard = f"{name.upper()}_H"
    linkage = "static const" if header else "const"
    declared = [f"extern const uint8_t {name}[];", f"extern const size_t {name}_length;", ""]
    return "\n".join(
        [
            *((f"#ifndef {guard}", f"#define {guard}", "") if header else ()),
            "#include <stddef.h>",
            "#include <stdint.h>",
            "",
            *(() if header else ("#ifdef __cplusplus", 'extern "C" {', "#endif", *declared)),
            f"__attribute__((aligned({ALIGNMENT}))) {linkage} uint8_t {name}[] = {{",
            *rows,
            "};",
            f"{linkage} size_t {name}_length = sizeof({name});",
            *(() if header else ("", "#ifdef __cplusplus", "}", "#endif")),
            *(("", f"#endif  // {guard}") if header else ()),
            "",
        ]
    )


def check_identifier(name: str) -> None:
    """Raise `StepwellError` for a name that is not an identifier in C and C++."""
    if not name.isidentifier() or not name.isascii():
        raise StepwellError(f"{name!r} is not a C identifier", help="letters, digits and _ only")
    if name in _KEYWORDS:
        raise StepwellError(f"{name!r} is a keyword of C or C++", help="choose another name")


def identifier_of(stem: str) -> str:
    """Make a C identifier from a file's name: `ds-cnn.v2` → `ds_cnn_v2`."""
    text = "".join(c if c.isascii() and c.isalnum() else "_" for c in stem) or "model"
    return text if not text[0].isdigit() and text not in _KEYWORDS else f"model_{text}"
