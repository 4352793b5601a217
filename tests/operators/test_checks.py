"""check_adjoint and check_restriction find operators that are wrong."""

from __future__ import annotations

import numpy as np
import pytest

import lowtucker as lt

SHAPE, M = (3, 4), 5
MATRIX = np.random.default_rng(0).standard_normal((M, 12))


def function(forward=None, adjoint=None):
    return lt.FunctionOperator(
        (lambda X: MATRIX @ X.ravel()) if forward is None else forward,
        (lambda v: (MATRIX.T @ v).reshape(SHAPE)) if adjoint is None else adjoint,
        SHAPE,
        M,
    )


def test_check_adjoint_finds_a_wrong_adjoint():
    wrong = function(adjoint=lambda v: (MATRIX.T @ v).reshape(SHAPE) * 1.001)
    with pytest.raises(
        lt.CheckError, match=r"FunctionOperator: <A\(X\), v> = <X, A\*\(v\)>.*fails by"
    ):
        lt.check_adjoint(wrong)


def test_check_adjoint_finds_maps_that_are_not_linear():
    affine = function(forward=lambda X: MATRIX @ X.ravel() + 1)
    with pytest.raises(lt.CheckError, match=r"FunctionOperator: forward is linear fails by"):
        lt.check_adjoint(affine)
    adjoint = function(adjoint=lambda v: (MATRIX.T @ np.abs(v)).reshape(SHAPE))
    with pytest.raises(lt.CheckError, match=r"FunctionOperator: adjoint is linear fails by"):
        lt.check_adjoint(adjoint)


def test_check_restriction_finds_wrong_blocks():
    class Wrong(lt.DenseOperator):
        def _restrict(self, rows):
            return lt.DenseOperator(self.matrix[rows] * 1.01, self.shape)

    with pytest.raises(lt.CheckError, match=r"Wrong: restrict\(rows\)\.forward\(X\).*fails by"):
        lt.check_restriction(Wrong(MATRIX, SHAPE))


def test_check_restriction_finds_wrong_adjoints_of_blocks():
    class Wrong(lt.DenseOperator):
        def _restrict(self, rows):
            matrix = self.matrix[rows]
            return lt.FunctionOperator(
                lambda X: matrix @ X.ravel(),
                lambda v: 1.01 * (matrix.T @ v).reshape(self.shape),
                self.shape,
                len(matrix),
            )

    with pytest.raises(lt.CheckError, match="Wrong: the blocks' adjoints sum to the adjoint fails"):
        lt.check_restriction(Wrong(MATRIX, SHAPE))
