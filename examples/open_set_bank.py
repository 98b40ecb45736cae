"""
A bank of verifiers with strangers at the door
==============================================

Seven digits are enrolled, each with a verifier of its own from one factorisation. An eighth is
enrolled later. The last two stay unknown: `identify` should name the known ones and call the
others unknown.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from pcsda import KernelPCSDA, VerifierBank
from pcsda.metrics import bayes_threshold

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, stratify=y, random_state=0)
first = y_train < 7
bank = VerifierBank(KernelPCSDA(gamma="all", random_state=0))
bank.fit(X_train[first], y_train[first])

# %%
# Someone new comes, with thirty samples. The other models stay as they are until `refresh`.

newcomer = np.flatnonzero(y_train == 7)[:30]
bank.enroll(X_train[newcomer], 7)
print("known labels:", bank.classes_.tolist())

# %%
# The higher the threshold, the fewer strangers get in and the more known ones are sent away. A
# ratio compares a label with the rest *that was seen in training*, and strangers were not among
# it: the best of eight ratios is often above zero for them. So set the threshold on strangers of
# your own.

best = bank.log_likelihood_ratio(X_test).max(axis=1)
known = y_test < 8
thresholds = np.linspace(-2, 12, 60)
accepted = np.array([best >= t for t in thresholds])
named = bank.predict(X_test) == y_test
figure, ax = plt.subplots(figsize=(7, 4.2), layout="constrained")
ax.plot(thresholds, (accepted & named)[:, known].mean(axis=1), label="known, named rightly")
ax.plot(thresholds, accepted[:, ~known].mean(axis=1), label="strangers let in")
rare = bayes_threshold(prior=0.05)
ax.axvline(rare, color="#777777", linestyle="--", label="threshold for a prior of 0.05")
ax.set(xlabel="threshold on the log-likelihood ratio", ylabel="share of test images", ylim=(0, 1))
ax.legend()
plt.show()
