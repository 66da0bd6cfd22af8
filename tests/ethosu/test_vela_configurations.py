"""A user's own Vela configuration: checked, passed to Vela, stated in the `.pte`, read back."""

import contextlib
import io
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.export import ExportedProgram, export

import stepwell
from stepwell.backends.ethos_u.configuration import choose_config
from stepwell.backends.ethos_u.emit import delegates
from stepwell.backends.ethos_u.vela import FAMILIES, compile_tosa
from stepwell.backends.executorch.reading.read import read_container
from stepwell.cli.main import main
from stepwell.dialects.ethosu import BinaryOp, DelegateOp, VelaConfig

pytestmark = pytest.mark.usefixtures("forked")
BOARDS = Path(__file__).parent / "boards"
U55, U65 = "ethos-u55-128", "ethos-u65-256"
CHOICES = [
    ("corstone_300.ini", U55, "Corstone_300", "Shared_Sram"),
    ("corstone_300.ini", U55, "Corstone_300", "Sram_Only"),
    ("alif_e7.ini", "ethos-u55-256", "HP_SRAM_MRAM", "Shared_Sram"),
    ("alif_e7.ini", "ethos-u55-256", "HP_DTCM_SRAM", "Dtcm_Cache"),
    ("imx93.ini", U65, "I_MX_93", "Dedicated_Sram_384KB"),
]


