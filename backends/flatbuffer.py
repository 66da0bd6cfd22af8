"""A FlatBuffers reader for untrusted bytes, driven by the format's own `.fbs` text.

The accessors that flatc generates trust their input: a flipped bit sends them out of the buffer,
into a cycle, or into a vector of four billion elements. This reader checks every offset
against the buffer, every table against its own extent, nesting against a depth, and the total
size of the result against a budget proportional to the file, so that shared sub-objects cannot
be expanded without limit. Reading therefore takes time linear in the size of any file.

Source: the FlatBuffers binary format, https://flatbuffers.dev/internals/.
"""

import re
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from stepwell.ir.diagnostics import ParseFailure

Record = dict[str, Any]
"""A table: field name to value. Absent scalars have their default, absent vectors are empty,
absent strings and tables are None; a union is `(name of its member, record)` or None."""

SCALARS: dict[str, str] = {
    "bool": "?", "byte": "b", "ubyte": "B", "int8": "b", "uint8": "B", "short": "h", "ushort": "H",
    "int16": "h", "uint16": "H", "int": "i", "uint": "I", "int32": "i", "uint32": "I", "long": "q",
    "ulong": "Q", "int64": "q", "uint64": "Q", "float": "f", "float32": "f", "double": "d",
    "float64": "d",
}  # fmt: skip
_MAX_DEPTH = 64
_BUDGET_PER_BYTE = 8


@dataclass(frozen=True)
class Field:
    """A field of a table: its type as written, its slot in the vtable, its default.

    `alignment` is the `force_align` of a vector, or 0.
    """

    name: str
    type: str
    is_vector: bool
    slot: int
    default: int | float | bool | None
    alignment: int = 0


@dataclass
class FlatbufferSchema:
    """The declarations of a `.fbs` file and of the files that it includes."""

    tables: dict[str, tuple[Field, ...]] = field(default_factory=dict[str, tuple[Field, ...]])
    enums: dict[str, tuple[str, dict[str, int]]] = field(
        default_factory=dict[str, tuple[str, dict[str, int]]]
    )
    unions: dict[str, dict[int, tuple[str, str]]] = field(
        default_factory=dict[str, dict[int, tuple[str, str]]]
    )
    """Members by tag: their name in the union, and the name of their table."""
    root: str = ""
    identifier: bytes = b""
    layouts: dict[tuple[str, tuple[str, ...]], Any] = field(
        default_factory=dict[tuple[str, tuple[str, ...]], Any], repr=False, compare=False
    )
    """Layouts of tables, by table name and present fields; a cache of the writer."""

    def code(self, type_: str) -> str | None:
        """Return the code of a scalar type in `struct`'s notation; None for other types."""
        return SCALARS.get(self.enums[type_][0] if type_ in self.enums else type_)


_DECLARATION = re.compile(
    r"(?P<kind>table|enum|union)\s+(?P<name>\w+)\s*(?::\s*(?P<base>\w+))?[^{]*\{(?P<body>[^}]*)\}"
)
_FIELD = re.compile(
    r"(?P<name>\w+)\s*:\s*(?P<type>\[?\s*[\w.]+\s*\]?)\s*(?:=\s*(?P<default>[^\s;(]+))?"
    r"(?:[^;]*force_align\s*:\s*(?P<alignment>\d+))?[^;]*;"
)


def parse_schema(text: str, include: Callable[[str], str] | None = None) -> FlatbufferSchema:
    """Parse the declarations in a `.fbs` text; `include(name)` returns an included file's text.

    Tables, enums, unions, defaults and attributes are supported. Structs, which the formats read
    here do not use, are refused.
    """
    schema = FlatbufferSchema()
    _declare(schema, text, include)
    return schema


