"""Thresholds that decide verdicts, beside each other, with where they were measured."""

from __future__ import annotations

# Measurements per degree of freedom from which on local minima are rare, and noise can be told from
# structure: of 600 noiseless problems with 1.2 to 1.6, six local minima looked like noise
PLENTY = 2.8

# Noise. Spectral norms of the adjoint of the residual, in units of those of noise, above which it
# has structure. Over shapes from 5x5x6 to 30x30x30 noise reached 1.02 (1.07 on 10x10x8), a rank
# that is too small 1.02 to 1.6, the paper's candle 1.3
STRUCTURE = 1.05
# Relative residuals above this are too large to be called noise
CLEAR = 0.3

# Determined. Error estimates above DOUBT are a reason to check whether the tangent design has full
# rank, those above HOPELESS a reason not to trust X
DOUBT, HOPELESS = 0.01, 0.3

# Rank. A larger rank must lower the held-out residual by BETTER in a search; a rank is too small
# where a larger one lowers it by CLEARLY, and by more than SURELY standard errors. Held-out
# residuals above POOR tell little
BETTER, CLEARLY, SURELY, POOR = 0.02, 0.1, 2.0, 0.3

# Borderline. Chosen, not measured: of 30 rank searches each, 0 were borderline without noise, 4
# with 1 %, 5 with 10 %. Factors between an estimate and HOPELESS, a residual and tol, a residual
# and CLEAR; a difference between a structure and STRUCTURE; the smallest eigenvalue in units of
# rounding error
NEAR_ESTIMATE, NEAR_TOL, NEAR_CLEAR, NEAR_STRUCTURE, NEAR_ROUNDING = 1.5, 2.0, 1.1, 0.03, (0.1, 100)
# the fall of a held-out residual, its standard errors, and the error to be expected (a factor)
NEAR_FALL, NEAR_ERRORS, NEAR_EXPECTED = 0.05, 0.5, 1.2
