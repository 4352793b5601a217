"""Data sets that TensorLy ships.

Names of modes, labels, licences and citations are those of ``tensorly/datasets/data_imports.py``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lowtucker.datasets.base import TENSORLY, Dataset, NumPyArray, require
from lowtucker.tensor import sthosvd

__all__ = ["covid", "il2", "indian_pines", "kinetic"]

# Ranks of the approximations that decide which values of the cube to correct, coarse to fine
COARSE_TO_FINE = ((20, 20, 3), (40, 40, 4), (40, 40, 4), (60, 60, 6))


def indian_pines(*, repair: bool = True) -> Dataset:
    """Load Indian Pines: farmland in Indiana from the air, 145x145 pixels in 200 bands.

    There are no values between 3328 and 3583 in the file of TensorLy 0.10: every byte 13 was
    replaced by 10, as in a conversion of line endings, so that 3328 + k became 2560 + k. Low-rank
    approximations of the cube, coarse ones first, tell which values to correct: 2.8 % of them. A
    byte 13 in the lower half of a number causes an error of 3, which remains. The repair takes
    about four seconds.

    Parameters
    ----------
    repair : bool, default True
        Correct the damaged values; False returns the values as they are shipped.

    Returns
    -------
    Dataset
        Modes ``row``, ``column`` and ``wavelength`` (nanometres, as TensorLy lists them).

    Raises
    ------
    ImportError
        TensorLy is not installed.

    Examples
    --------
    >>> from lowtucker import datasets
    >>> datasets.indian_pines(repair=False).shape
    (145, 145, 200)
    """
    shipped = _load("indian_pines", "load_indian_pines")
    read = np.asarray(shipped.tensor, dtype=np.float32)
    cube = _without_damage(read) if repair else read
    return Dataset(
        values=cube.astype(np.float64),
        dims=("row", "column", "wavelength"),
        coords={"wavelength": np.asarray(shipped.ticks[1], dtype=float)},
        title="Indian Pines, an AVIRIS hyperspectral image of June 12, 1992",
        licence="CC BY 3.0",
        citation=_plain(shipped.reference),
        source="TensorLy, Indian_pines_corrected.npy" + ("" if cube is read else ", repaired"),
    )


def kinetic() -> Dataset:
    """Load kinetic fluorescence of mixtures of catecholamines, 64x12x10x60.

    TensorLy stores zeros for 1754 missing values, and their positions; here they are NaN.

    Returns
    -------
    Dataset
        Modes ``measurement``, ``emission`` and ``excitation`` (nanometres), ``time`` (minutes).

    Raises
    ------
    ImportError
        TensorLy is not installed.

    Examples
    --------
    >>> import numpy as np
    >>> from lowtucker import datasets
    >>> data = datasets.kinetic()
    >>> data.shape, int(np.isnan(data.values).sum())
    ((64, 12, 10, 60), 1754)
    """
    shipped = _load("kinetic", "load_kinetic")
    values = np.where(shipped.missing_values_position, np.nan, shipped.tensor)
    dims = ("measurement", "emission", "excitation", "time")
    return Dataset(
        values=values,
        dims=dims,
        coords=_labels(dims, shipped.ticks),
        title="Kinetic fluorescence of mixtures of catecholamines",
        licence="available for public use, as is; please cite",
        citation=_plain(shipped.reference),
        source="TensorLy, Kinetic.npy",
    )


def il2() -> Dataset:
    """Load responses of eight types of cells to 13 variants of interleukin 2, 13x4x12x8.

    Returns
    -------
    Dataset
        Modes ``ligand``, ``time``, ``dose`` and ``cell``; 192 values are missing.

    Raises
    ------
    ImportError
        TensorLy is not installed.

    Examples
    --------
    >>> from lowtucker import datasets
    >>> data = datasets.il2()
    >>> data.shape, str(data.coords["cell"][-1])
    ((13, 4, 12, 8), 'NK')
    """
    shipped = _load("il2", "load_IL2data")
    dims = ("ligand", "time", "dose", "cell")
    return Dataset(
        values=np.array(shipped.tensor, dtype=float),
        dims=dims,
        coords=_labels(dims, shipped.ticks),
        title="Signalling responses of immune cells to IL-2 and its mutants",
        licence="MIT, copyright 2021 The Regents of the University of California",
        citation=_plain(shipped.reference[0]),
        source="TensorLy, IL2_Response_Tensor.npy",
    )


def covid() -> Dataset:
    """Load antibodies in 438 samples of serum against antigens of SARS-CoV-2, 438x6x11.

    Returns
    -------
    Dataset
        Modes ``sample`` (labelled by the patient's status), ``antigen`` and ``receptor``.

    Raises
    ------
    ImportError
        TensorLy is not installed.

    Examples
    --------
    >>> from lowtucker import datasets
    >>> data = datasets.covid()
    >>> data.shape, str(data.coords["sample"][0])
    ((438, 6, 11), 'Negative')
    """
    shipped = _load("covid", "load_covid19_serology")
    dims = ("sample", "antigen", "receptor")
    return Dataset(
        values=np.array(shipped.tensor, dtype=float),
        dims=dims,
        coords=_labels(dims, shipped.ticks),
        title="Systems serology of COVID-19",
        licence="MIT, copyright 2022 The Regents of the University of California",
        citation=" ".join(map(_plain, shipped.reference)),
        source="TensorLy, COVID19_data.npy",
    )


def _load(name: str, loader: str) -> Any:
    require(name, TENSORLY)
    from tensorly import datasets

    return getattr(datasets, loader)()


def _labels(dims: tuple[str, ...], ticks: Any) -> dict[str, NumPyArray]:
    """Return labels by the names of modes; texts as NumPy strings."""
    arrays = (np.asarray(labels) for labels in ticks)
    plain = (a.astype(str) if a.dtype.kind == "O" else a for a in arrays)
    return dict(zip(dims, plain, strict=True))


def _plain(text: str) -> str:
    """Return text without the line breaks and spaces of its source code."""
    return " ".join(text.split())


def _without_damage(read: NumPyArray) -> NumPyArray:
    """Add 768 where a low-rank approximation says that a byte 13 became 10."""
    if np.any((read >= 3328) & (read < 3584)):  # a version of TensorLy without the damage
        return read
    suspect = (read >= 2560) & (read < 2816)
    cube = read
    for rank in COARSE_TO_FINE:
        expected = sthosvd(cube, rank).full()
        cube = read + np.float32(768) * (suspect & (expected > read + 384))
    return cube
