"""Uncertainty of a recovered tensor: error bars by the linear model, and by held-out entries."""

from lowtucker.uncertainty.bars import Functional, Uncertainty
from lowtucker.uncertainty.conformal import Calibration

__all__ = ["Calibration", "Functional", "Uncertainty"]
