"""Thresholdings: maps onto simple tensors, the step H_r of equation (3.5)."""

from lowtucker.thresholding.tucker import HOOI, HOSVD, STHOSVD, Thresholding

__all__ = ["HOOI", "HOSVD", "STHOSVD", "Thresholding"]
