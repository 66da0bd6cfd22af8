"""The debug map lists what the runtime's profiler reports, in its order.

Which kernel runs, and so what the profiler calls it to the last letter, is the processor's choice;
of what kind each event is, and in which order they come, is not.
"""

from pathlib import Path

import pytest
from dialect_cases import all_cases
from isolated_run import container_of

from stepwell.backends.executorch.writing.serialize import to_bytes
from stepwell.backends.xnnpack.events import events, kind_of

pytestmark = pytest.mark.kernels
CASES = all_cases()
CONVERT = kind_of("Convert (NC)")
"""A processor without kernels for halves reports one on each side; one that packs rows, none."""


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
    foretold = [{kind_of(name) for name in names} for _, names in events(case.trial().delegate)]
    assert all(len(kinds) == 1 for kinds in foretold)  # The processor chooses names alone.
    kinds = [kind for (kind,) in foretold]
    found = [kind_of(name) for name in reported[case.name]]
    assert [kind for kind in found if kind != CONVERT] == [k for k in kinds if k != CONVERT]
    if not {"fp16", "qdint8"} & set(case.name.split()):
        assert found == kinds
