"""Real data that installed packages ship, with names of modes, licence and citation.

Nothing is downloaded, and no data are part of this package: :func:`available` lists what can be
loaded here, and how to install the rest.
"""

from lowtucker.datasets.base import Dataset
from lowtucker.datasets.catalogue import Availability, available
from lowtucker.datasets.ferret import climatology
from lowtucker.datasets.pictures import flame, photograph
from lowtucker.datasets.shipped_by_tensorly import covid, il2, indian_pines, kinetic

__all__ = [
    "Availability",
    "Dataset",
    "available",
    "climatology",
    "covid",
    "flame",
    "il2",
    "indian_pines",
    "kinetic",
    "photograph",
]
