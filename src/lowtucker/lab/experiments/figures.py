"""The seven figures of the paper and the supplements."""

from __future__ import annotations

from dataclasses import dataclass, field

from lowtucker.lab.experiments.beyond import Tuned
from lowtucker.lab.experiments.clip import ClipCurves, ClipRecovery, RecoveredFrames
from lowtucker.lab.experiments.convergence import AgainstEpochs, AgainstSeconds, Convergence
from lowtucker.lab.experiments.shrunk import ClipShrinkage, ShrunkClip
from lowtucker.lab.experiments.success import (
    EpochsToSuccess,
    Recoveries,
    SuccessManyMeasurements,
    SuccessRates,
    few_measurements,
    many_measurements,
    until_success,
)
from lowtucker.simulation.base import Figure

__all__ = ["Paper"]


@dataclass(frozen=True)
class Paper:
    """The experiments, by default with the settings of the authors' scripts."""

    convergence: Convergence = field(default_factory=Convergence)
    few: Recoveries = field(default_factory=few_measurements)
    many: Recoveries = field(default_factory=many_measurements)
    epochs: Recoveries = field(default_factory=until_success)
    clip: ClipRecovery = field(default_factory=ClipRecovery)
    tuned: Tuned | None = None
    shrinkage: ClipShrinkage | None = None

    @property
    def beyond(self) -> Tuned:
        """The supplement: both methods with other steps, on the same clip."""
        return Tuned(self.clip) if self.tuned is None else self.tuned

    @property
    def without_rank(self) -> ShrunkClip:
        """The panel beside Figure 7: the same clip by shrinkage."""
        shrinkage = ClipShrinkage(clip=self.clip.clip) if self.shrinkage is None else self.shrinkage
        return ShrunkClip(self.clip, shrinkage)

    def figures(self) -> dict[str, Figure]:
        """Return all figures by name."""
        made: list[Figure] = [
            AgainstEpochs(self.convergence),
            AgainstSeconds(self.convergence),
            SuccessRates(self.few),
            SuccessManyMeasurements(self.many),
            EpochsToSuccess(self.epochs),
            RecoveredFrames(self.clip),
            ClipCurves(self.clip),
            self.without_rank,
            self.beyond,
        ]
        return {figure.name: figure for figure in made}
