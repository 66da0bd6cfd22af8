"""Lower audio models of published packages, from waveform to waveform or features.

    pip install --no-deps --target FOLDER asteroid asteroid-filterbanks bs-roformer PoPE-pytorch \
        demucs encodec julius kokoro nnaudio openai-whisper openunmix speechbrain torchlibrosa vocos
    python tools/audio_packages.py FOLDER [NAME …]

Each model is small, with random weights, and runs in a process of its own. Modules that a package
imports, but that no model calls, are replaced by mocks (`MOCKED`). `python -O` leaves out the
packages' assertions on values, which `torch.export` refuses. Printed: the error of stepwell's
program and of eager PyTorch beside eager PyTorch in double precision, as shares of the largest
number; delegates, loops, and operators outside. The status is the number of models that are wrong.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import torch
from _packages import make_importable, print_rows
from torch import Tensor, nn

TOLERANCE = 1e-5
MOCKED = """asteroid.separate asteroid.utils.hub_utils encodec huggingface_hub librosa loguru misaki
    numba pb_bss_eval pytorch_lightning tiktoken torch_optimizer torchaudio torchaudio.functional
    torchaudio.functional.functional torchaudio.transforms""".split()
PARTS = ("asteroid", "bs_roformer", "kokoro", "nnAudio", "openunmix", "vocos", "whisper")
"""Packages whose modules are imported without `__init__`, which imports what is not installed."""


class Chain(nn.Module):
    """Modules, and the function that calls them."""

    def __init__(self, run: Callable[..., Any], *parts: nn.Module) -> None:
        super().__init__()
        self.run, self.parts = run, nn.ModuleList(parts)

    def forward(self, *inputs: Tensor) -> Any:
        return self.run(*self.parts, *inputs)


Model = tuple[nn.Module, tuple[Tensor, ...]]


def of(module: str, *names: str) -> Any:
    """Import names of a module."""
    found = [getattr(import_module(module), name) for name in names]
    return found[0] if len(found) == 1 else found


def vocos(padding: str = "center") -> Model:
    """Build a vocoder's head and backbone, whose inverse transform is PyTorch's."""
    head, body = of("vocos.heads", "ISTFTHead"), of("vocos.models", "VocosBackbone")
    parts = body(80, 64, 128, 3), head(64, 256, 64, padding=padding)
    return Chain(lambda body, head, x: head(body(x)), *parts), (torch.randn(1, 80, 50),)


def vocos_same() -> Model:
    """Build the form that adds overlapping frames by `fold`."""
    return vocos("same")


def kokoro() -> Model:
    """Build the generator of a text-to-speech model, without its random source."""
    rates = {"upsample_rates": [4, 4], "upsample_kernel_sizes": [8, 8]}
    blocks = {"resblock_kernel_sizes": [3], "resblock_dilation_sizes": [[1, 3, 5]]}
    fourier = {"gen_istft_n_fft": 20, "gen_istft_hop_size": 5}
    made = of("kokoro.istftnet", "Generator")(
        style_dim=16, upsample_initial_channel=32, **rates, **blocks, **fourier
    )

    def run(g: Any, x: Tensor, style: Tensor, source: Tensor) -> Tensor:
        """Generate as `Generator.forward` does, from a given source of harmonics."""
        harmonics = torch.cat(g.stft.transform(source), 1)
        for i in range(g.num_upsamples):
            x = torch.nn.functional.leaky_relu(x, 0.1)
            noise = g.noise_res[i](g.noise_convs[i](harmonics), style)
            x = g.ups[i](x)
            x = g.reflection_pad(x) if i == g.num_upsamples - 1 else x
            x = g.resblocks[i](x + noise, style)
        x = g.conv_post(torch.nn.functional.leaky_relu(x))
        half = g.post_n_fft // 2 + 1
        return g.stft.inverse(torch.exp(x[:, :half]), torch.sin(x[:, half:]))

    return Chain(run, made), (torch.randn(1, 32, 20), torch.randn(1, 16), torch.randn(1, 1600))


def openunmix() -> Model:
    """Build a separator between a transform and its inverse."""
    banks, norm = of("openunmix.transforms", "make_filterbanks", "ComplexNorm")
    parts = banks(n_fft=512, n_hop=128, sample_rate=16000.0, center=True)
    mask = of("openunmix.model", "OpenUnmix")(257, 2, hidden_size=64, nb_layers=1)

    def run(forth: Any, back: Any, mask: Any, norm: Any, x: Tensor) -> Tensor:
        z = forth(x)
        size = norm(z)
        return back(z * (mask(size) / (size + 1e-6))[..., None], length=x.shape[-1])

    return Chain(run, *parts, mask, norm(mono=False)), (torch.randn(1, 2, 8000),)


def demucs() -> Model:
    """Build a separator of waveforms and spectra."""
    sizes = {"channels": 8, "nfft": 512, "depth": 2, "segment": 1, "samplerate": 8192}
    layers = {"t_layers": 1, "t_heads": 2, "bottom_channels": 0, "use_train_segment": False}
    made = of("demucs.htdemucs", "HTDemucs")(["voice", "rest"], **sizes, **layers)
    return made, (torch.randn(1, 2, 8192),)


def bs_roformer() -> Model:
    """Build a separator with attention over time and bands."""
    depths = {"depth": 1, "time_transformer_depth": 1, "freq_transformer_depth": 1}
    fourier = {"stft_n_fft": 256, "stft_hop_length": 64, "stft_win_length": 256}
    bands = {"freqs_per_bands": (2,) * 20 + (8,) * 11 + (1,), "mask_estimator_depth": 1}
    sizes = {"dim": 32, "dim_head": 16, "heads": 2, "stereo": False, "flash_attn": False}
    made = of("bs_roformer.bs_roformer", "BSRoformer")(**sizes, **depths, **fourier, **bands)
    return made, (torch.randn(1, 4096),)


def nnaudio() -> Model:
    """Build a front end, whose transform is convolutions, and a classifier."""
    mel = of("nnAudio.features.mel", "MelSpectrogram")
    front = mel(sr=16000, n_fft=512, n_mels=40, hop_length=160, verbose=False)
    parts = nn.Conv1d(40, 32, 3), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten()
    net = nn.Sequential(*parts, nn.Linear(32, 5))
    return Chain(lambda mel, net, x: net((mel(x) + 1e-6).log()), front, net), (
        torch.randn(1, 16000),
    )


def torchlibrosa() -> Model:
    """Build log-mel features."""
    librosa: Any = sys.modules["librosa"]
    librosa.filters.mel = lambda **of: np.random.rand(of["n_mels"], of["n_fft"] // 2 + 1)
    librosa.filters.get_window = lambda name, n, **more: np.hanning(n + 1)[:-1]
    librosa.util.pad_center = lambda window, **more: window
    spectrum, bank = of("torchlibrosa.stft", "Spectrogram", "LogmelFilterBank")
    parts = spectrum(512, 160), bank(16000, 512, 40)
    return Chain(lambda s, bank, x: bank(s(x)), *parts), (torch.randn(1, 16000),)


def whisper() -> Model:
    """Build log-mel features and the encoder."""

    class Features(nn.Module):
        """Log-mel features as in `whisper.audio.log_mel_spectrogram`, whose filters are a file."""

        window: Tensor
        bands: Tensor

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("window", torch.hann_window(400))
            self.register_buffer("bands", torch.rand(80, 201))

        def forward(self, x: Tensor) -> Tensor:
            z = torch.stft(x, 400, 160, window=self.window, return_complex=True)
            mel = (self.bands @ z[..., :-1].abs() ** 2).clamp(min=1e-10).log10()
            return (torch.maximum(mel, mel.max() - 8.0) + 4.0) / 4.0

    class Encoder(of("whisper.model", "AudioEncoder")):  # pyright: ignore
        """The encoder, whose layers are of the dtype of their input."""

    parts = Features(), Encoder(80, 50, 64, 2, 2)
    return Chain(lambda front, net, x: net(front(x)), *parts), (torch.randn(1, 16000),)


def dccrn() -> Model:
    """Build a complex-valued denoiser."""
    made = of("asteroid.models.dccrnet", "DCCRNet")
    build = nn.LSTM.__init__

    def with_numbers(self: Any, *sizes: Any, **more: Any) -> None:
        """Build a layer whose sizes may be numbers of numpy, which PyTorch refuses."""
        build(self, *(int(n) if isinstance(n, np.integer) else n for n in sizes), **more)

    nn.LSTM.__init__ = with_numbers
    return made("DCCRN-CL"), (torch.randn(1, 8000),)


def speechbrain_encoder() -> Model:
    """Build features and an encoder of speakers."""
    names = "STFT", "Filterbank", "spectral_magnitude"
    stft, bank, size = of("speechbrain.processing.features", *names)
    net = of("speechbrain.lobes.models.ECAPA_TDNN", "ECAPA_TDNN")
    channels = {"channels": [32, 32, 32, 32, 96], "attention_channels": 16, "lin_neurons": 32}
    parts = stft(16000), bank(n_mels=40), net(40, **channels)
    return Chain(lambda s, bank, net, x: net(bank(size(s(x)))), *parts), (torch.randn(1, 8000),)


def speechbrain_enhancer() -> Model:
    """Build a mask between a transform and its inverse."""
    stft, back, size = of("speechbrain.processing.features", "STFT", "ISTFT", "spectral_magnitude")
    frames = {"win_length": 32, "hop_length": 16}
    net = nn.Sequential(nn.Linear(257, 64), nn.LeakyReLU(), nn.Linear(64, 257), nn.Sigmoid())

    def run(forth: Any, back: Any, net: Any, x: Tensor) -> Tensor:
        z = forth(x)
        return back(z * net(torch.log1p(size(z, power=0.5)))[..., None])

    parts = stft(16000, n_fft=512, **frames), back(16000, **frames), net
    return Chain(run, *parts), (torch.randn(1, 8192),)


def julius() -> Model:
    """Build a resampler."""
    return of("julius", "ResampleFrac")(16000, 11025), (torch.randn(1, 1, 2000),)


def encodec() -> Model:
    """Build the encoder and the decoder of a codec, on waveforms."""
    forth, back = of("encodec.modules.seanet", "SEANetEncoder", "SEANetDecoder")
    sizes = {"dimension": 32, "n_filters": 8, "ratios": [4, 2], "lstm": 1, "norm": "none"}
    parts = forth(**sizes), back(**sizes)
    return Chain(lambda forth, back, x: back(forth(x)), *parts), (torch.randn(1, 1, 1600),)


def fnet() -> Model:
    """Build a language model that mixes tokens by a transform."""
    config, model = of("transformers", "FNetConfig", "FNetModel")
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "intermediate_size": 128}
    made = model(config(**sizes, vocab_size=100, max_position_embeddings=32))
    tokens = torch.randint(0, 100, (1, 32))
    return Chain(lambda net, x: net(x).last_hidden_state, made), (tokens,)


MODELS: dict[str, Callable[[], Model]] = {
    made.__name__: made
    for made in (
        *(vocos, vocos_same, kokoro, openunmix, demucs, bs_roformer, nnaudio, torchlibrosa),
        *(whisper, dccrn, speechbrain_encoder, speechbrain_enhancer, julius),
        *(encodec, fnet),
    )
}


def exactly(model: nn.Module, inputs: tuple[Tensor, ...]) -> Tensor:
    """Return the result in double precision, or in single where a package converts to that."""
    try:
        return model.double()(*(x.double() if x.is_floating_point() else x for x in inputs))
    except RuntimeError:
        return model.float()(*inputs).double()


def row(folder: str, name: str) -> bool:
    """Print the row of a model; return whether it is wrong."""
    import stepwell

    make_importable(folder, PARTS, MOCKED)
    torch.manual_seed(0)
    model, inputs = MODELS[name]()
    model.eval()
    with torch.no_grad():
        eager = model(*inputs)
        lowered = stepwell.lower(torch.export.export(model, inputs, strict=False), "xnnpack")
        found = stepwell.run_pte(lowered.to_pte(), list(inputs))[0]
        exact = exactly(model, inputs)
    errors = [float((x.double() - exact).abs().max() / exact.abs().max()) for x in (found, eager)]
    outside = lowered.report.outside
    loops = outside.pop("control.scan", 0)
    others = ", ".join(sorted(op.removeprefix("aten.").split(".")[0] for op in outside))
    told = f"{errors[0]:.0e} | {errors[1]:.0e} | {lowered.report.delegates - loops} | {loops}"
    print(f"| {name} | {told} | {others} |", flush=True)
    return not errors[0] <= TOLERANCE


def main() -> int:
    """Print the table; return the number of wrong models."""
    folder, *names = sys.argv[1:]
    if names[:1] == ["--row"]:
        return row(folder, names[1])
    print("| model | error | eager's | delegates | loops | outside |\n|" + "---|" * 6, flush=True)
    return print_rows(__file__, folder, names or MODELS, "-O")


if __name__ == "__main__":
    sys.exit(main())
