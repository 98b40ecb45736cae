"""
Learn from a stream
===================

Samples arrive in batches. `partial_fit` merges the statistics of each batch and keeps a bounded
sample of rows. The result equals a fit on all rows together and is calibrated after every batch.
"""

import matplotlib.pyplot as plt
import numpy as np

from pcsda import PCSDA
from pcsda.datasets import make_class_specific
from pcsda.metrics import cllr

data = make_class_specific(6000, random_state=0)
X, y, subclass = data.data, data.target, data.subclass_labels
stream, test = np.split(np.arange(6000), [1000])

# %%
# Twenty batches of fifty. Here the subclass labels are known; without them, subclasses are the
# k-means clusters of the first batch.

model = PCSDA(random_state=0)
seen, costs = [], []
for batch in np.split(stream, 20):
    model.partial_fit(X[batch], y[batch], classes=[0, 1], subclass_labels=subclass[batch])
    seen.append(model.scatter_.counts.sum())
    costs.append(cllr(y[test], model.log_likelihood_ratio(X[test])))

# %%
# Fit on all rows at once, for comparison.

whole = PCSDA(random_state=0).fit(X[stream], y[stream], subclass_labels=subclass[stream])
gap = np.abs(whole.log_likelihood_ratio(X[test]) - model.log_likelihood_ratio(X[test])).max()
print(f"largest difference from one fit on all rows: {gap:.1e}")
print(f"{len(model.sample_.X)} rows are kept, at most {model.calibration_rows} of each class")

figure, ax = plt.subplots(figsize=(7, 4), layout="constrained")
ax.plot(seen, costs, marker=".", label="after each batch")
exact = cllr(y[test], data.log_likelihood_ratio(X[test]))
ax.axhline(exact, color="#777777", linestyle="--", label="the exact ratio of the population")
ax.set(xlabel="samples seen", ylabel="Cllr on test samples (bit)", ylim=(0, None))
ax.legend()
plt.show()
