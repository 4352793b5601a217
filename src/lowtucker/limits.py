"""Thresholds that decide verdicts, beside each other, with where they were measured.

``lowtucker bench verdict`` measures how often verdicts are wrong with them, and
``lowtucker bench checks`` how often each check is, where it is meant to say nothing.
"""

from __future__ import annotations

# Measurements per degree of freedom from which on local minima are rare, and noise can be told from
# structure: of 600 noiseless problems with 1.2 to 1.6, six local minima looked like noise
PLENTY = 2.8

# Noise. Excess of spectral norms of the adjoint of the residual over those with random signs, in
# standard deviations, above which it has structure: with 32 signs 3 of 3138 residuals of noise
# (normal, Student with 3 degrees of freedom, of unequal size; ten kinds of operators) exceeded it
STRUCTURE = 5.0
# Above DOUBTFUL, which 4 % of all noise exceeds, larger ranks are compared with first; so they are
# where a misfit of the size of the residual would not be seen: what it would add, in units of what
# random signs give, is below VISIBLE, or PLAINLY_VISIBLE for residuals that are not SMALL
DOUBTFUL, VISIBLE, PLAINLY_VISIBLE = 3.5, 2.0, 3.0
# A misfit that is not seen is smaller than the cross-validated residual times this, over its
# visibility: spectral norms with random signs differ by some 4 %, so that 5 standard deviations are
# a factor of 1.2, the root of 1 + 0.66^2
UNSEEN = 0.66
# Relative residuals above this are too large to be called noise by solvers; those below SMALL are,
# if there is no structure, even where little would be seen; those that exceed the floor of noise of
# a given size by LITTLE_MORE may be
CLEAR, SMALL, LITTLE_MORE = 0.3, 0.1, 1.5
# With fewer than PLENTY measurements per degree of freedom, the lowest residual must be reached by
# so many starts, and by such a share of them: of 541 problems with 1.03 to 1.8, local minima with
# estimates below FEW_ERROR were reached by at most 17 % of the starts, but for one (90 %); with
# MORE isotropic measurements per degree of freedom by at most 10 %
AGAIN, AGAIN_SHARE, AGAIN_WITH_MORE, MORE, FEW_ERROR = 4, 0.2, 0.1, 1.5, 0.3
# or the held-out residual of another fit be what cross-validation predicts, up to this factor; with
# less than MORE, and noise of unknown size, both, up to the second: a few measurements tell no more
AGREES, AGREES_ROUGHLY = 3.0, 6.0
# Residuals whose kurtosis exceeds that of normal noise by so many standard deviations, with such a
# share of their squares beyond OUTLYING standard deviations, by the median, have outliers
KURTOSIS, OUTLIERS, OUTLYING = 6.0, 0.25, 4.0
# With such a share a small residual is not called noise: a local minimum may fit all but a few
ALMOST_ALL = 0.9
# Error by noise, in units of the cross-validated residual, above which the latter says nothing of
# the error of X
AMPLIFIED = 2.0
# An excess that 80 % of all noise stays below, for residuals of which nothing else is known
LIKE_NOISE = 2.5
# Rows that count, in units of PLENTY, below which the residual is not asked for structure
UNEVEN = 0.5

# Determined. Error estimates above HOPELESS, and upper ends of their intervals above LARGEST, are a
# reason not to trust X; held-out residuals, of data that no low rank explains, above POOR_FIT
HOPELESS, LARGEST, POOR_FIT = 0.3, 0.6, 0.5
# Directions that the error by noise is spread over, below which one decides it: the linear model
# does not reach as far as LARGEST, and FEW_ERROR is the limit. Chosen, after one of 500 hostile
# operators had an error of 59 % with an interval up to 41 %
ALONE = 2.0
# Other formats than Tucker. Smallest gain of A on tangent directions, relative to the largest,
# below which X is not determined; held-out residuals of exact fits above which others fit as well,
# where the residual of what was fitted is smaller by this share
BLIND, INEXACT, OVERFITTED = 1e-4, 1e-3, 0.1
# Held-out measurements below which another fit says nothing
LEAST_HELD = 5
# A fit is finished by Gauss-Newton steps where it has so much left, in units of the error by noise
# or of tol
UNFINISHED, FAR = 0.2, 10.0

# Rank. A larger rank must lower the held-out residual by BETTER in a search; a rank is too small
# where a larger one lowers it by CLEARLY, and by more than SURELY standard errors. Held-out
# residuals above POOR tell little
BETTER, CLEARLY, SURELY, POOR = 0.02, 0.1, 2.0, 0.3

# Borderline. Chosen, not measured: of 30 rank searches each, 0 were borderline without noise, 4
# with 1 %, 5 with 10 %. Factors between an estimate and HOPELESS, a residual and tol; a difference
# between an excess and STRUCTURE; the smallest eigenvalue in units of rounding error
NEAR_ESTIMATE, NEAR_TOL, NEAR_STRUCTURE, NEAR_ROUNDING = 1.5, 2.0, 1.0, (0.1, 100)
# the fall of a held-out residual, its standard errors, and the error to be expected (a factor)
NEAR_FALL, NEAR_ERRORS, NEAR_EXPECTED = 0.05, 0.5, 1.2
# Held-out error of a first fit, in units of what noise leaves of held-out samples, above which the
# residual of a completion is overfitted structure and no noise. Of 130 noisy tensors of exact rank
# with 2.5 to 6 samples per degree of freedom the largest was 2.7, beside that of a wrong first fit;
# a hyperspectral cube whose intervals covered 46 instead of 90 % had 6
PREDICTED_WORSE = 4.0
