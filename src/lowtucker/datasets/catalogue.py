"""Which data sets there are, and which can be loaded here."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from lowtucker.datasets.base import PILLOW, SKLEARN, TENSORLY, Package
from lowtucker.datasets.ferret import FERRET, INSTALL

__all__ = ["Availability", "available"]


class Availability(NamedTuple):
    """Whether a data set can be loaded.

    Parameters
    ----------
    installed : bool
        Whether the package that ships it is installed.
    source : str
        That package.
    install : str
        The command that installs it; empty if nothing is needed.
    """

    installed: bool
    source: str
    install: str


def available() -> dict[str, Availability]:
    """List the loaders, and for each whether its data are installed; nothing is read.

    Returns
    -------
    dict from str to Availability
        By the name of the loader.

    Examples
    --------
    >>> from lowtucker import datasets
    >>> datasets.available()["flame"]
    Availability(installed=True, source='lowtucker', install='')
    """
    return {
        **dict.fromkeys(("indian_pines", "kinetic", "il2", "covid"), _shipped_by(TENSORLY)),
        "photograph": _shipped_by(SKLEARN, PILLOW),
        "climatology": Availability(
            Path(FERRET).exists(), "Debian's package ferret-datasets", INSTALL
        ),
        "flame": Availability(True, "lowtucker", ""),
    }


def _shipped_by(package: Package, *also: Package) -> Availability:
    needed = (package, *also)
    extras = ",".join(p.extra for p in needed)
    command = f'pip install "lowtucker[{extras}]"'
    return Availability(all(p.installed for p in needed), package.name, command)
