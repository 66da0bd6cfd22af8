"""Export a causal model of transformers, and compare the exported form with the model."""

import warnings
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Literal

import torch

from stepwell.dialects.symbols import asked_quietly
from stepwell.ir.diagnostics import StepwellError, first_line, reported
from stepwell.ir.platform.process_settings import kept_stderr, without_native_lines
from stepwell.language_models.attention import Attention, beyond_custom
from stepwell.language_models.decoder import Decoder, Form, Growing, Logits, Takes
from stepwell.language_models.metadata import context_of, metadata
from stepwell.language_models.observing import Observed, loose_tensors, observe, own_attention
from stepwell.language_models.preparing import DTYPES
from stepwell.language_models.recurrences import CHUNK, has_chunked_form, needs_pair_masks
from stepwell.quantization.quantizers import in_floats
from stepwell.translate.importer.export_call import export

Caches = Literal["static", "dynamic"]
METHODS: dict[str, dict[str, Any]] = {
    "forward": {},
    "prefill": {"any_length": True, "logits": "last"},
    "decode": {"any_length": False, "logits": "last"},
    "verify": {"any_length": True, "logits": "all"},
}
"""Fixed options of each method; `forward` has the requested ones."""
_USUAL_CONTEXT = 2048
LEAST_CHUNK = 4
"""The least limit of the tokens of a call: as many as the calls before the export take."""
_ATTENTIONS: tuple[Attention, ...] = ("custom", "torch")
_AGREEMENT = {torch.float32: 1e-3, torch.float64: 1e-6}
"""Error bound of a decoder against its model, as a share of the largest logit; 0.05 otherwise."""


@torch.no_grad()
def export_causal_lm(
    model: Any,
    *,
    context: int | None = None,
    attention: Attention | None = None,
    any_length: bool | None = None,
    cache: Caches = "static",
    logits: Logits = "last",
    takes: Takes = "tokens",
    batch: int = 1,
    cache_dtype: str | None = None,
    chunk: int | None = None,
    methods: Sequence[str] = ("forward",),
    notes: list[str] | None = None,
) -> dict[str, Any]:
    """Export the methods of a causal model of transformers, for `stepwell.lower`.

    Args:
        model: a `PreTrainedModel` with a language model's head.
        context: the most tokens of a conversation; by default the model's maximum, at most 2048.
        attention: see `Decoder`; by default `custom` if ExecuTorch's operators support the model's
            attention, else `torch`.
        any_length: whether a call takes any number of tokens, or one; by default any number if
            the model's layers continue from their state with several.
        cache: `static`: state of the program, for `context` tokens. `dynamic`: an argument of each
            call that is returned longer, for callers that own it; see `Growing`.
        logits: of the `last` token, or of `all` (to verify speculative tokens).
        takes: `tokens` `[1, n]`, or their `embeddings` `[1, n, size]`, which may include others
            than those of tokens; with a static cache.
        batch: number of parallel conversations of equal length.
        cache_dtype: `bf16`, `fp16` or `fp32`: dtype of the keys and values of ExecuTorch's
            operators, and of the products with them; by default the model's.
        chunk: the most tokens of a call, into which ExecuTorch's runner splits a prompt; by default
            the context, but 64 where a layer computes with pairs of tokens (delta rules and state
            spaces).
        methods: some of `METHODS`, which share the state: `prefill` takes any number of tokens,
            `decode` one; `verify` takes any number and returns the logits of all. ExecuTorch's text
            runner calls `forward`.
        notes: receives a sentence for each choice that the model required.

    Returns:
        Each method as an `ExportedProgram`, and the values that ExecuTorch's LLM runner queries.

    Raises:
        StepwellError: the model does not support the options, torch cannot export it, or the
            exported form disagrees with the model.
    """
    config = model.config.get_text_config()
    size = context_of(config, context, _USUAL_CONTEXT)
    model = model.eval().requires_grad_(False)
    with as_it_was(model), asked_quietly():
        _make_experts_exportable(model)
        observed = observe(model, size, batch)
        takes_any = _wants_any_length(methods)
        if chunk is not None and chunk < LEAST_CHUNK:
            raise StepwellError(f"chunk is {chunk}, must be at least {LEAST_CHUNK} tokens")
        if cache == "dynamic":
            if chunk is not None:
                raise StepwellError(
                    "a call with a dynamic cache takes any number of tokens, but chunk limits it",
                    help="omit chunk (--chunk), or use cache='static'",
                )
            _refuse_what_does_not_grow(config, observed, attention, methods)
            if cache_dtype is not None:
                raise StepwellError(
                    "a dynamic cache has the compute dtype of the model; cache_dtype cannot "
                    "change it",
                    help="use cache='static' with ExecuTorch's attention",
                )
            form = Form(size, any_length is not False, "torch", "last", batch=batch)
            programs = {"forward": _with_caches_given(model, observed, form)}
        else:
            chunk = chunk or (CHUNK if needs_pair_masks(model) else None)
            kinds = _attentions(attention, cache_dtype)
            if len(kinds) > 1 and all(place.is_recurrent for place in observed.states):
                kinds = ("torch",)  # No layer attends.
            kept = None if cache_dtype is None else DTYPES[cache_dtype]
            attempts = [
                Form(size, length, kind, logits, gives_mask, takes, batch, kept, chunk)
                for length in ((True, False) if any_length is None else (any_length,))
                for kind in kinds
                for gives_mask in (False, True)
            ]
            programs, form = _first_that_agrees(model, attempts, methods, notes)
    is_dynamic = form.any_length if "forward" in methods else takes_any
    told = metadata(model, size, form.attention, is_dynamic, form.logits == "all")
    if is_dynamic and chunk is not None:
        told["get_max_seq_len"] = form.max_tokens
    if cache == "dynamic":  # A runner that asks for a cache means one inside.
        told = {key: value for key, value in told.items() if not key.startswith("use_")}
    return {**programs, **told}


