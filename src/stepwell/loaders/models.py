"""Open the `MODEL` of a command: `.pt2`, saved program, `file.py:callable`, a transformers folder,
a `.gguf` of a language model.

The callable returns `(module, example_inputs)` or `(module, example_inputs, dynamic_shapes)`, with
a mapping in place of the inputs for inputs by keyword; or a mapping with the names of
`torch.export.export`: `{"module": …, "args": (…), "kwargs": {…}, "dynamic_shapes": …}`; or
an `ExportedProgram`.
"""

import ast
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stepwell.dialects.symbols import asked_quietly
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.compat.torch.torch_private import schema_of
from stepwell.ir.diagnostics import StepwellError, first_line
from stepwell.ir.platform.process_settings import kept_stderr
from stepwell.language_models import (
    BEFORE_EXPORT,
    export_causal_lm,
    export_seq2seq,
    export_vision_language,
    is_causal_lm,
    is_seq2seq,
    is_vision_language,
    load_causal_lm,
    prepare,
)
from stepwell.loaders.dynamic_shapes import dynamic_shapes, insist
from stepwell.loaders.dynamic_shapes.exporting import line_of
from stepwell.loaders.factories import FORMS, made_by, parts_of, users_code
from stepwell.model_zoo.catalogue.models import SOURCES, find
from stepwell.program import Program, from_exported_program, load
from stepwell.quantization.quantizers import QUANTIZERS, find_quantizer, is_mixture
from stepwell.translate.importer.aliases import has_schema
from stepwell.translate.importer.export_call import export
from stepwell.translate.importer.pt2 import load_pt2


@dataclass(frozen=True)
class Model:
    """A model ready to be lowered: its program, and what is known about its origin."""

    name: str
    program: Program
    module: Any = None
    inputs: tuple[Any, ...] | None = None
    keywords: Mapping[str, Any] = field(default_factory=dict[str, Any])
    notes: tuple[str, ...] = ()
    """Choices that the model required, a sentence each."""


def open_model(
    spec: str,
    *,
    trust: bool = False,
    quantize: str | None = None,
    language: Mapping[str, Any] | None = None,
    dynamic: Mapping[str, int | None] | None = None,
    data: Sequence[tuple[Any, ...]] | None = None,
) -> Model:
    """Open the model that a `MODEL` argument of the command line names.

    Args:
        spec: `model.pt2`, `model.mlir`, `file.py:callable`, `model.gguf`, or a folder written by
            `save_pretrained` of a causal language model of transformers.
        trust: let a `.pt2` unpickle its sample inputs; otherwise they are skipped.
        quantize: the name of a quantizer, for a callable's module or a language model.
        language: how to prepare and export a language model: `dtype`, `embedding` and `group` of
            `stepwell.language_models.prepare`; `context`, `attention`, `any_length`, `cache`,
            `cache_dtype`, `chunk` and `logits` of `export_causal_lm`.
        dynamic: kinds of dynamic dimensions, as for `stepwell.dynamic_shapes`, for a module of a
            callable or of the zoo.
        data: inputs of calls on which the quantizer is calibrated, in place of the example inputs.

    Raises:
        StepwellError: the file or callable does not exist, or the file cannot be read.
    """
    path, colon, attribute = spec.rpartition(":")
    if colon and path.endswith(".py"):
        return export_model(attribute, made_by(spec), quantize=quantize, dynamic=dynamic, data=data)
    if data is not None:
        raise StepwellError(f"{spec} is not quantized on data", help=_A_MODULE)
    if any(kind.is_that(Path(spec)) for kind in _LANGUAGE):
        return _from_transformers(Path(spec), quantize, language or {})
    if language:
        fact = f"{spec} is no folder of a causal language model of transformers"
        raise StepwellError(
            fact, help="omit --context, --attention and --cache: only language models have them"
        )
    if quantize is not None:
        raise StepwellError(_EXPORTED.format(spec, "a module is quantized"), help=_A_MODULE)
    file = Path(spec)
    if not file.exists() and spec.split("/")[0] in SOURCES:
        return _from_zoo(spec, quantize, dynamic)
    if dynamic:
        raise StepwellError(_EXPORTED.format(spec, "sizes are made dynamic"), help=_A_MODULE)
    if not file.exists():
        raise StepwellError(
            f"the file {spec} does not exist",
            help="MODEL is a .pt2, a saved .mlir, file.py:callable, or a folder of transformers",
        )
    if file.suffix == ".pt2":
        return Model(file.stem, from_exported_program(load_pt2(file, trust=trust)))
    if file.suffix == ".mlir" or file.is_dir():
        return Model(file.stem, load(file))
    if file.suffix == ".py":
        with users_code(f"{spec} cannot be read", file):
            body = ast.parse(file.read_bytes()).body
        names = [f"{spec}:{held.name}" for held in body if isinstance(held, ast.FunctionDef)]
        known = ", ".join(names[:5]) or f"{spec}:make"
        fact = f"{spec} is a file of code, not a model"
        raise StepwellError(fact, help=f"name a function: {known}")
    raise StepwellError(
        f"{spec} is of an unknown kind", help="MODEL is a .pt2, a saved .mlir, or file.py:callable"
    )


