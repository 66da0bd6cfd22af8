"""Results as dataframes, if pandas is installed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from stepwell.ir.diagnostics import StepwellError

if TYPE_CHECKING:
    from pandas import DataFrame


def frame(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> DataFrame:
    """Build a dataframe from rows.

    Raises:
        StepwellError: pandas is not installed.
    """
    try:
        import pandas
    except ImportError as error:
        fact = "a dataframe needs pandas, which is not installed"
        raise StepwellError(fact, help="pip install 'stepwell[notebook]'") from error
    return pandas.DataFrame([list(row) for row in rows], columns=list(columns))