def _attentions(asked: Attention | None, cache_dtype: str | None) -> tuple[Attention, ...]:
    """Return the attentions to try, in order.

    Raises:
        StepwellError: the cache type is unknown, or the requested attention does not support it.
    """
    if cache_dtype is None:
        return (asked,) if asked else _ATTENTIONS
    if cache_dtype not in DTYPES:
        raise StepwellError(f"cache_dtype is {cache_dtype}, must be one of {', '.join(DTYPES)}")
    if asked == "torch":
        raise StepwellError(
            "the model's own attention keeps its cache in the compute dtype of the model",
            help="use attention='custom' (ExecuTorch's operators)",
        )
    return ("custom",)


def _wants_any_length(methods: Sequence[str]) -> bool:
    """Return, for each method that determines it, whether it takes any number of tokens.

    Raises:
        StepwellError: a method name is unknown.
    """
    unknown = sorted(set(methods) - set(METHODS))
    if unknown or not methods:
        raise StepwellError(
            f"a language model has no method {', '.join(unknown)}",
            help=f"its methods are {', '.join(METHODS)}",
        )
    return any(METHODS[name].get("any_length", False) for name in methods)


def _with_caches_given(model: Any, observed: Observed, form: Form) -> Any:
    module = Growing(model, observed)
    past = [{2: torch.export.Dim("past", max=form.context - 1)}] * len(observed.cache.layers)
    return exported(model, module, (form.tokens, *module.caches(5)), (form.rows, past, past))


