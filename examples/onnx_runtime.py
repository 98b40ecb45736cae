"""
Run a verifier without Python
=============================

`export_onnx` writes a fitted model, a pipeline or a bank as an ONNX graph with four outputs:
label, probabilities, log-likelihood ratio and coordinates in the subspace. Any ONNX runtime can
run it.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import onnxruntime
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import pcsda

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X, y == 3, stratify=y, random_state=0)
model = make_pipeline(
    StandardScaler(),
    pcsda.NystroemMap(300, random_state=0),
    pcsda.PCSDA(n_subclasses=9, random_state=0),
).fit(X_train, y_train)
path = Path(tempfile.mkdtemp()) / "three.onnx"
pcsda.export_onnx(model, path)

# %%
# Another program would start here: it needs only the file and NumPy.

session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
outputs = [output.name for output in session.get_outputs()]
values = dict(zip(outputs, session.run(None, {"X": X_test.astype(np.float32)}), strict=True))
print({name: value.shape for name, value in values.items()})

# %%
# The graph takes and returns single precision, but computes in double precision.

here = model[-1].log_likelihood_ratio(model[:-1].transform(X_test))
there = values["log_likelihood_ratio"].ravel()
print(f"largest difference of the log-likelihood ratios: {np.abs(here - there).max():.1e}")

figure, ax = plt.subplots(figsize=(5.5, 5), layout="constrained")
for label, colour, marker in ((False, "#E69F00", "o"), (True, "#111111", "^")):
    of = y_test == label
    name = "three" if label else "the rest"
    ax.scatter(here[of], there[of], color=colour, marker=marker, s=14, label=name)
ax.axline((0, 0), slope=1, color="#777777", linewidth=0.8)
ax.set(xlabel="log-likelihood ratio in Python", ylabel="in ONNX Runtime")
ax.legend()
plt.show()
