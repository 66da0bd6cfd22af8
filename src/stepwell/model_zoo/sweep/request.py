"""What a sweep is asked for, named by content: the same again is answered by the store alone.

To list a zoo its libraries are imported and some of their models made, which takes longer than to
look at rows. So a store notes which rows answered a request (`Store.remember`), and the name of a
request holds all that its list and the names of its rows hang on.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from stepwell.model_zoo.catalogue.examples import FOLDER
from stepwell.model_zoo.catalogue.models import SOURCES, python_file
from stepwell.model_zoo.sweep.jobs import Variant, digest, python_text, source_hash, version_of
from stepwell.plugins.plugins import registry


def named_by_content(
    models: Sequence[str],
    targets: Sequence[str],
    variant: Variant,
    options: Mapping[str, Mapping[str, Any]],
    latency: bool,
    stock: bool,
    tune: bool,
) -> str:
    """The name of a request.

    Args:
        models: patterns, as `zoo.catalogue.select` takes them.
        targets: their names.
        variant: what is done to each model.
        options: those that each target was given, resolved.
        latency, stock, tune: what is measured besides.
    """
    libraries = sorted({name for needed in SOURCES.values() for name in needed})
    folders = [file.parent for name in models if (file := python_file(name)) is not None]
    said = {
        "models": models,
        "targets": targets,
        "variant": asdict(variant),
        "options": options,
        "measured": (latency, stock, tune),
        "source": source_hash(_any),
        "libraries": [f"{name} {version_of(name)}" for name in libraries],
        "files": [python_text(folder) for folder in (*folders, FOLDER)],
        "plugins": registry().identity(),
    }
    return digest(json.dumps(said, sort_keys=True, default=str))


def _any(path: str) -> bool:
    return True
