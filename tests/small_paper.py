"""The paper's experiments reduced to a second: few cells, few epochs, a small clip."""

from __future__ import annotations

from lowtucker import datasets
from lowtucker.lab.experiments.beyond import Facts, Tuned
from lowtucker.lab.experiments.clip import Clip, ClipRecovery
from lowtucker.lab.experiments.convergence import Convergence
from lowtucker.lab.experiments.figures import Paper
from lowtucker.lab.experiments.shrunk import ClipShrinkage
from lowtucker.lab.experiments.success import SUCCESS, Recoveries

RANKS = ((1, 1, 2), (1, 2, 2))


def small_paper() -> Paper:
    flame = Clip(datasets.flame((8, 8, 4)).values, "small synthetic flame", True)
    clip = ClipRecovery(clip=flame, rank=(3, 3, 2), m=600, epochs=6)
    tuned = Tuned(
        clip,
        tiht=Convergence("tuned-TIHT", block_sizes=(360,), mus_over_m=(0.40, 0.46), epochs=10),
        stotiht=Convergence("tuned-StoTIHT", block_sizes=(90,), mus_over_m=(0.46, 1.5), epochs=10),
        epochs=Recoveries(
            "tuned-epochs", (240,), (0.4, 0.5, 1.0), 4, 10, SUCCESS, ranks=((1, 2, 2),)
        ),
        facts=Facts(),
    )
    return Paper(
        convergence=Convergence(block_sizes=(90, 360), epochs=12),
        few=Recoveries("few", (18, 102), (1.0,), 2, 20, 1e-8, ranks=RANKS),
        many=Recoveries("many", (240, 460), (0.5,), 4, 10, 1e-8, ranks=RANKS),
        epochs=Recoveries("epochs", (240, 460), (0.4,), 4, 20, SUCCESS, ranks=RANKS),
        clip=clip,
        tuned=tuned,
        shrinkage=ClipShrinkage(clip=flame, measurements=(120, 200)),
    )
