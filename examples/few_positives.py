"""
How many positives does it take?
================================

A digit against the rest, with 2 to 40 samples of the digit and 500 of the rest. PCSDA with its
defaults is compared with common choices: LDA, quadratic discriminant analysis (with a fixed
shrinkage, because the automatic one fails on two samples) and a support vector machine. The plot
shows the average precision on the same 600 test images, averaged over ten digits; bars are
standard errors over digits.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.discriminant_analysis import (
    LinearDiscriminantAnalysis,
    QuadraticDiscriminantAnalysis,
)
from sklearn.metrics import average_precision_score
from sklearn.svm import SVC

from pcsda import PCSDA, KernelPCSDA

X, y = load_digits(return_X_y=True)
X_train, y_train, X_test, y_test = X[:-600], y[:-600], X[-600:], y[-600:]
models = {
    "PCSDA": PCSDA(random_state=0),
    "KernelPCSDA": KernelPCSDA(gamma="scale", random_state=0),
    "LDA": LinearDiscriminantAnalysis(solver="eigen", shrinkage="auto"),
    "QDA": QuadraticDiscriminantAnalysis(solver="eigen", shrinkage=0.1),  # scikit-learn 1.8
    "SVC": SVC(C=10),
}
counts = [2, 5, 10, 20, 40]
rng = np.random.default_rng(0)
found = {name: np.empty((len(counts), 10)) for name in models}
for digit in range(10):
    positives = rng.permutation(np.flatnonzero(y_train == digit))
    rest = rng.choice(np.flatnonzero(y_train != digit), 500, replace=False)
    for place, count in enumerate(counts):
        rows = np.concatenate([positives[:count], rest])
        for name, model in models.items():
            scores = model.fit(X_train[rows], y_train[rows] == digit).decision_function(X_test)
            found[name][place, digit] = average_precision_score(y_test == digit, scores)

figure, ax = plt.subplots(figsize=(7, 4.4), layout="constrained")
for shift, (name, values) in enumerate(found.items()):
    error = values.std(axis=1, ddof=1) / np.sqrt(10)
    ax.errorbar(np.array(counts) * 1.03**shift, values.mean(axis=1), error, label=name, capsize=2)
ax.set_xscale("log")
ax.set_xticks(counts, counts)
ax.minorticks_off()
ax.set(xlabel="samples of the class of interest", ylabel="mean average precision")
ax.legend()
plt.show()
