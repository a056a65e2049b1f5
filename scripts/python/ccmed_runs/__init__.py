"""Runs, samples, metrics, hidden states and probe findings of ccmed as pandas and numpy.

>>> import ccmed_runs
>>> run = ccmed_runs.Run("runs/NAME")  # doctest: +SKIP
>>> run.samples("decide")  # doctest: +SKIP
"""

from ccmed_runs.runs import ReadError, Run, list_runs
from ccmed_runs.states import Cell, States

__all__ = ["Cell", "ReadError", "Run", "States", "list_runs"]
