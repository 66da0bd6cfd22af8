"""A keyword spotter in a web page: trained here, int8, one WebAssembly module, offline.

    python examples/keyword_spotter/keyword_spotter.py FOLDER [--recordings WORDS]

FOLDER gets the C, `spotter.wasm` with its loader, a `word.wav` to try, and `index.html`, which
holds all of it and listens to the microphone or to a file. The built-in words are *synthesized*:
harmonics and noise shaped by formants, in random voices. A net trained on them recognizes them,
and people by chance only: `--recordings` trains on a folder of 16-bit `.wav` files for each word,
such as Speech Commands. The module is built by zig (`pip install 'stepwell[wasm]'`).
"""

from __future__ import annotations

import argparse
import base64
import json
import math
import subprocess
import sys
import wave
from pathlib import Path

import torch
from torch import Tensor, nn

import stepwell

HERE = Path(__file__).parent
RATE = 8000
"""Samples a second; a word is in one second."""
BANDS, WINDOW, HOP = 24, 256, 160
Sound = tuple[float, float, float, float, float, float, float]
"""First to third formant in Hz, loudness of the voice, that of noise and its center in Hz, and the
duration in milliseconds."""
_A: Sound = (680, 1250, 2500, 1, 0, 0, 150)
_E: Sound = (550, 1800, 2500, 1, 0, 0, 140)
_I: Sound = (290, 2200, 2900, 0.8, 0, 0, 60)
_O: Sound = (500, 900, 2400, 1, 0, 0, 120)
_U: Sound = (350, 800, 2300, 0.8, 0, 0, 110)
_N: Sound = (280, 1100, 2300, 0.5, 0, 0, 110)
_S: Sound = (300, 1800, 2600, 0, 0.4, 3400, 150)
_T: Sound = (300, 1700, 2600, 0, 0.7, 2800, 30)
_P: Sound = (300, 900, 2300, 0, 0.5, 1000, 35)
_REST: Sound = (400, 1200, 2400, 0, 0, 0, 50)
WORDS: dict[str, tuple[Sound, ...]] = {
    "yes": (_I, _E, _S),
    "no": (_N, _O, _U),
    "up": (_A, _REST, _P),
    "stop": (_S, _REST, _T, _A, _REST, _P),
}
NONE = "(none)"


def spoken(word: str, generator: torch.Generator) -> Tensor:
    """Synthesize a word in a random voice, somewhere in one second: float32, `RATE` numbers."""

    def draw(low: float, high: float) -> float:
        return low + (high - low) * float(torch.rand((), generator=generator))

    pitch, tract, speed = draw(85, 240), draw(0.88, 1.15), draw(0.8, 1.25)
    whole = draw(0.001, 0.02) * torch.randn(RATE, generator=generator)
    if word == NONE:
        return whole
    sounds = torch.tensor(WORDS[word])
    lengths = (sounds[:, 6] * RATE / 1000 * speed).long()
    steps = sounds.repeat_interleave(lengths, 0).T
    smooth = nn.functional.avg_pool1d(steps[None], 201, 1, 100, count_include_pad=False)[0]
    count = smooth.shape[1]
    tone = pitch * torch.linspace(1.1, draw(0.75, 1.0), count)
    phase, sound = torch.cumsum(2 * math.pi * tone / RATE, 0), torch.zeros(count)
    for k in range(1, int(3600 / pitch)):
        near = (
            (k * tone - formant * tract) / (60 + 30 * n) for n, formant in enumerate(smooth[:3])
        )
        sound += sum(1 / (1 + x**2) for x in near) * torch.sin(k * phase) / k**0.5  # pyright: ignore
    sound *= smooth[3]
    for start, length, (*_, loud, center, _) in zip(
        (lengths.cumsum(0) - lengths).tolist(), lengths.tolist(), sounds.tolist(), strict=True
    ):
        hiss = torch.fft.rfft(torch.randn(length, generator=generator))
        hertz = torch.linspace(0, RATE / 2, len(hiss))
        shaped = torch.fft.irfft(hiss / (1 + ((hertz - center) / 500) ** 2), length)
        sound[start : start + length] += loud * shaped * torch.hann_window(length)
    start = int(draw(0, RATE - count - 1))
    whole[start : start + count] += draw(0.2, 0.9) * sound / sound.abs().max()
    return whole


class Front(nn.Module):
    """`[1, RATE]` samples to `[1, 1, BANDS, frames]`: log power in bands, at any loudness.

    A band is a window times a cosine and a sine at its center; centers are even on the mel scale.
    """

    waves: Tensor

    def __init__(self) -> None:
        super().__init__()
        low, high = (2595 * math.log10(1 + f / 700) for f in (120, 3600))
        mel = torch.linspace(low, high, BANDS)
        turns = torch.outer(700 * (10 ** (mel / 2595) - 1), torch.arange(WINDOW) / RATE)
        waves = torch.cat([torch.cos(2 * math.pi * turns), torch.sin(2 * math.pi * turns)])
        self.register_buffer("waves", (waves * torch.hann_window(WINDOW)).unsqueeze(1))

    def forward(self, samples: Tensor) -> Tensor:
        samples = samples / (samples.abs().amax(1, keepdim=True) + 1e-3)
        parts = nn.functional.conv1d(samples.unsqueeze(1), self.waves, stride=HOP)
        power = (parts * parts).reshape(-1, 2, BANDS, parts.shape[-1]).sum(1)
        return torch.log(power + 1e-2).unsqueeze(1)


