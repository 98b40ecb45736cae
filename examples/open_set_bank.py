"""
A bank of verifiers that rejects strangers
==========================================

Seven digits are enrolled, each with its own verifier, from one factorisation. An eighth is
enrolled later. The last two are strangers: `identify` should name the known digits and call these
unknown.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from pcsda import KernelPCSDA, VerifierBank

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, stratify=y, random_state=0)
first = y_train < 7
bank = VerifierBank(KernelPCSDA(gamma="all", random_state=0))
bank.fit(X_train[first], y_train[first])

# %%
# Enroll a new label with thirty samples. The other models include it after `refresh`.

newcomer = np.flatnonzero(y_train == 7)[:30]
bank.enroll(X_train[newcomer], 7).refresh()
print("known labels:", bank.classes_.tolist())

# %%
# A ratio compares a label with the rest *seen in training*, which includes no strangers: the best
# of eight ratios is above zero for many of them. So the bank treats each of its labels as a
# stranger in turn, and chooses the threshold that would accept one in ten of them.

threshold = bank.choose_threshold(max_false_alarms=0.1).value
known, strangers = y_test < 8, y_test > 7
for chosen in (0.0, threshold):
    named = bank.identify(X_test, threshold=chosen, unknown=-1)
    print(
        f"threshold {chosen:5.1f}: {np.mean(named[strangers] != -1):4.0%} of the strangers are "
        f"named, {np.mean(named[known] == y_test[known]):4.0%} of the known are named correctly"
    )

# %%
# The higher the threshold, the fewer strangers are accepted and the more known samples are
# rejected. Eight labels say little about two others, so the actual share differs from the
# requested one. Pass `strangers=` if you have some.

best, right = bank.log_likelihood_ratio(X_test).max(axis=1), bank.predict(X_test) == y_test
steps = np.linspace(-2, 12, 100)
accepted = best >= steps[:, None]
figure, ax = plt.subplots(figsize=(7, 4.2), layout="constrained")
ax.plot(steps, (accepted & right)[:, known].mean(axis=1), label="known, named correctly")
ax.plot(steps, accepted[:, strangers].mean(axis=1), label="strangers accepted")
ax.axvline(threshold, color="#777777", linestyle="--", label="chosen for 10% of strangers")
ax.set(xlabel="threshold on the log-likelihood ratio", ylabel="share of test images", ylim=(0, 1))
ax.legend()
plt.show()
