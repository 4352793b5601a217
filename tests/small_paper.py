"""The paper's experiments cut down to seconds: few cells, few epochs, a small clip."""

from __future__ import annotations

from lowtucker.experiments.beyond import Facts, Tuned
from lowtucker.experiments.clip import Clip, ClipRecovery
from lowtucker.experiments.convergence import Convergence
from lowtucker.experiments.figures import Paper
from lowtucker.experiments.flame import synthetic_flame
from lowtucker.experiments.success import SUCCESS, Recoveries

RANKS = ((1, 1, 2), (1, 2, 2), (2, 2, 2), (2, 2, 3))


def small_paper() -> Paper:
    flame = Clip(synthetic_flame((12, 12, 6)), "small synthetic flame", True)
    clip = ClipRecovery(clip=flame, rank=(3, 3, 2), m=2000, epochs=8)
    tuned = Tuned(
        clip,
        tiht=Convergence("tuned-TIHT", block_sizes=(360,), mus_over_m=(0.40, 0.46), epochs=10),
        stotiht=Convergence("tuned-StoTIHT", block_sizes=(90,), mus_over_m=(0.46, 1.5), epochs=10),
        epochs=Recoveries(
            "tuned-epochs", (240, 400), (0.4, 0.5, 1.0), 4, 30, SUCCESS, ranks=((1, 2, 2),)
        ),
        facts=Facts(),
    )
    return Paper(
        convergence=Convergence(block_sizes=(90, 360), epochs=30),
        few=Recoveries("few", (18, 42, 102), (1.0,), 2, 120, 1e-8, ranks=RANKS),
        many=Recoveries("many", (240, 460), (0.5,), 4, 40, 1e-8, ranks=RANKS),
        epochs=Recoveries("epochs", (240, 460), (0.4,), 4, 60, SUCCESS, ranks=RANKS),
        clip=clip,
        tuned=tuned,
    )
