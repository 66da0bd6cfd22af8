"""A user's Vela configuration: read and checked before anything is compiled, and named in a `.pte`.

A configuration file (`.ini`, as Vela's `--config` accepts) has sections `[System_Config.NAME]`
(clock, ports, memories) and `[Memory_Mode.NAME]` (places of constants and activations). Vela
ignores a setting that it does not know, and then computes with a default; it is an error here.
"""

import re
from collections.abc import Mapping
from configparser import ConfigParser
from configparser import Error as ParserError
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from xdsl.dialects.builtin import FunctionType, ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Region

from stepwell.backends.ethos_u.vela import (
    OWN_FILE,
    compile_tosa,
    compiler_flags,
    default_config,
    is_installed,
)
from stepwell.backends.tosa.emit import TARGET, to_tosa
from stepwell.dialects.ethosu import VelaConfig
from stepwell.dialects.tosa.generated import AddOp
from stepwell.ir.diagnostics import StepwellError, UnsupportedError
from stepwell.ir.dtypes import i32
from stepwell.ir.levels import set_level
from stepwell.ir.options import nearest
from stepwell.ir.platform.files import read_bytes
from stepwell.ir.program import Program
from stepwell.ir.types import tensor
from stepwell.ir.weights import WeightStore

SYSTEM, MODE = "System_Config.", "Memory_Mode."
INHERIT = "inherit"
TOSA = "tosa-1.0+int+int16"
"""The TOSA target that Vela supports."""
MEMORIES = ("Sram", "Dram", "OnChipFlash", "OffChipFlash")
PER_MEMORY = (
    "clock_scale", "ports_used", "burst_length", "read_latency", "write_latency", "max_reads",
    "max_writes",
)  # fmt: skip
SETTINGS: Mapping[str, tuple[str, ...]] = {
    SYSTEM: (
        "core_clock", "axi0_port", "axi1_port",
        *(f"{memory}_{what}" for memory in MEMORIES for what in PER_MEMORY),
    ),
    MODE: ("const_mem_area", "arena_mem_area", "cache_mem_area", "arena_cache_size"),
}  # fmt: skip
"""The settings of each kind of section (Vela's `architecture_features.py`, and its core)."""


def choose_config(
    accelerator: str,
    file: Path | None = None,
    system_config: str | None = None,
    memory_mode: str | None = None,
) -> VelaConfig | None:
    """Return a checked configuration, or None if no argument is given.

    Args:
        accelerator: `ethos-u55-128`, …
        file: a file of Vela's; None: Vela's own, `Arm/vela.ini`.
        system_config: the name of a system configuration of the file. It may be omitted only
            without a file; it is then the one that ExecuTorch's flow assumes.
        memory_mode: the name of a memory mode of the file.

    Raises:
        StepwellError: the file cannot be read or parsed, lacks a name, or Vela refuses the
            configuration; or a name is missing.
    """
    if file is None and system_config is None and memory_mode is None:
        return None
    if file is None and system_config is None:
        system_config = default_config(accelerator).system_config
    shown = OWN_FILE if file is None else file.name
    parser = _parse(shown, read_bytes(_own_file() if file is None else file))
    missing = [
        StepwellError(
            f"{option} is missing: a board is a system configuration and a memory mode",
            help=f"{shown} has {_listed(parser, kind)}",
        ).problems[0]
        for option, kind, name in (
            ("system_config", SYSTEM, system_config),
            ("memory_mode", MODE, memory_mode),
        )
        if name is None
    ]
    if missing:
        raise StepwellError(missing)
    assert system_config is not None and memory_mode is not None
    sections = [
        _section(parser, shown, SYSTEM, system_config),
        _section(parser, shown, MODE, memory_mode),
    ]
    settings = "" if file is None else "\n".join(sections)
    config = VelaConfig(system_config, memory_mode, "" if file is None else shown, settings)
    if is_installed():
        try:
            compile_tosa(_one_operator(), accelerator, config)
        except UnsupportedError as error:
            reason = error.problems[0].fact.rpartition("Error: ")[2].strip("'")
            raise StepwellError(
                f"Vela refuses {system_config} with {memory_mode} of {shown}: {reason}",
                help=f"{shown} has {_listed(parser, SYSTEM)}; {_listed(parser, MODE)}",
            ) from None
    return config


