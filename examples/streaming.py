"""
Learn from a stream
===================

Samples come in batches and are not kept. `partial_fit` merges the statistics of each batch, and
its result is that of a fit on all rows together. Rows that were held back calibrate the scores at
the end.
"""

import matplotlib.pyplot as plt
import numpy as np

from pcsda import PCSDA
from pcsda.datasets import make_class_specific
from pcsda.metrics import cllr, equal_error_rate

data = make_class_specific(6000, random_state=0)
X, y, subclass = data.data, data.target, data.subclass_labels
stream, held, test = np.split(np.arange(6000), [1000, 2000])

# %%
# Twenty batches of fifty. The subclasses are known by their labels here; without labels they are
# the k-means clusters of the first batch.

model = PCSDA(random_state=0)
seen, rates = [], []
for batch in np.split(stream, 20):
    model.partial_fit(X[batch], y[batch], classes=[0, 1], subclass_labels=subclass[batch])
    seen.append(model.scatter_.counts.sum())
    rates.append(equal_error_rate(y[test], model.log_likelihood_ratio(X[test]))[0])

# %%
# The same from all rows at once, and the calibration on rows held back.

whole = PCSDA(covariance="resubstitution", calibrate=False, random_state=0)
whole.fit(X[stream], y[stream], subclass_labels=subclass[stream])
gap = np.abs(whole.log_likelihood_ratio(X[test]) - model.log_likelihood_ratio(X[test])).max()
print(f"largest difference from one fit on all rows: {gap:.1e}")
before = cllr(y[test], model.log_likelihood_ratio(X[test]))
model.recalibrate(X[held], y[held])
after = cllr(y[test], model.log_likelihood_ratio(X[test]))
print(f"Cllr before calibration {before:.3f} bit, after {after:.3f} bit")

figure, ax = plt.subplots(figsize=(7, 4), layout="constrained")
ax.plot(seen, rates, marker=".", label="after each batch")
exact = equal_error_rate(y[test], data.log_likelihood_ratio(X[test]))[0]
ax.axhline(exact, color="#777777", linestyle="--", label="the exact ratio of the population")
ax.set(xlabel="samples seen", ylabel="equal error rate on test samples", ylim=(0, None))
ax.legend()
plt.show()
