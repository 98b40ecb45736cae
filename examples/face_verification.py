"""
Verify a face from a handful of pictures
========================================

Is this the claimed person? Each person has seven pictures for training and three for testing.
The faces are ORL (AT&T) if the folder named by ``PCSDA_DATA`` has them, or scikit-learn's
Olivetti faces if they were downloaded before; otherwise each "person" is a handwritten digit.
"""

import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import fetch_olivetti_faces, load_digits
from sklearn.model_selection import train_test_split

from pcsda import KernelPCSDA, VerifierBank
from pcsda.metrics import bootstrap_interval, equal_error_rate
from pcsda.plots import DetDisplay, ScoreDisplay

faces = Path(os.environ.get("PCSDA_DATA", "no folder")) / "orl_40x30.npz"
if faces.exists():
    name, data = "ORL faces", np.load(faces)
    X, y = data["X"] / 255.0, data["y"]
else:
    try:
        name, data = "Olivetti faces", fetch_olivetti_faces(download_if_missing=False)
    except OSError:
        name, data = "digits", load_digits()
    X, y = data.data, data.target
if name == "digits":  # ten of each, like the pictures of a person
    chosen = np.concatenate([np.flatnonzero(y == digit)[:10] for digit in range(10)])
    X, y = X[chosen], y[chosen]

X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.3, stratify=y, random_state=0)
bank = VerifierBank(KernelPCSDA(gamma="all", n_subclasses=5, random_state=0)).fit(X_train, y_train)

# %%
# Every test picture claims every identity in turn: one claim is true, the others are false.
# Intervals come from resampling persons, because pictures of one person are similar.

llr = bank.log_likelihood_ratio(X_test)
true = y_test[:, None] == bank.classes_
persons = np.repeat(y_test, len(bank.classes_))
interval = bootstrap_interval(
    equal_error_rate, true.ravel(), llr.ravel(), groups=persons, n_resamples=200, random_state=0
)
print(f"{name}: {len(bank.classes_)} identities, {true.size} claims, equal error rate {interval}")

figure, panels = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
ScoreDisplay.from_predictions(
    true.ravel(), llr.ravel(), threshold=0.0, score_name="log-likelihood ratio", ax=panels[0]
)
DetDisplay.from_predictions(true.ravel(), llr.ravel(), ax=panels[1])
figure.suptitle(f"{name}: claims of identity")
plt.show()
