"""
Find the rest of a class
========================

Three pictures of a seven are known, and a collection of 1797 digits holds 176 more. A session
suggests twenty pictures at a time, a user answers yes or no, and the verifier learns from the
answers. After every screen the session estimates how many are left, with an interval, and in the
end it says that it is time to stop.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from pcsda import SearchSession

X, y = load_digits(return_X_y=True)
wanted = y == 7
session = SearchSession(X)
session.label(np.flatnonzero(wanted)[:3], True)

shown, found, left = [3], [3], []
stop = session.stop(recall=0.95)
while not stop and shown[-1] < 600:
    left.append(session.remaining())
    rows = session.suggest(20)
    session.label(rows, wanted[rows])  # a person looks at them
    answers = session.labels().values()
    shown.append(len(answers))
    found.append(sum(answer is True for answer in answers))
    stop = session.stop(recall=0.95)
left.append(session.remaining())
print(f"shown {shown[-1]}, found {found[-1]} of {wanted.sum()}")
print(stop)

figure, ax = plt.subplots(figsize=(7, 4.4), layout="constrained")
ax.plot(shown, found, marker="o", label="found")
expected = np.array(found) + [one.count for one in left]
low = np.array(found) + [one.count_low for one in left]
high = np.array(found) + [one.count_high for one in left]
ax.plot(shown, expected, label="found and expected to remain")
ax.fill_between(shown, low, high, alpha=0.2, label="its 90% interval")
ax.axhline(wanted.sum(), color="black", linewidth=0.8, label="in truth")
ax.set(xlabel="pictures shown", ylabel="sevens", ylim=(0, 1.6 * wanted.sum()))
ax.legend()
plt.show()
