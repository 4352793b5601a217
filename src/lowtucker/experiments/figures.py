"""The seven figures of the paper and what goes beyond them, by name; one line each."""

from __future__ import annotations

from lowtucker.experiments.base import Figure
from lowtucker.experiments.beyond import Tuned
from lowtucker.experiments.clip import Clip, ClipCurves, ClipRecovery, RecoveredFrames, flame
from lowtucker.experiments.convergence import AgainstEpochs, AgainstSeconds
from lowtucker.experiments.success import EpochsToSuccess, SuccessManyMeasurements, SuccessRates

__all__ = ["NAMES", "figures"]

NAMES = ("fig1", "fig2", "fig3", "fig4", "fig5", "fig6", "fig7", "tuned")


def figures(clip: Clip | None = None) -> dict[str, Figure]:
    """All figures with the paper's settings (PAPER.md, section 2), on a given clip or the flame."""
    recovery = ClipRecovery(clip=flame() if clip is None else clip)
    made: list[Figure] = [
        AgainstEpochs(),
        AgainstSeconds(),
        SuccessRates(),
        SuccessManyMeasurements(),
        EpochsToSuccess(),
        RecoveredFrames(recovery),
        ClipCurves(recovery),
        Tuned(recovery),
    ]
    return {figure.name: figure for figure in made}