def _first_that_agrees(
    model: Any, attempts: Sequence[Form], methods: Sequence[str], notes: list[str] | None
) -> tuple[Mapping[str, Any], Form]:
    """Export the methods in the first form in which all agree with the model.

    Raises:
        StepwellError: no form agrees; the message is that of the last attempt.
    """
    refusals: list[tuple[Form, StepwellError]] = []
    for form in attempts:
        observed = observe(model, form.context, form.batch)
        programs: dict[str, Any] = {}
        try:
            if form.any_length or any(METHODS[name].get("any_length") for name in methods):
                _refuse_what_takes_one(model, observed)
            if form.attention == "custom":
                _refuse_what_custom_attention_lacks(model, observed)
            decoder = Decoder(model, observed, form)
            for name in methods:
                decoder.form = of = replace(form, **METHODS[name])
                _compare(model, decoder)
                shapes = (of.rows, {0: 1}) if of.any_length else None
                first = as_taken(model, of, of.tokens)
                programs[name] = exported(model, decoder, (first, torch.tensor([0])), shapes)
        except StepwellError as refusal:
            refusals.append((form, refusal))
            continue
        if notes is not None:
            notes.extend(_choices(form, refusals))
        return programs, form
    raise refusals[-1][1]


def as_taken(model: Any, form: Form, tokens: torch.Tensor) -> torch.Tensor:
    """Return tokens in the form in which a method takes them."""
    return tokens if form.takes == "tokens" else model.get_input_embeddings()(tokens)


def _choices(form: Form, refusals: Sequence[tuple[Form, StepwellError]]) -> Iterator[str]:
    """Describe the choices that differ from the first attempt, each with its reason."""
    said = {
        "any_length": {True: "any number of tokens", False: "a token at a time"},
        "attention": {"custom": "ExecuTorch's attention", "torch": "the model's own attention"},
        "gives_mask": {True: "a mask that hides nothing"},
    }
    for key, names in said.items():
        chosen = getattr(form, key)
        reason = next(
            (error for other, error in reversed(refusals) if getattr(other, key) != chosen), None
        )
        if reason is not None and chosen != getattr(refusals[0][0], key):
            yield f"{names[chosen]}: {reason.problems[0].fact}"


@contextmanager
def as_it_was(model: Any) -> Generator[None]:
    """Restore a model's attention, experts and module state at the end of the context."""
    attention = model.config._attn_implementation
    tensors = loose_tensors(model)
    experts = getattr(model.config, "_experts_implementation", None)
    try:
        yield
    finally:
        for (name, key), value in tensors.items():
            vars(model.get_submodule(name))[key] = value
        model.set_attn_implementation(attention)
        if experts is not None:
            model.set_experts_implementation(experts)


def _make_experts_exportable(model: Any) -> None:
    """Replace the default experts, whose group sizes depend on values and cannot be exported."""
    if getattr(model.config, "_experts_implementation", None) is not None:
        model.set_experts_implementation("batched_mm")


def _refuse_what_takes_one(model: Any, observed: Observed) -> None:
    if observed.is_recurrent and not has_chunked_form(model):
        raise StepwellError(
            f"{_kind(model)} takes one token at a time: its recurrent layers have no form for more",
            help="use any_length=False (--one-token), or the method decode",
        )


def _refuse_what_custom_attention_lacks(model: Any, observed: Observed) -> None:
    lacks = next(beyond_custom(observed.calls), None)
    if lacks is not None:
        raise StepwellError(
            f"{_kind(model)} has {lacks}, which ExecuTorch's attention does not have",
            help="attention='torch' keeps the model's own attention, over the whole cache",
        )


def _kind(model: Any) -> str:
    return model.config.get_text_config().model_type


def _refuse_what_does_not_grow(
    config: Any, observed: Observed, attention: Any, methods: Sequence[str]
) -> None:
    if tuple(methods) != ("forward",):
        raise StepwellError(
            f"{', '.join(methods)} share a state, but a dynamic cache is an argument and result "
            "of each call",
            help="cache='static', or methods=('forward',)",
        )
    if attention == "custom":
        raise StepwellError(
            "ExecuTorch's attention writes to a cache in place, but a dynamic cache grows",
            help="attention='torch', or cache='static'",
        )
    layers = observed.cache.layers
    kinds = getattr(config, "layer_types", None) or ()
    window = getattr(config, "sliding_window", None)
    lacks = None
    if window is not None and (not kinds or "sliding_attention" in kinds):
        lacks = f"windows of {window} tokens"
    if len(observed.states) != 2 * len(layers) or observed.is_recurrent:
        lacks = "layers that keep something else than keys and values"
    if lacks is not None:
        raise StepwellError(
            f"{config.model_type} has {lacks}, but a dynamic cache keeps every token",
            help="use cache='static' with attention='torch', the model's own attention",
        )


