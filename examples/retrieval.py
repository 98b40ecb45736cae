"""
Find more like these
====================

Twenty pictures of a three are marked. Which of the others show a three as well? `rank` orders a
collection by likelihood, or by the distance to the class of interest in the subspace, as the paper
does.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.metrics import average_precision_score

from pcsda import KernelPCSDA
from pcsda.metrics import precision_at_k

X, y = load_digits(return_X_y=True)
rng = np.random.default_rng(0)
marked = np.concatenate(
    [
        rng.choice(np.flatnonzero(y == 3), 20, replace=False),
        rng.choice(np.flatnonzero(y != 3), 400, replace=False),
    ]
)
gallery = np.setdiff1d(np.arange(len(X)), marked)
model = KernelPCSDA(gamma="scale", n_subclasses=9, random_state=0)
model.fit(X[marked], y[marked] == 3)

# %%
# How good is the whole ranking, and how good are its first hundred rows?

wanted, score = y[gallery] == 3, model.log_likelihood_ratio(X[gallery])
print(f"{wanted.sum()} threes among {len(gallery)} pictures")
print(f"average precision {average_precision_score(wanted, score):.3f}")
print(f"precision at 100  {precision_at_k(wanted, score, k=100):.2f}")

# %%
# Show the best matches, and the first mistakes further down the list.

order = model.rank(X[gallery], by="likelihood")
mistakes = order[~wanted[order]][:12]
figure, panels = plt.subplots(4, 12, figsize=(10, 4), layout="constrained")
shown = np.concatenate([order[:36], mistakes])
for ax, row in zip(panels.ravel(), shown, strict=True):
    ax.imshow(X[gallery[row]].reshape(8, 8), cmap="Greys")
    place = 1 + int(np.flatnonzero(order == row)[0])
    ax.set_title(place, fontsize=8, color="black" if wanted[row] else "#D55E00")
    ax.axis("off")
figure.suptitle("Places 1 to 36, and below them the first mistakes with their places")
plt.show()