@cache
def _one_operator() -> bytes:
    """Return a TOSA flatbuffer that every Ethos-U runs, to learn whether Vela accepts a board."""
    held = tensor([1, 16], i32)
    block = Block(arg_types=[held, held])
    total = AddOp.create(operands=list(block.args), result_types=[held])
    block.add_ops([total, ReturnOp(*total.results)])
    types = FunctionType.from_lists([held, held], [held])
    module = ModuleOp([FuncOp("forward", types, Region(block))])
    set_level(module, "tosa")
    module.attributes[TARGET] = StringAttr(TOSA)
    return to_tosa(Program(module, WeightStore()))


@cache
def _own_file() -> Path:
    found = find_spec("ethosu")
    if found is None or not found.submodule_search_locations:
        raise StepwellError(
            f"Vela is not installed, so its file {OWN_FILE} cannot be read",
            help="pip install 'stepwell[ethos-u]', or name a file by vela_config=",
        )
    return Path(found.submodule_search_locations[0]) / "config_files" / OWN_FILE


def _parse(shown: str, data: bytes) -> ConfigParser:
    parser = ConfigParser()
    try:
        parser.read_string(data.decode(), shown)
        for section in parser.sections():
            parser.items(section)  # An interpolation is resolved on access.
    except (ParserError, UnicodeDecodeError) as error:
        raise StepwellError(
            f"{shown} is not a Vela configuration: {' '.join(str(error).split())}",
            help="see Vela's Arm/vela.ini for the form of such a file",
        ) from None
    return parser


def _listed(parser: ConfigParser, kind: str) -> str:
    names = [name.removeprefix(kind) for name in parser.sections() if name.startswith(kind)]
    return f"[{kind}NAME] for " + (", ".join(names) or "no name")


def _section(parser: ConfigParser, shown: str, kind: str, name: str) -> str:
    """Return a section as text, with the settings that it inherits.

    Raises:
        StepwellError: the section, or one that it inherits from, is missing; a section inherits
            from itself; or a setting is unknown.
    """
    known = {setting.lower(): setting for setting in SETTINGS[kind]}
    held: dict[str, str] = {}
    seen: list[str] = []
    section: str | None = kind + name
    while section is not None:
        if section in seen:
            raise StepwellError(f"{shown}: [{section}] inherits from itself")
        if not parser.has_section(section):
            raise StepwellError(
                f"{shown} has no section [{section}]"
                + (f", from which [{seen[-1]}] inherits" if seen else ""),
                help=nearest(section, parser.sections()) + f"it has {_listed(parser, kind)}",
            )
        seen.append(section)
        own = dict(parser.items(section))
        section = own.pop(INHERIT, None)
        for setting, value in own.items():
            if setting not in known and setting not in parser.defaults():
                raise StepwellError(
                    f"{shown}: Vela has no setting {setting!r} of [{seen[-1]}]",
                    help=nearest(setting, known) + "its settings are " + ", ".join(known.values()),
                )
            if setting in known:
                held.setdefault(known[setting], value)
    return "".join([f"[{kind}{name}]\n", *(f"{key}={value}\n" for key, value in held.items())])


def compile_specs(accelerator: str, config: VelaConfig | None) -> tuple[tuple[str, bytes], ...]:
    """Return the compile specifications of a delegate, in the form of `EthosUCompileSpec`.

    Without a configuration, only the accelerator is stated.
    """
    target = ("target", accelerator.encode())
    if config is None:
        return (target,)
    subset = "" if accelerator.startswith("ethos-u85") else "+u55"
    flags = " ".join(compiler_flags(accelerator, config, config.config or OWN_FILE))
    return (
        ("tosa_spec", f"TOSA-1.0+INT+int16{subset}".encode()),
        ("compile_flags", flags.encode()),
        ("output_format", b"vela"),
        target,
    )


def stated_config(options: Mapping[str, bytes]) -> VelaConfig | None:
    """Return the configuration that a delegate's compile specifications name, or None.

    Its settings are not in the file.
    """
    flags = bytes(options.get("compile_flags", b"")).decode("latin-1")
    found = dict(re.findall(r"--([\w-]+)=(.*?)(?= --|$)", flags))
    names = [found.get(name) for name in ("system-config", "memory-mode")]
    if None in names:
        return None
    system, mode = map(str, names)
    file = str(found.get("config", OWN_FILE))
    return VelaConfig(system, mode, "" if file == OWN_FILE else re.split(r"[/\\]", file)[-1])
