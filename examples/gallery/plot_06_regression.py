r"""
Tensor regression with scikit-learn
===================================

Every sample is a small image, and the target is one number:

.. math:: y_i = \langle A_i, X \rangle + b + \text{noise} .

The coefficient X is also an image. With 24x24 pixels there are 576 unknowns, and ordinary
regression fails with fewer samples than that. If the coefficient has low rank, far fewer samples
are enough: regression is recovery with samples as measurements.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import RidgeCV
from sklearn.model_selection import GridSearchCV, train_test_split

import lowtucker as lt
from lowtucker.estimators import TuckerRegressor

# %%
# The coefficient is a cross, a matrix of rank 2. There are 500 samples with 10 % noise.
n = 24
coefficient = np.zeros((n, n))
coefficient[4:20, 10:14] = 1
coefficient[10:14, 4:20] = 1
rng = np.random.default_rng(0)
images = rng.standard_normal((500, n, n))
signal = np.tensordot(images, coefficient, axes=2)
y = 3 + signal + 0.1 * signal.std() * rng.standard_normal(500)

train, test, y_train, y_test = train_test_split(images, y, test_size=200, random_state=0)
print(train.shape, "samples for", coefficient.size, "unknowns")

# %%
# The estimator accepts images directly. ``rank="auto"`` selects the rank by held-out rows.
tucker = TuckerRegressor(rank="auto", random_state=0).fit(train, y_train)
ridge = RidgeCV(alphas=np.logspace(-2, 4, 13)).fit(train.reshape(len(train), -1), y_train)

scores = {
    "ridge": ridge.score(test.reshape(len(test), -1), y_test),
    "Tucker": tucker.score(test, y_test),
}
for name, score in scores.items():
    print(f"{name:7} R^2 on {len(test)} test samples: {score:.3f}")
print("rank", tucker.rank_, f"intercept {float(tucker.intercept_):.2f}")
assert scores["Tucker"] > 0.97 > 0.8 > scores["ridge"]

# %%
# The coefficients, true and estimated.
estimates = {
    "true": coefficient,
    f"ridge, $R^2$ = {scores['ridge']:.2f}": ridge.coef_.reshape(n, n),
    f"Tucker, $R^2$ = {scores['Tucker']:.2f}": tucker.coef_tensor_.full(),
}
figure, axes = plt.subplots(1, 3, figsize=(9.5, 3.4), layout="constrained")
for axis, (name, image) in zip(axes, estimates.items(), strict=True):
    axis.imshow(image, cmap="RdBu_r", vmin=-1.2, vmax=1.2)
    axis.set(title=name, xticks=[], yticks=[])
error = float(lt.metrics.relative_error(tucker.coef_tensor_.full(), coefficient))
assert error < 0.1

# %%
# The estimator works with pipelines, searches, ``clone``, sample weights and data frames. For
# example, a grid search over the rank:
search = GridSearchCV(
    TuckerRegressor(random_state=0), {"rank": [(1, 1), (2, 2), (3, 3)]}, cv=3
).fit(train, y_train)
print(search.best_params_, f"cross-validated R^2 {search.best_score_:.3f}")
assert search.best_params_["rank"] == (2, 2)

# %%
# See :doc:`/regression` for details.
