r"""
Tracking a slowly changing scene
================================

A scene of 24x24 pixels in 12 bands changes while it is measured: patterns travel across it. The
sensor reads one random pixel in one random band at a time, with noise, and never sees the whole
scene. :class:`lowtucker.Online` follows the scene, one block of samples after the other. It keeps
no samples: what it knows of them is a matrix of dof x dof numbers, where dof are the degrees of
freedom of the rank.

With ``memory`` it forgets: a sample counts less by the factor :math:`e^{-age / memory}`, its age in
samples.
"""

import matplotlib.pyplot as plt
import numpy as np

import lowtucker as lt

shape, rank = (24, 24, 12), (3, 3, 3)
dof = lt.degrees_of_freedom(shape, rank)
rng = np.random.default_rng(0)
core = rng.standard_normal(rank)


def waves(n, angle):
    """Return three cosines over n points, moved by an angle: columns that rotate."""
    return np.stack([np.cos(2 * np.pi * k * np.arange(n) / n - angle) for k in (1, 2, 3)], axis=1)


def scene(angle):
    """Return the scene at one time, of exact rank (3, 3, 3)."""
    return lt.TuckerTensor.from_factors(core, [waves(n, angle) for n in shape])


# %%
# While dof samples arrive, all factors rotate by 0.01. Three streams see the same blocks of dof / 4
# samples: one that forgets nothing, one with a memory of three samples for each degree of freedom,
# and one with ten. During the first fit, up to about three samples for each degree of freedom,
# ``online.X`` would be a shrunk estimate; it is not asked for here.
streams = {
    "no memory limit": lt.Online(shape, rank),
    "memory 3 dof": lt.Online(shape, rank, memory=3 * dof),
    "memory 10 dof": lt.Online(shape, rank, memory=10 * dof),
}
errors = {name: [] for name in streams}
estimates = {name: [] for name in streams}
block, blocks = dof // 4, 160
noise = 0.02 * scene(0).norm() / np.sqrt(np.prod(shape))  # 2 % of a typical entry

for k in range(blocks):
    truth = scene(0.01 * k * block / dof)
    where = rng.integers(0, shape, (block, 3))
    values = truth.entries(where) + noise * rng.standard_normal(block)
    for name, online in streams.items():
        online.update_entries(where, values)
        known = not online.warming_up
        error = lt.metrics.relative_error(online.X, truth) if known else np.nan
        errors[name].append(float(error))
        estimates[name].append(online.error_estimate if known else np.nan)

for name, online in streams.items():
    print(f"{name:16} error {errors[name][-1]:.3f}, estimate {estimates[name][-1]:.3f}")
    print(f"{'':16} {online.status.name}: {online.result().findings[-1].text}")

# %%
# Without forgetting, the old samples hold the tensor back, and the error grows. The estimate then
# counts the noise only, but the status says that the tensor changes. With a memory the error
# settles: at the lag, the distance that the scene moves in about one memory, and the noise that
# the memory does not average out. The estimate has both.
assert errors["memory 3 dof"][-1] < 0.5 * errors["memory 10 dof"][-1]
assert errors["memory 10 dof"][-1] < errors["no memory limit"][-1]
assert 0.6 < errors["memory 3 dof"][-1] / estimates["memory 3 dof"][-1] < 1.6
assert streams["no memory limit"].status is lt.Status.APPROXIMATED

samples = np.arange(1, blocks + 1) * block / dof
figure, axis = plt.subplots(figsize=(9, 4), layout="constrained")
for (name, found), colour in zip(errors.items(), ("C3", "C0", "C2"), strict=True):
    axis.semilogy(samples, found, color=colour, label=f"{name}: error")
    axis.semilogy(samples, estimates[name], "--", color=colour, label="estimate")
axis.set(xlabel="samples for each degree of freedom", ylabel="relative error")
axis.grid(alpha=0.3)
axis.legend(ncols=3, loc="upper center", bbox_to_anchor=(0.5, 1.25))

# %%
# One band at the end: the scene, and two of the streams.
views = [("the scene", truth.full())]
views += [(name, streams[name].X.full()) for name in ("memory 3 dof", "no memory limit")]
limit = np.abs(truth.full()[:, :, 4]).max()
figure, axes = plt.subplots(1, 3, figsize=(9, 3.4), layout="constrained")
for axis, (name, X) in zip(axes, views, strict=True):
    image = axis.imshow(X[:, :, 4], cmap="RdBu_r", vmin=-limit, vmax=limit)
    axis.set(title=name, xticks=[], yticks=[])
figure.colorbar(image, ax=axes, shrink=0.8)

# %%
# How long should the memory be? Noise adds an error of about :math:`\sqrt{dof / (2\, memory)}`
# times the noise, which falls with the memory; the lag grows with it. The best memory makes them
# about equal. ``result.held_out``, the error of predictions of recent samples before they were
# used, needs no truth and can choose between memories.
held_out = {name: online.result().held_out for name, online in streams.items()}
for name, score in held_out.items():
    print(f"{name:16} recent samples predicted to {score:.3f}")
assert min(held_out, key=held_out.get) == "memory 3 dof"
