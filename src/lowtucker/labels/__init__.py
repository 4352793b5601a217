"""Labelled data: arrays, DataArrays and tables in, and the same out."""

from lowtucker.labels.data import Data, TensorForm
from lowtucker.labels.reading import as_data
from lowtucker.labels.record import Labels

__all__ = ["Data", "Labels", "TensorForm", "as_data"]
