"""Folders of transformers as they are published, lowered without options, compared with eager.

    python bench/folders.py [--only llama mamba] [--quantize 8da4w --embedding 8] [--table FILE]
    python bench/folders.py --rest          # continues with rows that are not stored as right

Rows are stored in bench/results when they are complete.

For each architecture: two layers with random weights, saved as a folder in bfloat16 with a
`generation_config.json`, experts as they ship; then what `stepwell lower FOLDER` does, and 48
tokens said to the `.pte`, in parts and one by one, past every window. The error is that of the
largest logit, beside what eager PyTorch in the folder's own type is off by from single precision: a
row is right where the first is at most twice the second (or a hundredth, where bfloat16 rounds
less). A mixture of experts may choose another one than eager where two are as good as equal to
bfloat16: one token of 48 may then be off by more, if the same folder in single precision is off by
less than 1e-4 everywhere. Quantized, the model that is compared with is the quantized one in eager
PyTorch. An activation that lies between two integers becomes the one or the other by the order of a
sum; so eager says everything again with embeddings that are off by a millionth, and a place is the
same where eager's own logit of what is said is within what that moves. A row is right where at
least 46 of 48 places are.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from _folders import ARCHITECTURES, config_of
from _report import between_markers, markdown, prepare, read, show, write

import stepwell
from stepwell.backends.executorch.running.runner import PteSession
from stepwell.ir.diagnostics import StepwellError
from stepwell.language_models import load_causal_lm
from stepwell.language_models import prepare as prepared
from stepwell.loaders.models import open_model
from stepwell.model_zoo.catalogue.vision import imported

TOKENS = 48
CONTEXT = 64


def write_folder(name: str, folder: Path) -> None:
    """A model of random weights that are large enough to matter, in bfloat16."""
    transformers = imported("transformers")
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config_of(name), dtype=torch.float32)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            parameter.data.mul_(2)
    model.generation_config.eos_token_id = [2, 3]
    model.to(torch.bfloat16).save_pretrained(folder)


@torch.no_grad()
def said_by(model: Any, tokens: torch.Tensor) -> torch.Tensor:
    """The logits of every token, without a cache and with the model's own attention."""
    return model(input_ids=tokens, use_cache=False).logits[0].float()


def said_on_the_runtime(pte: bytes, tokens: torch.Tensor, any_length: bool) -> torch.Tensor:
    """The same from a program, in two parts and one by one."""
    session = PteSession.load(pte)
    ends = [20, 25, *range(26, TOKENS + 1)] if any_length else list(range(1, TOKENS + 1))
    rows = {}
    for begin, end in zip([0, *ends], ends, strict=False):
        part = tokens[:, begin:end].contiguous()
        rows[end - 1] = session.run(part, torch.tensor([begin]))[0][0].float()
    return torch.stack([rows[at] for at in sorted(rows)])


@torch.no_grad()
def moved_by_a_millionth(model: Any, tokens: torch.Tensor) -> float:
    """How far the logits go at most where the embeddings are off by a millionth."""
    want, noise = said_by(model, tokens), torch.Generator().manual_seed(2)
    furthest = 0.0

    def off(_: Any, __: Any, made: torch.Tensor) -> torch.Tensor:
        return made * (1 + 1e-6 * (2 * torch.rand(made.shape, generator=noise) - 1))

    hook = model.get_input_embeddings().register_forward_hook(off)
    for _ in range(4):
        furthest = max(furthest, float((said_by(model, tokens) - want).abs().max()))
    hook.remove()
    return furthest


def lowered_folder(folder: str, quantize: str | None, language: Mapping[str, Any]) -> Any:
    """What `stepwell lower FOLDER` makes."""
    how = {"context": CONTEXT, **language}
    return stepwell.lower(open_model(folder, quantize=quantize, language=how).program, "xnnpack")


def row(name: str, quantize: str | None, language: Mapping[str, Any]) -> dict[str, Any]:
    """One architecture."""
    with tempfile.TemporaryDirectory() as folder:
        write_folder(name, Path(folder))
        return {"name": name, **said_of(folder, quantize, language)}


