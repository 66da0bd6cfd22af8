"""What the debug map calls a node is what the runtime's profiler calls it."""

from pathlib import Path

import pytest
from dialect_cases import all_cases

from stepwell.backends.executorch.serialize import to_bytes
from stepwell.backends.xnnpack.alone import container_of
from stepwell.backends.xnnpack.events import events

CASES = all_cases()


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """Case → the identifiers of the events of its run, in order."""
    from executorch.devtools.etdump.serialize import deserialize_from_etdump_flatcc
    from executorch.runtime import Runtime

    folder: Path = tmp_path_factory.mktemp("events")
    trials = [case.trial() for case in CASES]
    written = folder / "program.pte"
    written.write_bytes(to_bytes(container_of(trials, embed_unpacked_constants=True)))
    program = Runtime.get().load_program(written, enable_etdump=True)
    methods = [program.load_method(f"trial_{number}") for number in range(len(trials))]
    for method, trial in zip(methods, trials, strict=True):
        assert method is not None
        method.execute(list(trial.inputs))
    dump = folder / "run.etdp"
    program.write_etdump_result_to_file(str(dump), str(folder / "unused"))
    runs: list[list[str]] = []
    for run in deserialize_from_etdump_flatcc(dump.read_bytes()).run_data:
        found = [event.profile_event for event in run.events or () if event.profile_event]
        if any(event.name == "Method::execute" for event in found):
            identifiers = [event.delegate_debug_id_str for event in found]
            runs.append([name for name in identifiers if name])
    return dict(zip((case.name for case in CASES), runs, strict=True))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_event_of_the_runtime_is_foretold(case, reported: dict[str, list[str]]) -> None:
    foretold = [spellings for _, spellings in events(case.trial().delegate)]
    kinds = [name.rsplit(" #", 1)[0] for name in reported[case.name]]
    assert len(kinds) == len(foretold)
    assert all(kind in spellings for kind, spellings in zip(kinds, foretold, strict=True))
