"""Tools from the theory in section 5 of the paper, for planning and assessing experiments.

``docs/theory.md`` derives what is computed here, and lists the corrections to the paper.
"""

from lowtucker.theory.comparison import Comparison, compare, contraction_of
from lowtucker.theory.complexity import sample_complexity
from lowtucker.theory.examination import Examination, examine
from lowtucker.theory.isometry import Trip, trip
from lowtucker.theory.planning import Plan, plan
from lowtucker.theory.quasioptimality import Eta, eta
from lowtucker.theory.rates import Contraction, best_step, contraction
from lowtucker.theory.transition import PhaseTransition, phase_transition

__all__ = [
    "Comparison",
    "Contraction",
    "Eta",
    "Examination",
    "PhaseTransition",
    "Plan",
    "Trip",
    "best_step",
    "compare",
    "contraction",
    "contraction_of",
    "eta",
    "examine",
    "phase_transition",
    "plan",
    "sample_complexity",
    "trip",
]
