"""
Fit on Dask
===========

`pcsda.distributed` takes Dask arrays and DataFrames. It merges the statistics of the chunks in a
tree, so only two D x D matrices come back. Here the "cluster" consists of threads in this process;
with a `dask.distributed.Client`, the same lines use that cluster.
"""

import dask.array as da
import matplotlib.pyplot as plt
import numpy as np

import pcsda
from pcsda.datasets import make_class_specific
from pcsda.plots import ScoreDisplay

data = make_class_specific(20_000, random_state=0)
train, test = slice(0, 15_000), slice(15_000, None)
X = da.from_array(data.data[train], chunks=(2_000, -1))
y = da.from_array(data.target[train], chunks=2_000)

# %%
# Fit over the chunks, and score lazily: `llr` is a Dask array, computed on demand.

model = pcsda.PCSDA(n_subclasses=6, random_state=0)
pcsda.distributed.fit(model, X, y)
llr = pcsda.distributed.predict(model, da.from_array(data.data[test], chunks=(1_000, -1)))
print(llr)

# %%
# With known subclasses, one array in memory gives the same model.

known = data.subclass_labels[train]
by_chunks = pcsda.distributed.fit(pcsda.PCSDA(calibrate=False), X, y, subclass_labels=known)
at_once = pcsda.fit_blocks(
    pcsda.PCSDA(calibrate=False), [(data.data[train], data.target[train], known)]
)
gap = np.abs(by_chunks.components_ - at_once.components_).max()
print(f"largest difference between the two sets of components: {gap:.1e}")

figure, ax = plt.subplots(figsize=(7, 4), layout="constrained")
ScoreDisplay.from_predictions(
    data.target[test], llr.compute(), threshold=0.0, score_name="log-likelihood ratio", ax=ax
)
plt.show()
