"""
One class, five subspaces
=========================

The class-specific family on pictures of digits: eight pictures of an eight against 400 of other
digits. Each method learns nine axes, or three for the rows and three for the columns of the
picture. The images show the strongest axis as pixel weights; the curves show what the methods find
among 1100 new pictures.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.metrics import PrecisionRecallDisplay, average_precision_score

from pcsda import CSDA, PCSDA, MultilinearCSDA

X, y = load_digits(return_X_y=True)
eight = y == 8
rng = np.random.default_rng(0)
shown = np.concatenate(
    [
        rng.choice(np.flatnonzero(eight), 8, replace=False),
        rng.choice(np.flatnonzero(~eight), 400, replace=False),
    ]
)
fresh = rng.choice(np.setdiff1d(np.arange(len(y)), shown), 1100, replace=False)

models = {
    "PCSDA": PCSDA(10, 9, random_state=0),
    "CSDA": CSDA(9, random_state=0),
    "CSDA, trace ratio": CSDA(9, solver="trace_ratio", random_state=0),
    "CSDA, learned reference": CSDA(9, reference="optimal", random_state=0),
    "MultilinearCSDA": MultilinearCSDA((3, 3), shape=(8, 8), random_state=0),
}
figure, axes = plt.subplot_mosaic(
    [[*models], ["curve"] * len(models)],
    figsize=(8, 6),
    height_ratios=[1, 2.2],
    layout="constrained",
)
for name, model in models.items():
    scores = model.fit(X[shown], eight[shown]).log_likelihood_ratio(X[fresh])
    precision = average_precision_score(eight[fresh], scores)
    print(f"{name}: average precision {precision:.3f}")
    PrecisionRecallDisplay.from_predictions(
        eight[fresh], scores, name=name, ax=axes["curve"], plot_chance_level=False
    )
    # How much the first coordinate changes with each pixel.
    pixels = model.transform(np.eye(64))[:, 0] - model.transform(np.zeros((1, 64)))[0, 0]
    most = np.abs(pixels).max()
    axes[name].imshow(pixels.reshape(8, 8), cmap="RdBu", vmin=-most, vmax=most)
    axes[name].set_title(name, fontsize=8)
    axes[name].set(xticks=[], yticks=[])
plt.show()
