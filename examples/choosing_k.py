"""
Choose the number of subclasses and axes
========================================

`PCSDACV` scores every setting by its log-loss on left-out samples, in closed form: one fit covers
all numbers of axes, and one factorisation all numbers of subclasses. Here the truth is known: the
rest has six subclasses, which differ from the class of interest in only four dimensions.
"""

import matplotlib.pyplot as plt
from sklearn.model_selection import train_test_split

from pcsda import PCSDA, PCSDACV
from pcsda.datasets import make_class_specific
from pcsda.metrics import cllr
from pcsda.plots import SelectionDisplay

data = make_class_specific(3000, random_state=0)
X_train, X_test, y_train, y_test = train_test_split(
    data.data, data.target, stratify=data.target, random_state=0
)

# %%
# The grid has K from 1 to 10, every d that K allows, and three ridges.

search = PCSDACV(
    PCSDA(random_state=0),
    n_subclasses=[1, 2, 3, 4, 5, 6, 8, 10],
    n_components=range(1, 11),
    regularization=[1e-3, 1e-2, 1e-1],
).fit(X_train, y_train)
print("chosen:", search.best_params_)

# %%
# The log-likelihood-ratio cost of the chosen model, and that of the exact ratio of the population,
# which a model can beat only by luck.

print(f"Cllr of the chosen model {cllr(y_test, search.log_likelihood_ratio(X_test)):.3f} bit")
print(f"Cllr of the exact ratio  {cllr(y_test, data.log_likelihood_ratio(X_test)):.3f} bit")

SelectionDisplay.from_estimator(search)
plt.show()