CALIBRATED = frozenset(
    name for name in QUANTIZERS if name.startswith("int") and "dynamic" not in name
)
"""Quantizers that choose scales of activations by the inputs that they see."""
_EXPORTED = "{} is exported already, but {} before the export"
_A_MODULE = "name a file.py:callable that makes the module"


def _from_zoo(name: str, quantize: str | None, dynamic: Mapping[str, int | None] | None) -> Model:
    made = find(name).make()
    program = made.program or (made.module, made.inputs)
    return export_model(name.replace("/", "_"), program, quantize=quantize, dynamic=dynamic)


@dataclass(frozen=True)
class _Language:
    """A kind of language model, with functions that recognize its folder and export it."""

    what: str
    is_that: Callable[[Path], bool]
    export: Callable[..., Mapping[str, Any]]
    options: frozenset[str] | None = None
    """Those of `export_causal_lm` that it has, if not all."""


_LANGUAGE = (
    _Language("tokens", is_causal_lm, export_causal_lm),
    _Language("two methods", is_seq2seq, export_seq2seq, frozenset({"context"})),
    _Language(
        "images and tokens",
        is_vision_language,
        export_vision_language,
        frozenset({"context", "attention"}),
    ),
)


def _from_transformers(folder: Path, quantize: str | None, language: Mapping[str, Any]) -> Model:
    before = {name: value for name, value in language.items() if name in BEFORE_EXPORT}
    how: dict[str, Any] = {
        name: value for name, value in language.items() if name not in BEFORE_EXPORT
    }
    notes: list[str] = []
    model = load_causal_lm(folder, notes)
    with users_code(f"quantizer {quantize!r} fails on {folder}"):
        model = prepare(model, quantize=quantize, **before)
    kind = next(kind for kind in _LANGUAGE if kind.is_that(folder))
    others = sorted(set(how) - kind.options) if kind.options is not None else ()
    if others:
        raise StepwellError(
            f"{folder} is a model of {kind.what}, whose export has no {', '.join(others)}",
            help="omit these options",
        )
    if kind.export is not export_seq2seq:  # Which has one form.
        how["notes"] = notes
    program = from_exported_program(kind.export(model, **how))
    return Model(folder.resolve().name.removesuffix(".gguf"), program, notes=tuple(notes))