def classifier(labels: int) -> nn.Module:
    """A net of separable convolutions over bands and frames."""

    def separable(channels: int, stride: int) -> list[nn.Module]:
        depthwise = nn.Conv2d(channels, channels, 3, stride, 1, groups=channels)
        return [depthwise, nn.ReLU(), nn.Conv2d(channels, channels, 1), nn.ReLU()]

    return nn.Sequential(
        nn.Conv2d(1, 24, (5, 5), 2, 2), nn.ReLU(),
        *separable(24, 1), *separable(24, 2), *separable(24, 1),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(24, labels),
    )  # fmt: skip


class Spotter(nn.Module):
    """Samples to scores: the front end in floats, the classifier as it is given."""

    def __init__(self, front: nn.Module, net: nn.Module) -> None:
        super().__init__()
        self.front, self.net = front, net

    def forward(self, samples: Tensor) -> Tensor:
        return self.net(self.front(samples))


def recorded(folder: Path) -> tuple[list[str], Tensor, Tensor]:
    """Return the names of the folders, the first second of each file, and the class of each."""
    labels = sorted(path.name for path in folder.iterdir() if path.is_dir())
    samples, classes = [], []
    for index, label in enumerate(labels):
        for path in sorted((folder / label).glob("*.wav")):
            with wave.open(str(path)) as file:
                if (file.getnchannels(), file.getsampwidth()) != (1, 2):
                    raise SystemExit(f"{path} is not of one channel and 16 bits")
                data = bytearray(file.readframes(file.getnframes()))
                step = file.getframerate() / RATE
            whole = torch.frombuffer(data, dtype=torch.int16).float() / 32768
            at = (torch.arange(RATE) * step).long()
            samples.append(torch.where(at < len(whole), whole[at.clamp(max=len(whole) - 1)], 0.0))
            classes.append(index)
    if len(set(classes)) != len(labels) or not samples:
        raise SystemExit(f"{folder} has no folder of .wav files for each word")
    return labels, torch.stack(samples), torch.tensor(classes)


def synthesized(each: int, seed: int) -> tuple[list[str], Tensor, Tensor]:
    """Return the words, `each` samples of each of them, and the class of each sample."""
    generator, labels = torch.Generator().manual_seed(seed), [*WORDS, NONE]
    samples = [spoken(label, generator) for label in labels for _ in range(each)]
    return labels, torch.stack(samples), torch.arange(len(labels)).repeat_interleave(each)


def trained(samples: Tensor, classes: Tensor, epochs: int) -> Spotter:
    """Return a float net, trained on sounds `[n, RATE]` of these classes."""
    front, net = Front(), classifier(int(classes.max()) + 1)
    seen = torch.cat([front(part) for part in samples.split(64)])
    optimizer = torch.optim.Adam(net.parameters(), 3e-3)
    for _ in range(epochs):
        for part in torch.randperm(len(seen)).split(32):
            loss = nn.functional.cross_entropy(net(seen[part]), classes[part])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return Spotter(front, net).eval()


def lowered(spotter: Spotter, samples: Tensor, target: str = "c-wasm32-simd") -> stepwell.Lowered:
    """Quantize the classifier to int8 on a few sounds, and lower it with its front end."""
    with torch.no_grad():
        seen = [spotter.front(one[None]) for one in samples[:: max(1, len(samples) // 40)]]
    net = stepwell.quantize(spotter.net, "int8-cortex-m", seen)
    exported = torch.export.export(Spotter(spotter.front, net), (samples[:1],))
    return stepwell.lower(exported, target)


def write(found: stepwell.Lowered, labels: list[str], folder: Path) -> None:
    """Write the C and the loader, build the module, and write the page that holds both."""
    found.to_c("spotter", project="wasm").save(folder)
    subprocess.run(["make", f"CC={sys.executable} -m ziglang cc"], cwd=folder, check=True)
    module = base64.b64encode((folder / "spotter.wasm").read_bytes()).decode()
    parts = {
        "/* LOADER */": (folder / "spotter.mjs").read_text().replace("export ", ""),
        "/* LISTEN */": (HERE / "listen.mjs").read_text().replace("export ", ""),
        "LABELS": json.dumps(labels),
        "MODULE": module,
    }
    page = (HERE / "page.html").read_text()
    for mark, text in parts.items():
        page = page.replace(mark, text)
    (folder / "index.html").write_text(page)
    (folder / "listen.mjs").write_text((HERE / "listen.mjs").read_text())


def save_wav(samples: Tensor, path: Path) -> None:
    """Write samples between -1 and 1 as a 16-bit file."""
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes((samples * 32767).clamp(-32768, 32767).short().numpy().tobytes())


def main() -> None:
    """Train, quantize, lower, build, write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--recordings", type=Path, help="a folder of .wav files for each word")
    parser.add_argument("--epochs", type=int, default=40)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    where = arguments.recordings
    if where and not where.is_dir():
        parser.error(f"{where} is no folder")
    labels, samples, classes = recorded(where) if where else synthesized(160, 1)
    _, unheard, truth = synthesized(20, 2)
    if where:  # Every fifth recording is not trained on.
        is_unheard = torch.arange(len(samples)) % 5 == 4
        unheard, truth = samples[is_unheard], classes[is_unheard]
        samples, classes = samples[~is_unheard], classes[~is_unheard]
    spotter = trained(samples, classes, arguments.epochs)
    found = lowered(spotter, samples)
    write(found, labels, arguments.folder)
    scores = torch.cat([found.program.run(one[None])[0] for one in unheard])
    right = int((scores.argmax(1) == truth).sum())
    save_wav(unheard[0], arguments.folder / "word.wav")
    size = (arguments.folder / "spotter.wasm").stat().st_size
    print(f"{right} of {len(truth)} sounds right; spotter.wasm has {size:,} bytes")


if __name__ == "__main__":
    main()