def _compare(model: Any, decoder: Decoder) -> None:
    """Compare the decoder and the model on some tokens, and restore the state.

    Raises:
        StepwellError: the results disagree.
    """
    vocabulary, form = model.config.get_text_config().vocab_size, decoder.form
    if not form.any_length:
        ends = tuple(range(1, min(8, form.context) + 1))
    elif decoder.is_recurrent:  # Calls of one token, of some, of a whole chunk, and another one.
        full = min(form.chunk or 8, form.max_tokens)
        ends = (1, 4, 4 + full, 4 + full + min(5, full))
        ends = tuple(sorted({min(end, form.context) for end in ends}))
    else:
        ends = (min(8, form.context) // 2, min(8, form.context))
    count = ends[-1]
    tokens = (torch.arange(form.batch * count) * 7 + 3).view(form.batch, count) % vocabulary
    said_to = as_taken(model, form, tokens)
    parts = list(zip((0, *ends), ends, strict=False))
    used = model.config._attn_implementation
    try:
        fact = f"{_kind(model)} does not run with its state inside"
        with reported(fact), without_native_lines(_is_operators_log), in_floats(model):
            said = [
                decoder(said_to[:, begin:end], torch.tensor([begin])).reshape(
                    form.batch, -1, vocabulary
                )[:, -1]
                for begin, end in parts
            ]
            model.set_attn_implementation(own_attention(model))
            whole = model(input_ids=tokens, use_cache=False).logits
    finally:
        model.set_attn_implementation(used)
        for place in decoder.states:
            getattr(decoder, place.name).zero_()
    want = torch.stack([whole[:, end - 1] for end in ends])
    what = f"{_kind(model)} with its state inside and attention={form.attention!r}"
    insist_on_agreement(model, torch.stack(said), want, what, REPORT, form.cache_dtype)


def _is_operators_log(line: bytes) -> bool:
    return b"kernel_runtime_context" in line or b"cpuinfo" in line


def exported(model: Any, module: Any, given: tuple[Any, ...], shapes: Any) -> Any:
    """Export a module around a model of transformers.

    Raises:
        StepwellError: torch cannot export the module, or the module has unknown state.
    """
    with kept_stderr() as stderr, warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:  # A strict export holds two copies of each weight, also of those that are mapped.
            program = export(module, given, dynamic_shapes=shapes)
        except Exception as error:
            error.add_note(stderr.getvalue())
            fact = f"torch.export.export fails on {_kind(model)}: {type(error).__name__}"
            raise StepwellError(
                f"{fact}: {first_line(error)}",
                help="any_length=False, or another attention=, may be exportable",
            ) from error
    lost = next(
        (str(one.message) for one in warned if "assigned during export" in str(one.message)), ""
    )
    if lost:
        raise StepwellError(
            f"{_kind(model)} assigns state that no cache or buffer keeps: {lost.split(' were ')[0]}"
        )
    return program


REPORT = "one run does not show all of its cache or attention: please report the model"


def insist_on_agreement(
    model: Any,
    found: torch.Tensor,
    wanted: torch.Tensor,
    what: str,
    help: str | None = None,
    cache_dtype: torch.dtype | None = None,
) -> None:
    """Check that logits are those of the model, within the bound of its dtype and its cache's.

    Raises:
        StepwellError: the logits differ; the message begins with `what`.
    """
    want = wanted.float()
    error = float((found.float() - want).abs().max() / want.abs().max())
    if error > max(_AGREEMENT.get(of, 0.05) for of in (model.dtype, cache_dtype or model.dtype)):
        raise StepwellError(f"{what} differs by {error:.2g} of the largest logit", help=help)
