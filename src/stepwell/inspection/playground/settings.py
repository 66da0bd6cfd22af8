"""The settings of the playground, which the page sends and a link shares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, cast, get_args

from stepwell.ir.diagnostics import ParseFailure
from stepwell.pipelines.pass_pipeline.pipeline_text import EditKind


@dataclass(frozen=True)
class Asked:
    """The settings of a lowering to a target.

    Attributes:
        target: the target's name.
        options: `name=value` strings, as for `-O`.
        edits: edits of the pipeline, as on the command line: (`without`, `legalize/…`). Removals
            come last.
        rules: the text of rules, which edits name.
        at: the stage or pass after which the program is shown; empty: the source program.
        text: the edited program, on which the remaining passes run; None without an edit.
        text_at: the stage or pass after which the program was edited.
    """

    target: str = "xnnpack"
    options: tuple[str, ...] = ()
    edits: tuple[tuple[EditKind, str], ...] = ()
    rules: str = ""
    at: str = ""
    text: str | None = None
    text_at: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the settings as JSON."""
        return asdict(self)

    @classmethod
    def of_json(cls, given: Any) -> Asked:
        """Read the settings of a page or a file.

        Raises:
            ParseFailure: a key is unknown, or a value has the wrong type.
        """
        if not isinstance(given, Mapping):
            raise ParseFailure("the settings are no mapping")
        said = cast("Mapping[str, Any]", given)
        unknown = sorted(set(said) - set(cls.__dataclass_fields__))
        if unknown:
            raise ParseFailure(f"a playground has no {unknown[0]!r}")
        held = {name: said[name] for name in said if name not in ("options", "edits", "text")}
        wrong = [name for name, value in held.items() if not isinstance(value, str)]
        text = said.get("text")
        if wrong or not isinstance(text, str | None):
            raise ParseFailure(f"{wrong[0] if wrong else 'text'} is no text")
        return cls(**held, text=text, options=_texts(said.get("options", ())), edits=_edits(said))


def _texts(given: Any) -> tuple[str, ...]:
    if isinstance(given, list | tuple):
        texts = tuple(one for one in cast("list[Any]", given) if isinstance(one, str))
        if len(texts) == len(cast("list[Any]", given)):
            return texts
    raise ParseFailure("a list of texts is needed")


def _edits(said: Mapping[str, Any]) -> tuple[tuple[EditKind, str], ...]:
    given = said.get("edits", ())
    if not isinstance(given, list | tuple):
        raise ParseFailure("the edits are no list")
    edits = [_texts(one) for one in cast("list[Any]", given)]
    if any(len(edit) != 2 or edit[0] not in get_args(EditKind) for edit in edits):
        raise ParseFailure("an edit is one of " + ", ".join(get_args(EditKind)) + ", and a text")
    return tuple(cast("list[tuple[EditKind, str]]", edits))