def _declare(schema: FlatbufferSchema, text: str, include: Callable[[str], str] | None) -> None:
    text = re.sub(r"//[^\n]*", "", text)
    for name in re.findall(r'include\s+"([^"]+)"\s*;', text):
        if include is None:
            raise ParseFailure(f"the schema includes {name}, which was not given")
        _declare(schema, include(name), include)
    if re.search(r"^\s*struct\s", text, re.MULTILINE):
        raise ParseFailure("the schema declares a struct, which this reader does not know")
    declarations = list(_DECLARATION.finditer(text))
    for declaration in declarations:
        entries = [e.strip() for e in declaration["body"].split(",") if e.strip()]
        if declaration["kind"] == "enum":
            values: dict[str, int] = {}
            following = 0
            for entry in entries:
                name, _, value = (part.strip() for part in entry.partition("="))
                following = int(value, 0) if value else following
                values[name] = following
                following += 1
            schema.enums[declaration["name"]] = (declaration["base"], values)
        elif declaration["kind"] == "union":
            members = [e.split("=")[0].split(":") for e in entries]  # `Alias: Table`, or `Table`.
            schema.unions[declaration["name"]] = {
                tag: (member[0].strip(), member[-1].strip())
                for tag, member in enumerate(members, start=1)
            }
    for declaration in declarations:
        if declaration["kind"] == "table":
            schema.tables[declaration["name"]] = _fields(schema, declaration["body"])
    if root := re.search(r"root_type\s+([\w.]+)\s*;", text):
        schema.root = root[1]
    if identifier := re.search(r'file_identifier\s+"([^"]{4})"', text):
        schema.identifier = identifier[1].encode()


def _fields(schema: FlatbufferSchema, body: str) -> tuple[Field, ...]:
    fields: list[Field] = []
    slot = 0
    for match in _FIELD.finditer(body):
        written = match["type"].replace(" ", "")
        is_vector = written.startswith("[")
        name = written.strip("[]").rsplit(".", 1)[-1]
        if name in schema.unions:
            if is_vector:
                raise ParseFailure(f"{match['name']}: vectors of unions are not read here")
            slot += 1  # The union's type tag takes a slot of its own before the value.
        default = _default(schema, name, match)
        alignment = int(match["alignment"] or 0)
        fields.append(Field(match["name"], name, is_vector, slot, default, alignment))
        slot += 1
    return tuple(fields)


def _default(
    schema: FlatbufferSchema, type_: str, match: re.Match[str]
) -> int | float | bool | None:
    written = match["default"]
    if type_ in schema.enums:
        values = schema.enums[type_][1]
        return 0 if written is None else values.get(written.rsplit(".", 1)[-1], 0)
    if type_ not in SCALARS:
        return None
    if type_ == "bool":
        return written == "true"
    if SCALARS[type_] in "fd":
        return float(written) if written else 0.0
    return int(written, 0) if written else 0


def read_root(
    data: bytes | memoryview, schema: FlatbufferSchema, *, check_identifier: bool = True, what: str
) -> Record:
    """Read the root table of a FlatBuffer as nested records.

    Vectors of bytes are `memoryview`s of `data`, other vectors are lists. `what` names the
    format in errors. Raises `ParseFailure` for anything that is not well formed.
    """
    if check_identifier and schema.identifier and bytes(data[4:8]) != schema.identifier:
        raise ParseFailure(
            f"{what}: bytes 4 to 8 are {bytes(data[4:8])!r}, "
            f"where the format has {schema.identifier!r}"
        )
    reader = _Reader(memoryview(data).cast("B"), schema, what)
    return reader.table(schema.root, reader.follow(0), 0)