def said_of(folder: str, quantize: str | None, language: Mapping[str, Any]) -> dict[str, Any]:
    """What becomes of a folder."""
    began = time.process_time()
    try:
        lowered = lowered_folder(folder, quantize, language)
        pte = lowered.to_pte()
    except StepwellError as error:
        reason = str(error.problems[0]).splitlines()[0]
        return {"verdict": "refused", "reason": reason}
    except Exception as error:
        return {"verdict": "bare", "reason": f"{type(error).__name__}: {error}"[:200]}
    seconds = time.process_time() - began
    how = {key: language[key] for key in {"dtype", "embedding", "group"} & set(language)}
    eager = prepared(load_causal_lm(Path(folder)), quantize=quantize, **how).eval()
    exact = load_causal_lm(Path(folder)).float().eval()
    tokens = torch.randint(4, 96, (1, TOKENS), generator=torch.Generator().manual_seed(1))
    said = PteSession.load(pte)
    any_length = said.run(method="enable_dynamic_shape")[0]
    got = said_on_the_runtime(pte, tokens, any_length)
    want = said_by(eager, tokens)
    places = [19, *range(24, TOKENS)] if any_length else list(range(TOKENS))
    want, scale = want[places], float(want.abs().max())
    moves = 0.0 if quantize is None else moved_by_a_millionth(eager, tokens)
    preferred = want.gather(1, got.argmax(-1, keepdim=True))[:, 0]
    same = int((preferred >= want.amax(-1) - moves).sum())
    found: dict[str, Any] = {
        "attention": "custom" if said.run(method="use_sdpa_with_kv_cache")[0] else "torch",
        "length": "any" if any_length else "one",
        "delegates": lowered.report.delegates,
        "outside": sum(lowered.report.outside.values()),
        "off": float((got - want).abs().max()) / scale,
        "same": f"{same} of {len(places)}",
        "seconds": seconds,
    }
    if quantize is None:
        truth = said_by(exact, tokens)[places]
        offs = (got - truth).abs().amax(1) / scale
        eagers = float((want - truth).abs().max()) / scale
        found |= {"off": float(offs.max()), "eager off": eagers}
        beyond = int((offs > max(2 * eagers, 0.01)).sum())
        is_right = beyond == 0
        if beyond == 1 and getattr(eager.config, "_experts_implementation", None) is not None:
            single = lowered_folder(folder, quantize, {**language, "dtype": "fp32"}).to_pte()
            off = float((said_on_the_runtime(single, tokens, any_length) - truth).abs().max())
            found["off in fp32"] = off / scale
            is_right = off < 1e-4 * scale
    else:
        found["eager off"] = moves / scale
        is_right = same >= len(places) * 46 / 48
    return found | {"verdict": "right" if is_right else "WRONG"}


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a row an architecture, and what became of all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=ARCHITECTURES, metavar="NAME")
    parser.add_argument("--rest", action="store_true", help="those that are not kept as right")
    parser.add_argument("--quantize")
    parser.add_argument("--embedding", type=int)
    parser.add_argument("--dtype")
    parser.add_argument("--table", type=Path, help="write the table between its marks here")
    given = parser.parse_args(arguments)
    prepare()
    imported("transformers").logging.set_verbosity_error()
    language = {
        name: value
        for name in ("embedding", "dtype")
        if (value := getattr(given, name)) is not None
    }
    kind = "-".join(str(part) for part in ("folders", *language.values(), given.quantize) if part)
    kept = {one["name"]: one for one in read(kind)}
    chosen = given.only or sorted(ARCHITECTURES)
    if given.rest:
        chosen = [name for name in chosen if kept.get(name, {}).get("verdict") != "right"]
    for name in chosen:
        kept[name] = row(name, given.quantize, language)
        print(" ".join(f"{key}={value}" for key, value in kept[name].items()), flush=True)
        write(kind, [kept[name] for name in sorted(kept)])
    rows = [kept[name] for name in sorted(kept)]
    columns = "attention length delegates outside off same verdict reason".split()
    table = [[one["name"], *(_short(one.get(key)) for key in columns)] for one in rows]
    counts = {
        verdict: sum(one["verdict"] == verdict for one in rows)
        for verdict in ("right", "refused", "WRONG", "bare")
    }
    title = f"{len(rows)} architectures: " + ", ".join(f"{n} {key}" for key, n in counts.items())
    show(title, ["architecture", *columns], table)
    if given.table:
        lines = markdown(["architecture", *columns], table)
        between_markers(given.table, kind, [title + ".", "", *lines])


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.1e}"
    return "" if value is None else str(value)


if __name__ == "__main__":
    main()
