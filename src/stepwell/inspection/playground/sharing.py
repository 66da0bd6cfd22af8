"""Write a playground to a link or a file; reading either parses it and executes nothing.

A link contains only texts: the program with its constants, the edited program, rules and edits. A
file also contains the weights: it is an archive of `play.json`, the programs' texts, and their
weights as safetensors.
"""

import base64
import binascii
import io
import json
import zipfile
import zlib
from dataclasses import dataclass, replace
from typing import Any

from stepwell.inspection.playground.settings import Asked
from stepwell.ir.diagnostics import ParseFailure, StepwellError, quoted
from stepwell.ir.program import Program
from stepwell.ir.syntax.inline_values import take_values, too_large, with_values
from stepwell.ir.syntax.storage import pack_tensors, unpack_bytes
from stepwell.ir.syntax.text import parse_module, to_text
from stepwell.ir.weights import WeightStore

MARK = "#play="
"""The start of a link's fragment."""
FORMAT = 1
MOST_ELEMENTS = 4096
"""The limit of elements of a constant in a link."""
MOST_CHARACTERS = 1 << 18
"""The limit of characters of a link; browsers accept somewhat more."""
MOST_TEXT = 1 << 28
"""The limit of bytes of a text in a file or a link, checked before it is read."""
_MEMBERS = ("play.json", "program.mlir", "edited.mlir")


@dataclass(frozen=True)
class Shared:
    """The shared state of a playground.

    Attributes:
        name: the model's name.
        program: the source program.
        asked: the settings; the text of an edited program is also in `edited`.
        edited: the edited program, whose weights are in the file.
    """

    name: str
    program: Program
    asked: Asked
    edited: Program | None = None


def to_link(shared: Shared) -> str:
    """Return the fragment of a URL, from `#play=` on.

    Raises:
        StepwellError: a weight has too many elements for a link, or the whole is too long.
    """
    told: dict[str, Any] = {
        "stepwell": FORMAT,
        "name": shared.name,
        "program": _whole_text(shared.program),
        "asked": shared.asked.to_json(),
    }
    if shared.edited is not None:
        told["asked"]["text"] = _whole_text(shared.edited)
    packed = zlib.compress(json.dumps(told, separators=(",", ":")).encode(), 9)
    link = MARK + base64.urlsafe_b64encode(packed).decode().rstrip("=")
    if len(link) > MOST_CHARACTERS:
        raise StepwellError(f"the link would have {len(link):,} characters", help="save a file")
    return link


def _whole_text(program: Program) -> str:
    large = sorted(too_large(program.module, program.weights, MOST_ELEMENTS))
    if large:
        raise StepwellError(
            f"{len(large)} weights are too large for a link, the first is {quoted(large[0])}",
            help="save a file, which includes weights",
        )
    return program.text(MOST_ELEMENTS, locations=True)


def from_link(link: str) -> Shared:
    """Read the fragment that `to_link` wrote, anywhere in a URL.

    Raises:
        ParseFailure: the text is not such a link, or is damaged.
    """
    packed = link.strip().partition(MARK)[2]
    try:
        data = base64.urlsafe_b64decode(packed + "=" * (-len(packed) % 4))
        told = json.loads(_inflated(data))
        program, name = told["program"], told["name"]
    except (ValueError, KeyError, TypeError, zlib.error, binascii.Error) as error:
        raise ParseFailure("the link is no link of a playground", help="copy all of it") from error
    _check(told.get("stepwell"), program, name)
    asked = Asked.of_json(told.get("asked"))
    held = _program(program, {})
    edited = None if asked.text is None else _program(asked.text, {})
    return Shared(name, held, _as_text(asked, edited), edited)


def _inflated(data: bytes) -> bytes:
    made = zlib.decompressobj()
    found = made.decompress(data, MOST_TEXT)
    if made.unconsumed_tail:
        raise ParseFailure("the link holds too long a text")
    return found


def to_file(shared: Shared) -> bytes:
    """Return the archive that a page shares as a file."""
    told = {"stepwell": FORMAT, "name": shared.name, "asked": shared.asked.to_json()}
    parts = {"play.json": json.dumps(told, indent=1).encode()}
    held: set[str] = set()
    for stem, program in (("program", shared.program), ("edited", shared.edited)):
        if program is not None:
            keys = sorted(program.used_weights() - held)
            held |= set(keys)
            tensors = {key: program.weights.get(key) for key in keys}
            parts[f"{stem}.mlir"] = to_text(program.module, locations=True).encode()
            parts[f"{stem}.safetensors"] = pack_tensors(tensors)
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as archive:
        for name, data in parts.items():
            how = zipfile.ZIP_STORED if name.endswith(".safetensors") else zipfile.ZIP_DEFLATED
            archive.writestr(zipfile.ZipInfo(name), data, how)
    return written.getvalue()


def from_file(data: bytes) -> Shared:
    """Read an archive that `to_file` wrote.

    Raises:
        ParseFailure: the file is not such an archive, or is damaged.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            texts = {name: _member(archive, name) for name in _MEMBERS}
            packed = {
                stem: archive.read(f"{stem}.safetensors") if texts[f"{stem}.mlir"] else b""
                for stem in ("program", "edited")
            }
        told = json.loads(texts["play.json"] or "null")
        name = told["name"]
    except (zipfile.BadZipFile, zlib.error, *_DAMAGED) as error:
        raise ParseFailure(
            "the file is none that a playground saved", help="save it again; or open a MODEL"
        ) from error
    _check(told.get("stepwell"), texts["program.mlir"], name)
    asked = Asked.of_json(told.get("asked"))
    tensors = unpack_bytes(packed["program"])
    program = _program(texts["program.mlir"] or "", tensors)
    edited = None
    if asked.text is not None and texts["edited.mlir"]:
        edited = _program(texts["edited.mlir"], {**tensors, **unpack_bytes(packed["edited"])})
    return Shared(name, program, _as_text(asked, edited), edited)


_DAMAGED = (KeyError, TypeError, ValueError, EOFError, OSError, RuntimeError)
"""Further errors of `zipfile`, for archives that are encrypted, patched or of a later version."""


def _member(archive: zipfile.ZipFile, name: str) -> str | None:
    if name not in archive.namelist():
        return None
    if archive.getinfo(name).file_size > MOST_TEXT:
        raise ParseFailure(f"{name} is too long a text")
    return archive.read(name).decode()


def _check(version: Any, text: Any, name: Any) -> None:
    if version != FORMAT:
        raise ParseFailure(f"the playground is of form {version!r}, not {FORMAT}")
    if not isinstance(text, str) or not isinstance(name, str):
        raise ParseFailure("the playground holds no program")


def _program(text: str, tensors: dict[str, Any]) -> Program:
    module, weights = parse_module(text, name="program.mlir"), WeightStore()
    for key, tensor in tensors.items():
        weights.add(key, tensor)
    take_values(module, weights)
    program = Program(module, weights)
    missing = sorted(program.used_weights() - set(weights))
    if missing:
        raise ParseFailure(f"weight {quoted(missing[0])} is missing in the shared data")
    return program


def _as_text(asked: Asked, edited: Program | None) -> Asked:
    """Return the settings with the text of the edited program as the editor shows it."""
    if edited is None:
        return replace(asked, text=None, text_at="")
    shown = to_text(with_values(edited.module, edited.weights))
    return replace(asked, text=shown)
