"""Folders of transformers as they are published, lowered with no option and run beside eager.

    python bench/folders.py [--only llama mamba] [--quantise 8da4w --embedding 8] [--table FILE]

For each architecture: two layers with random weights, saved as a folder in bfloat16 with a
`generation_config.json`, experts as they ship; then what `stepwell lower FOLDER` does, and 48
tokens said to the `.pte`, in parts and one by one, past every window. The error is that of the
largest logit, beside what eager PyTorch in the folder's own type is off by from single precision: a
row is right where the first is at most twice the second (or a hundredth, where bfloat16 rounds
less). Quantised, the model that is compared with is the quantised one in eager PyTorch, and a row
is right where it would say the same token in at least 46 of 48 places.
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
from _report import between_markers, prepare, show, write

import stepwell
from stepwell.backends.executorch.runner import PteSession
from stepwell.causal_lm import load_causal_lm
from stepwell.causal_lm import prepare as prepared
from stepwell.ir.diagnostics import StepwellError
from stepwell.models import open_model
from stepwell.zoo.vision import imported

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


def row(name: str, quantise: str | None, language: Mapping[str, Any]) -> dict[str, Any]:
    """One architecture."""
    began = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        write_folder(name, Path(folder))
        found: dict[str, Any] = {"name": name}
        try:
            opened = open_model(
                folder, quantise=quantise, language={"context": CONTEXT, **language}
            )
            lowered = stepwell.lower(opened.program, "xnnpack")
            pte = lowered.to_pte()
        except StepwellError as error:
            reason = str(error.problems[0]).splitlines()[0]
            return found | {"verdict": "refused", "reason": reason}
        except Exception as error:
            return found | {"verdict": "bare", "reason": f"{type(error).__name__}: {error}"[:200]}
        seconds = time.process_time() - began
        kept = {"dtype", "embedding", "group"} & set(language)
        how = {key: language[key] for key in kept}
        eager = prepared(load_causal_lm(Path(folder)), quantise=quantise, **how).eval()
        exact = load_causal_lm(Path(folder)).float().eval()
    tokens = torch.randint(4, 96, (1, TOKENS), generator=torch.Generator().manual_seed(1))
    said = PteSession.load(pte)
    any_length = said.run(method="enable_dynamic_shape")[0]
    got = said_on_the_runtime(pte, tokens, any_length)
    want = said_by(eager, tokens)
    places = [19, *range(24, TOKENS)] if any_length else list(range(TOKENS))
    want, scale = want[places], float(want.abs().max())
    same = int((got.argmax(-1) == want.argmax(-1)).sum())
    found |= {
        "attention": "custom" if said.run(method="use_sdpa_with_kv_cache")[0] else "torch",
        "length": "any" if any_length else "one",
        "delegates": lowered.report.delegates,
        "outside": sum(lowered.report.outside.values()),
        "off": float((got - want).abs().max()) / scale,
        "same": f"{same} of {len(places)}",
        "seconds": seconds,
    }
    if quantise is None:
        truth = said_by(exact, tokens)[places]
        off, eagers = (float((one - truth).abs().max()) / scale for one in (got, want))
        found |= {"off": off, "eager off": eagers}
        is_right = off <= max(2 * eagers, 0.01)
    else:
        is_right = same >= len(places) * 46 / 48
    return found | {"verdict": "right" if is_right else "WRONG"}


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a row an architecture, and what became of all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=ARCHITECTURES, metavar="NAME")
    parser.add_argument("--quantise")
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
    rows = []
    for name in given.only or sorted(ARCHITECTURES):
        rows.append(row(name, given.quantise, language))
        print(" ".join(f"{key}={value}" for key, value in rows[-1].items()), flush=True)
    columns = "attention length delegates outside off same verdict reason".split()
    table = [[one["name"], *(_short(one.get(key)) for key in columns)] for one in rows]
    counts = {
        verdict: sum(one["verdict"] == verdict for one in rows)
        for verdict in ("right", "refused", "WRONG", "bare")
    }
    title = f"{len(rows)} architectures: " + ", ".join(f"{n} {key}" for key, n in counts.items())
    show(title, ["architecture", *columns], table)
    kind = "-".join(str(part) for part in ("folders", given.quantise, given.embedding) if part)
    write(kind, rows)
    if given.table:
        lines = ["| " + " | ".join(map(str, one)) + " |" for one in table]
        head = ["| architecture | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
        between_markers(given.table, kind, [title + ".", "", *head, *lines])


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.1e}"
    return "" if value is None else str(value)


if __name__ == "__main__":
    main()
