"""
A bank of verifiers with strangers at the door
==============================================

Four digits are enrolled, each with a verifier of its own from one factorisation. A fifth is
enrolled later. Three more are strangers that we may look at before we choose a threshold. The last
two come to the door only: `identify` should name the known ones and call these unknown.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from pcsda import KernelPCSDA, VerifierBank

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, stratify=y, random_state=0)
first = y_train < 4
bank = VerifierBank(KernelPCSDA(gamma="all", random_state=0))
bank.fit(X_train[first], y_train[first])

# %%
# Someone new comes, with thirty samples. The other models know of the newcomer after `refresh`.

newcomer = np.flatnonzero(y_train == 4)[:30]
bank.enroll(X_train[newcomer], 4).refresh()
print("known labels:", bank.classes_.tolist())

# %%
# A ratio compares a label with the rest *that was seen in training*, and strangers were not among
# it: the best of five ratios is above zero for nearly all of them. So hold strangers back, neither
# enrolled nor in the test, and take the threshold that would let in one in twenty of them.

held_back = X_train[(y_train > 4) & (y_train < 8)]
threshold = np.quantile(bank.log_likelihood_ratio(held_back).max(axis=1), 0.95)
known, strangers = y_test < 5, y_test > 7
for chosen in (0.0, threshold):
    named = bank.identify(X_test, threshold=chosen, unknown=-1)
    print(
        f"threshold {chosen:5.1f}: {np.mean(named[strangers] != -1):4.0%} of the strangers come "
        f"in, {np.mean(named[known] == y_test[known]):4.0%} of the known are named rightly"
    )

# %%
# The higher the threshold, the fewer strangers get in and the more known ones are sent away. Three
# kinds of strangers say little about a fourth, so the share at the door is not that of those held
# back. Hold back as many different ones as you can.

best, right = bank.log_likelihood_ratio(X_test).max(axis=1), bank.predict(X_test) == y_test
steps = np.linspace(-2, 25, 100)
accepted = best >= steps[:, None]
figure, ax = plt.subplots(figsize=(7, 4.2), layout="constrained")
ax.plot(steps, (accepted & right)[:, known].mean(axis=1), label="known, named rightly")
ax.plot(steps, accepted[:, strangers].mean(axis=1), label="strangers let in")
ax.axvline(threshold, color="#777777", linestyle="--", label="from strangers held back")
ax.set(xlabel="threshold on the log-likelihood ratio", ylabel="share of test images", ylim=(0, 1))
ax.legend()
plt.show()