@pytest.fixture(scope="module")
def exported() -> ExportedProgram:
    """A layer over an image, and a layer with many weights and little work."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(8), nn.Flatten(),
        nn.Linear(1024, 64), nn.ReLU(), nn.Linear(64, 10),
    )  # fmt: skip
    x = torch.randn(1, 3, 32, 32)
    return export(stepwell.quantize(model.eval(), "int8-cortex-m", [x]), (x,))


def lowered_for(
    exported: ExportedProgram, file: str, target: str, system: str, mode: str
) -> stepwell.Lowered:
    options: dict[str, Any] = {
        "vela_config": BOARDS / file,
        "system_config": system,
        "memory_mode": mode,
    }
    return stepwell.lower(exported, target, io="int8", **options)


def of_delegates(pte: bytes) -> list[dict[str, bytes]]:
    return [dict(held.options) for m in read_container(pte).methods for held in m.delegates]


@pytest.mark.parametrize(("file", "target", "system", "mode"), CHOICES)
def test_a_board_is_compiled_for_and_named_as_by_executorchs_own_flow(
    exported: ExportedProgram, file: str, target: str, system: str, mode: str
) -> None:
    from executorch.backends.arm.arm_vela import vela_compile
    from executorch.backends.arm.ethosu import EthosUCompileSpec
    from executorch.exir.backend.compile_spec_schema import CompileSpec

    lowered = lowered_for(exported, file, target, system, mode)
    (data,) = delegates(lowered.program)
    theirs = EthosUCompileSpec(target, system, mode, config_ini=str(BOARDS / file))
    with contextlib.redirect_stdout(io.StringIO()):
        payload = vela_compile(data, list(theirs.compiler_flags)).processed_bytes
    pte = lowered.to_pte()
    again = stepwell.read_pte(pte)
    (op,) = [op for op in again.module.walk() if isinstance(op, BinaryOp)]
    assert bytes(again.weights.get(op.payload.data).numpy().tobytes()) == payload
    assert VelaConfig.of(op) == VelaConfig(system, mode, file)
    assert stepwell.emit(again, target) == pte
    (options,) = of_delegates(pte)
    specs = [CompileSpec(name, bytes(value)) for name, value in options.items()]
    stated = EthosUCompileSpec._from_list(specs)  # pyright: ignore[reportPrivateUsage]
    named = [f for f in theirs.compiler_flags if not f.startswith("--config=")]
    assert stated.compiler_flags == [named[0], f"--config={file}", *named[1:]]
    assert stated.target == target
    (estimate,) = lowered.estimate()
    assert (estimate.system_config, estimate.memory_mode) == (system, mode)
    assert str(estimate) in str(lowered.report)


def test_a_program_as_text_keeps_its_board(exported: ExportedProgram) -> None:
    lowered = lowered_for(exported, *CHOICES[2])
    again = stepwell.parse(str(lowered.program), weights=lowered.program.weights)
    assert str(again) == str(lowered.program)
    assert stepwell.emit(again, CHOICES[2][1]) == lowered.to_pte()
    (op,) = [op for op in again.module.walk() if isinstance(op, DelegateOp)]
    config = VelaConfig.of(op)
    assert config is not None and "Sram_clock_scale=0.762" in config.settings


def test_the_figures_follow_the_memory_mode(exported: ExportedProgram) -> None:
    (shared,) = lowered_for(exported, *CHOICES[0]).estimate()
    (only,) = lowered_for(exported, *CHOICES[1]).estimate()
    weights = 1024 * 64  # Bytes of the layer with most weights; Vela compresses little of them.
    assert shared.flash > weights // 2 and shared.on_chip == 0
    assert only.flash == 0 and only.on_chip > weights // 2
    (wide,) = lowered_for(exported, *CHOICES[4]).estimate()
    (narrow,) = lowered_for(exported, *CHOICES[4][:3], "Dedicated_Sram_8KB").estimate()
    assert narrow.sram <= 8192 < wide.sram
    assert narrow.flash >= wide.flash > weights // 2


def test_a_slower_flash_takes_more_cycles(exported: ExportedProgram) -> None:
    (fast,) = lowered_for(exported, *CHOICES[0]).estimate()
    (slow,) = lowered_for(exported, *CHOICES[0][:2], "Slow_Flash", "Shared_Sram").estimate()
    assert slow.cycles > fast.cycles
    assert (slow.clock, slow.flash) == (fast.clock, fast.flash)


def test_names_without_a_file_are_those_of_velas_own(exported: ExportedProgram) -> None:
    own = stepwell.lower(exported, U55, io="int8")
    system, mode, _ = FAMILIES["ethos-u55"]
    named = stepwell.lower(exported, U55, io="int8", system_config=system, memory_mode=mode)
    (data,) = delegates(own.program)
    config = choose_config(U55, None, system, mode)
    assert compile_tosa(data, U55, config).payload == compile_tosa(data, U55).payload
    assert named.estimate() == own.estimate()
    assert list(of_delegates(own.to_pte())[0]) == ["target"]
    (estimate,) = stepwell.lower(exported, U55, io="int8", memory_mode="Sram_Only").estimate()
    assert (estimate.system_config, estimate.memory_mode) == (system, "Sram_Only")
    assert estimate.flash == 0


BAD = "[System_Config.A]\naxi0_port=Sram\n[Memory_Mode.M]\nconst_mem_area=Axi1\n"


@pytest.mark.parametrize(
    ("text", "system", "mode", "message"),
    [
        (None, "Corstone", "Shared_Sram", r"no section \[System_Config.Corstone\](.|\n)*for Corst"),
        (None, "Corstone_300", "Sram", r"no section \[Memory_Mode.Sram\](.|\n)*Shared_Sram, Sram_"),
        (None, "Corstone_300", None, r"memory_mode is missing(.|\n)*Shared_Sram, Sram_Only"),
        (None, None, "Sram_Only", r"system_config is missing(.|\n)*Corstone_300, Slow_Flash"),
        ("no section", "A", "M", "board.ini is not a Vela configuration: File contains no section"),
        ("[System_Config.A\n", "A", "M", "is not a Vela configuration"),
        ("[System_Config.A]\nx=%(y)s\n", "A", "M", "is not a Vela configuration"),
        (BAD + "[Memory_Mode.M]\n", "A", "M", "is not a Vela configuration(.|\n)*already exists"),
        (b"\xff\xfe", "A", "M", "is not a Vela configuration"),
        ("[System_Config.A]\ninherit=System_Config.A\n", "A", "M", "inherits from itself"),
        (
            "[System_Config.A]\ninherit=System_Config.B\n",
            "A",
            "M",
            "from which .System_Config.A. i",
        ),
        (BAD + "arena_mem=Axi0\n", "A", "M", "no setting 'arena_mem'(.|\n)*did you mean 'arena_me"),
        (BAD, "A", "M", "Vela refuses A with M of board.ini"),
        (BAD.replace("=Sram", "=Ram"), "A", "M", "Vela refuses A with M of board.ini: .*Ram"),
    ],
)
def test_a_wrong_configuration_is_refused_before_anything_is_compiled(
    tmp_path: Path, text: str | bytes | None, system: str | None, mode: str | None, message: str
) -> None:
    path = BOARDS / "corstone_300.ini"
    if text is not None:
        path = tmp_path / "board.ini"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    given: dict[str, Any] = {"system_config": system, "memory_mode": mode}
    with pytest.raises(stepwell.StepwellError, match=message):
        stepwell.lower(_empty(), U55, vela_config=path, **given)


def test_a_system_configuration_needs_its_memory_mode() -> None:
    with pytest.raises(stepwell.StepwellError, match="memory_mode is missing"):
        stepwell.lower(_empty(), U55, system_config="Ethos_U55_Deep_Embedded")
    with pytest.raises(stepwell.StepwellError, match=r"cannot read .*none.ini"):
        stepwell.lower(_empty(), U55, vela_config="none.ini", system_config="A", memory_mode="M")
    with pytest.raises(stepwell.StepwellError, match="arena_mem_area=OffChipFlash"):
        stepwell.lower(_empty(), U55, memory_mode="Dedicated_Sram")


def _empty() -> ExportedProgram:
    return export(nn.Identity(), (torch.zeros(1),))


def test_a_damaged_board_of_a_text_is_refused(exported: ExportedProgram) -> None:
    lowered = lowered_for(exported, *CHOICES[0])
    text = str(lowered.program)
    for old, new in [('memory_mode = "Shared_Sram"', "memory_mode = 1 : i32"),
                     ('memory_mode = "Shared_Sram"', 'mode = "Shared_Sram"')]:  # fmt: skip
        assert old in text
        with pytest.raises(stepwell.StepwellError, match="vela"):
            stepwell.parse(text.replace(old, new), weights=lowered.program.weights).verify()


def test_the_command_line_takes_a_board(
    exported: ExportedProgram, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.export.save(exported, tmp_path / "m.pt2")
    file, target, system, mode = CHOICES[0]
    given = [f"vela_config={BOARDS / file}", f"system_config={system}", f"memory_mode={mode}"]
    options = [text for value in given for text in ("-O", value)]
    command = ["lower", str(tmp_path / "m.pt2"), "-t", target, *options, "--json", "-"]
    assert main([*command, "-o", str(tmp_path / "m.pte")]) == 0
    (estimate,) = json.loads(capsys.readouterr().out)["result"]["estimates"]
    assert (estimate["system_config"], estimate["memory_mode"]) == (system, mode)
    assert b"--config=corstone_300.ini" in (tmp_path / "m.pte").read_bytes()
