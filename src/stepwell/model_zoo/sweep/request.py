"""Requests of sweeps, named by content: the store alone answers a repeated request.

Listing a zoo imports its libraries and creates some of their models, which takes longer than
reading rows. A store therefore records which rows answered a request (`Store.remember`). The name
of a request includes everything that its list and the names of its rows depend on.
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
    """Compute the name of a request.

    Args:
        models: patterns, as `zoo.catalogue.select` takes them.
        targets: their names.
        variant: the preparation of each model.
        options: the resolved options of each target.
        latency, stock, tune: further measurements.
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
