"""
One class in the middle, others all around it
=============================================

The toy problem of the paper: the class of interest lies in the middle of others, whose labels
are unknown. With one subclass for all of the rest there is one axis, which cannot separate the
middle from both of its sides. With five subclasses there are two axes.
"""

import matplotlib.pyplot as plt
import numpy as np

from pcsda import PCSDA

# %%
# Eighty samples of the class of interest, and five groups around it that all have the label 0.

rng = np.random.default_rng(0)
angles = 2 * np.pi * np.arange(5) / 5
centres = 4.5 * np.column_stack([np.cos(angles), np.sin(angles)])
rest = np.concatenate([rng.normal(centre, 0.8, size=(60, 2)) for centre in centres])
X = np.concatenate([rng.normal(0, 0.8, size=(80, 2)), rest])
y = np.repeat([1, 0], [80, 300])

# %%
# Show where in the plane each model decides for the class of interest, with equal priors.

grid = np.linspace(-7, 7, 200)
points = np.stack(np.meshgrid(grid, grid), axis=-1)
figure, panels = plt.subplots(1, 2, figsize=(9, 4.4), sharey=True, layout="constrained")
for ax, n_subclasses in zip(panels, (1, 5), strict=True):
    model = PCSDA(n_subclasses, priors="equal", random_state=0).fit(X, y)
    values = model.decision_function(points.reshape(-1, 2)).reshape(200, 200)
    ax.contourf(grid, grid, values >= 0, levels=[0.5, 1.5], colors=["#0072B233"])
    ax.scatter(*X[y == 0].T, s=8, color="#E69F00", label="the rest")
    ax.scatter(*X[y == 1].T, s=14, color="#111111", marker="^", label="class of interest")
    right = np.mean(model.predict(X) == y)
    axes = "axis" if model.n_components_ == 1 else "axes"
    ax.set_title(f"K = {n_subclasses}: {model.n_components_} {axes}, {right:.0%} right")
    ax.set_aspect("equal")
panels[0].legend(loc="lower left")
plt.show()
