"""The tutorials run, from their file, and print what they promise."""

import importlib.util
from pathlib import Path

import pytest
from sampled import sampled

from stepwell.backends.executorch.container import KernelCall
from stepwell.backends.executorch.reading.read import read_container

EXAMPLES = Path(__file__).parents[2] / "examples"
PROMISED = {
    "first_rewrite": [
        "remove-double-negation",
        "forget-difference",
        "every pass is within its error bound",
    ],
    "add_a_backend_op": [
        "demo.axpy",
        "the product has other readers",
        "model.axpy",
        "artifact (axpy)",
        "every pass is within its error bound",
    ],
    "read_a_strangers_pte": ["xnnpack.convolution_2d", "aten.atan.default"],
    "quantize_for_cortex_m": ["cmsis.", "every pass is within its error bound"],
    "mx_accuracy": ["fp8e4m3", "mxint8"],
    "language_model": ["8da4w, cache custom", "tokens/s", "64 of 64 as eager says them"],
}

GIVEN = {"language_model": (["--quick", "--embedding", "4,32", "-o", "llama.pte"],)}
"""The model as it is shipped; that a check of every step is clean is another's promise."""


def test_every_tutorial_is_listed_here() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == set(PROMISED)


@pytest.mark.parametrize("name", sampled(PROMISED, *(set(PROMISED) - {"language_model"})))
def test_a_tutorial_runs(
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    spec = importlib.util.spec_from_file_location(f"tutorial_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.main(*GIVEN.get(name, ()))
    shown = capsys.readouterr().out
    for words in PROMISED[name]:
        assert words in shown
    if name == "language_model":
        copies_no_cache(Path("llama.pte"))


def copies_no_cache(path: Path) -> None:
    container = read_container(path.read_bytes())
    forward = next(method for method in container.methods if method.name == "forward")
    called = [c.kernel for c in forward.instructions if isinstance(c, KernelCall)]
    assert called and not {"aten::clone.out", "aten::copy_"} & set(called)
    assert not sum(map(len, container.mutable_data)), "a cache is in the file"
