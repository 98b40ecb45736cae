"""
Is a log-likelihood ratio calibrated?
=====================================

A score decides well at every prior only if it is calibrated. This example compares the published
rule and the defaults of the library on the same split: predicted probabilities against observed
frequencies.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from pcsda import PCSDA
from pcsda.metrics import cllr, min_cllr
from pcsda.plots import BayesErrorDisplay

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(
    X, y == 8, stratify=y, test_size=0.5, random_state=0
)
models = {
    "published rule, K = 9": PCSDA.published(9, random_state=0),
    "defaults, K = 9": PCSDA(9, random_state=0),
}

# %%
# Cllr is the cost over all priors, in bits: 0 is perfect, 1 is uninformative. Its minimum is the
# cost of the same ranking with the best calibration; the gap is the calibration loss.

figure, panels = plt.subplots(1, 2, figsize=(10, 4.2), sharey=True, layout="constrained")
for ax, (name, model) in zip(panels, models.items(), strict=True):
    llr = model.fit(X_train, y_train).log_likelihood_ratio(X_test)
    print(f"{name}: Cllr {cllr(y_test, llr):.3f} bit, at best {min_cllr(y_test, llr):.3f}")
    BayesErrorDisplay.from_predictions(y_test, llr, ax=ax)
    ax.set(title=name, ylim=(0, 1.6))
plt.show()
