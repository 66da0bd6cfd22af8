"""A table that an embedding and the last layer share is in the file once."""

from pathlib import Path

import pytest
import torch
from executorch.exir._serialize._program import deserialize_pte_binary

import stepwell
from stepwell.backends.executorch.running.runner import run_pte

WORDS, WIDTH = 1000, 64
TABLE = 4 * WORDS * WIDTH


class Tied(torch.nn.Module):
    """Tokens to the likeliness of the next, by way of a norm with a gain."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(WORDS, WIDTH)
        self.norm = torch.nn.RMSNorm(WIDTH)
        torch.nn.init.normal_(self.norm.weight, 1.0, 0.1)
        self.head = torch.nn.Linear(WIDTH, WORDS, bias=False)
        self.head.weight = self.table.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.table(tokens)))


TOKENS = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6]])


@pytest.fixture(scope="module")
def tied() -> tuple[stepwell.Lowered, torch.Tensor]:
    torch.manual_seed(0)
    model = Tied().eval()
    lowered = stepwell.lower(torch.export.export(model, (TOKENS,)), "xnnpack")
    with torch.no_grad():
        return lowered, model(TOKENS)


def test_a_tied_table_is_in_the_file_once(
    tied: tuple[stepwell.Lowered, torch.Tensor], tmp_path: Path
) -> None:
    lowered, expected = tied
    lowered.save(tmp_path / "tied.pte")
    pte = lowered.to_pte()
    assert (tmp_path / "tied.pte").read_bytes() == pte
    assert TABLE < len(pte) < 1.1 * TABLE
    for given in (pte, tmp_path / "tied.pte"):
        torch.testing.assert_close(run_pte(given, [TOKENS])[0], expected, rtol=1e-4, atol=1e-4)


def test_both_readers_find_the_table_in_both_places(
    tied: tuple[stepwell.Lowered, torch.Tensor],
) -> None:
    lowered, expected = tied
    found = stepwell.read_pte(lowered.to_pte()).run(TOKENS)[0]
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    theirs = deserialize_pte_binary(lowered.to_pte())
    assert sum(len(held.storage) >= TABLE for held in theirs.program.constant_buffer) == 1
    named = theirs.named_data
    assert named is not None
    assert [len(held) for held in named.buffers].count(TABLE) == 1


def test_a_tied_table_is_in_the_ptd_once(tied: tuple[stepwell.Lowered, torch.Tensor]) -> None:
    lowered, expected = tied
    pte, ptd = lowered.to_pte_and_ptd()
    assert TABLE < len(ptd) < 1.1 * TABLE
    found = run_pte(pte, [TOKENS], external=ptd)[0]
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
