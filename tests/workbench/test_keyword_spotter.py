"""The keyword spotter of the example: the module in its page says the word of a sound."""

import base64
import importlib.util
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch

from .browser import NEEDED

EXAMPLE = Path(__file__).parents[2] / "examples/keyword_spotter/keyword_spotter.py"
RUN = """
import { readFileSync } from "node:fs";
import { load } from "./spotter.mjs";
import { heard, loudestSecond } from "./listen.mjs";
const data = readFileSync("words.f32");
const sound = new Float32Array(data.buffer, data.byteOffset, data.length / 4);
const page = readFileSync("index.html", "utf8");
const module = Buffer.from(page.match(/atob\\("([^"]+)"\\)/)[1], "base64");
const net = await load(module);
const told = [];
for (let n = 0; n < sound.length; n += 8000) {
  const one = sound.slice(n, n + 8000);
  told.push([heard(net, LABELS, one).label, [...net.spotter_run(one)]]);
}
const late = new Float32Array(24000);
late.set(sound.subarray(0, 8000), 11000);
told.push([heard(net, LABELS, late).label, [loudestSecond(late).length]]);
console.log(JSON.stringify(told));
"""


@pytest.fixture(scope="module")
def example() -> Any:
    spec = importlib.util.spec_from_file_location("keyword_spotter", EXAMPLE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def spotter(example: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The folder that the example writes, its words, and the lowered program."""
    if importlib.util.find_spec("ziglang") is None or shutil.which("make") is None:
        pytest.skip("ziglang or make is not installed")
    folder = tmp_path_factory.mktemp("spotter")
    torch.manual_seed(0)
    labels, samples, classes = example.synthesized(120, 1)
    lowered = example.lowered(example.trained(samples, classes, 40), samples)
    example.write(lowered, labels, folder)
    return folder, labels, lowered


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_the_module_in_the_page_names_synthesized_words(example: Any, spotter: Any) -> None:
    folder, labels, lowered = spotter
    assert (folder / "spotter.wasm").stat().st_size <= 200_000
    unheard = torch.stack([example.spoken(w, torch.Generator().manual_seed(9)) for w in labels])
    (folder / "words.f32").write_bytes(unheard.numpy().tobytes())
    (folder / "run.mjs").write_text(RUN.replace("LABELS", json.dumps(labels)))
    done = subprocess.run(["node", "run.mjs"], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    *words, late = json.loads(done.stdout)
    assert [label for label, _ in words] == labels
    assert late == [labels[0], [8000]]
    wanted = torch.cat([lowered.program.run(one[None])[0] for one in unheard])
    scores = torch.tensor([scores for _, scores in words])
    step = float(wanted.unique().diff().min())  # Floats before the net may differ by roundings.
    assert float((scores - wanted).abs().max()) < 4 * step


@NEEDED
def test_the_page_says_the_word_in_a_sound_file(example: Any, spotter: Any, browser: Any) -> None:
    folder, labels, _ = spotter
    browser.open(folder / "index.html")
    assert browser.ask("document.getElementById('words').textContent") == ", ".join(labels)
    for word in labels[:2]:
        example.save_wav(
            example.spoken(word, torch.Generator().manual_seed(9)), folder / "word.wav"
        )
        data = base64.b64encode((folder / "word.wav").read_bytes()).decode()
        browser.ask(
            f"""{{
            const files = new DataTransfer(), field = document.getElementById('file');
            const bytes = Uint8Array.from(atob('{data}'), (letter) => letter.charCodeAt(0));
            files.items.add(new File([bytes], 'word.wav', {{ type: 'audio/wav' }}));
            document.getElementById('said').textContent = '';
            field.files = files.files;
            field.dispatchEvent(new Event('change'));
            0 }}"""
        )
        browser.wait("document.getElementById('said').textContent")
        said = browser.ask("document.getElementById('said').textContent")
        assert said.startswith(f"{word} (")


def test_recordings_are_folders_of_words(example: Any, tmp_path: Path) -> None:
    for word in ("no", "yes"):
        (tmp_path / word).mkdir()
        example.save_wav(torch.linspace(-0.5, 0.5, 4000), tmp_path / word / "one.wav")
    labels, samples, classes = example.recorded(tmp_path)
    assert labels == ["no", "yes"] and classes.tolist() == [0, 1]
    assert samples.shape == (2, example.RATE) and not samples[:, 4000:].any()
    torch.testing.assert_close(
        samples[0, :4000], torch.linspace(-0.5, 0.5, 4000), atol=1e-4, rtol=0
    )