class _Reader:
    def __init__(self, data: memoryview, schema: FlatbufferSchema, what: str) -> None:
        self._data = data
        self._schema = schema
        self._what = what
        self._budget = _BUDGET_PER_BYTE * len(data) + 4096

    def _fail(self, reason: str, position: int) -> ParseFailure:
        return ParseFailure(f"{self._what}: {reason}, at byte {position} of {len(self._data)}")

    def _unpack(self, code: str, position: int) -> Any:
        size = struct.calcsize("<" + code)
        if position < 0 or position + size > len(self._data):
            raise self._fail("an offset points outside the data", position)
        return struct.unpack_from("<" + code, self._data, position)[0]

    def _spend(self, amount: int, position: int) -> None:
        self._budget -= amount
        if self._budget < 0:
            raise self._fail("the same bytes are referred to too many times", position)

    def follow(self, position: int) -> int:
        """Return the position to which the unsigned offset stored at `position` points."""
        target = position + self._unpack("I", position)
        if target <= position or target + 4 > len(self._data):
            raise self._fail("an offset points outside the data", position)
        return target

    def table(self, name: str, position: int, depth: int) -> Record:
        """Return the table `name` that begins at `position`."""
        if depth > _MAX_DEPTH:
            raise self._fail("tables are nested too deeply", position)
        vtable = position - self._unpack("i", position)
        vtable_size = self._unpack("H", vtable)
        table_size = self._unpack("H", vtable + 2)
        if (
            vtable_size < 4
            or vtable_size % 2
            or vtable + vtable_size > len(self._data)
            or table_size < 4
            or position + table_size > len(self._data)
        ):
            raise self._fail(f"the table {name} has an impossible extent", position)
        self._spend(table_size, position)
        slots: tuple[int, ...] = struct.unpack_from(
            f"<{vtable_size // 2 - 2}H", self._data, vtable + 4
        )
        record: Record = {}
        for declared in self._schema.tables[name]:
            offset = slots[declared.slot] if declared.slot < len(slots) else 0
            if offset >= table_size:
                raise self._fail(f"field {declared.name} lies outside table {name}", position)
            if declared.type in self._schema.unions:
                tag_offset = slots[declared.slot - 1] if declared.slot <= len(slots) else 0
                record[declared.name] = self._union(declared, position, tag_offset, offset, depth)
            elif offset == 0:
                record[declared.name] = [] if declared.is_vector else declared.default
            elif declared.is_vector:
                record[declared.name] = self._vector(declared, position + offset, depth)
            else:
                record[declared.name] = self._value(declared.type, position + offset, depth)
        return record

    def _union(
        self, declared: Field, position: int, tag_offset: int, offset: int, depth: int
    ) -> tuple[str, Record] | None:
        tag = self._unpack("B", position + tag_offset) if tag_offset else 0
        if tag == 0 or offset == 0:
            if (tag == 0) != (offset == 0):
                raise self._fail(f"union {declared.name} has a tag or a value alone", position)
            return None
        member = self._schema.unions[declared.type].get(tag)
        if member is None:
            raise self._fail(f"{tag} is no member of the union {declared.type}", position)
        name, table = member
        return name, self.table(table, self.follow(position + offset), depth + 1)

    def _value(self, type_: str, position: int, depth: int) -> Any:
        code = self._schema.code(type_)
        if code is not None:
            return self._unpack(code, position)
        target = self.follow(position)
        return self._string(target) if type_ == "string" else self.table(type_, target, depth + 1)

    def _string(self, position: int) -> str:
        length = self._unpack("I", position)
        if position + 4 + length > len(self._data):
            raise self._fail("a string runs past the end", position)
        self._spend(4 + length, position)
        try:
            return str(self._data[position + 4 : position + 4 + length], "utf-8")
        except UnicodeDecodeError:
            raise self._fail("a string is not UTF-8", position) from None

    def _vector(self, declared: Field, position: int, depth: int) -> Any:
        start = self.follow(position)
        length = self._unpack("I", start)
        code = self._schema.code(declared.type)
        size = struct.calcsize("<" + code) if code else 4
        if start + 4 + length * size > len(self._data):
            raise self._fail(f"vector {declared.name} runs past the end", start)
        if code == "B":
            return self._data[start + 4 : start + 4 + length]
        self._spend(4 + length * size, start)
        if code is not None:
            return list(struct.unpack_from(f"<{length}{code}", self._data, start + 4))
        positions = range(start + 4, start + 4 + 4 * length, 4)
        return [self._value(declared.type, p, depth) for p in positions]