def export_model(
    name: str,
    made: Any,
    *,
    quantize: str | None = None,
    dynamic: Mapping[str, int | None] | None = None,
    data: Sequence[tuple[Any, ...]] | None = None,
) -> Model:
    """Export what a factory returned.

    Args:
        name: the name of the model in messages.
        made: `(module, inputs)`, `(module, inputs, dynamic_shapes)`, these by name, or an
            `ExportedProgram`.
        quantize: the name of a quantizer that is applied to the module first.
        dynamic: kinds of dynamic dimensions (`stepwell.dynamic_shapes`).
        data: inputs of calls on which it is calibrated, in place of the example inputs.

    Raises:
        StepwellError: the module cannot be quantized or exported, or is in training mode.
    """
    if isinstance(made, torch.export.ExportedProgram):
        if quantize is not None or dynamic:
            raise StepwellError(
                f"{name} returned an exported program, which cannot be quantized", help=FORMS
            )
        inputs, keywords = made.example_inputs or (None, {})
        return Model(name, from_exported_program(made), None, inputs, keywords)
    module, args, kwargs, shapes = parts_of(name, made)
    if not isinstance(module, torch.nn.Module):
        raise StepwellError(f"{name} returned {type(module).__name__} instead of torch.nn.Module")
    if quantize is not None:
        if kwargs:
            raise StepwellError(f"{name} takes inputs by keyword, which quantizers do not support")
        if is_mixture(quantize):
            from stepwell.quantization.sensitivity.measure import quantized_as

            with users_code(f"quantizer {quantize!r} fails on {name}"):
                return Model(name, quantized_as(module, tuple(args), quantize), module, args)
        with users_code(f"quantizer {quantize!r} fails on {name}"):
            module = find_quantizer(quantize)(module, *(data or [args]))
    if dynamic:
        sizes = dynamic_shapes(module, args, kwargs, dynamic=dynamic)
        insist(sizes, dynamic)
        program, notes = from_exported_program(sizes.program), tuple(map(str, sizes.axes))
        return Model(name, program, module, sizes.inputs, sizes.keywords, notes)
    exported = _exported(name, module, args, kwargs, shapes)
    if (trains := what_trains(exported)) is not None:
        raise StepwellError(
            f"{name} is in training mode: {trains} computes otherwise in evaluation",
            help=f"return module.eval() from {name}",
        )
    on = f"{len(data)} inputs of --data" if data else "the example inputs alone; --data names more"
    notes = (f"{quantize} is calibrated on {on}",) if quantize in CALIBRATED else ()
    return Model(name, from_exported_program(exported), module, args, kwargs, notes)


def what_trains(exported: Any) -> str | None:
    """Return the name of the first node that is random, or normalizes by its batch, because the
    module is in training mode.
    """
    for node in exported.graph.nodes:
        if not has_schema(node.target):
            continue
        names = [argument.name for argument in schema_of(node.target).arguments]
        bound = dict(zip(names, node.args, strict=False)) | node.kwargs
        if any(bound.get(name) is True for name in ("train", "training")):
            drops = next((bound[name] for name in ("p", "dropout") if name in bound), 1)
            if drops != 0:
                return str(node.name)
    return None


def _exported(name: str, module: Any, args: Any, kwargs: Any, dynamic: Any) -> Any:
    """Export a module; on failure, torch's graph and advice become notes of the error's cause.

    Raises:
        StepwellError: torch cannot export the module; the message is one line and names the
            model's line.
    """
    with asked_quietly(), kept_stderr() as stderr:
        try:
            return export(module, args, kwargs, dynamic_shapes=dynamic)
        except (Exception, SystemExit) as error:
            error.add_note(stderr.getvalue())
            places = re.findall(r'File "([^"]+)", line (\d+)', str(error))
            is_dependent = "data-dependent" in str(error)
            raise StepwellError(
                f"torch.export.export fails on {name}: {type(error).__name__}: {first_line(error)}",
                f"{Path(places[-1][0]).name}:{places[-1][1]}"
                if places
                else str(line_of(error) or "") or None,
                (
                    "control flow depends on a value here: torch.where selects values, torch.cond "
                    "branches; "
                    if is_dependent
                    else ""
                )
                + "-v shows all that torch says",
            ) from error
