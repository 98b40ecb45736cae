"""Write model files as version 0.1.0 does, with rows and the scores that the models give them.

    cd tests; python -m golden.make_models

Every later version has to read these files, so they stay as they are: the script writes only what
is not there yet. Run it with the version whose files it is to keep, and with `VERSION` saying so.
The files are packed by gzip, which makes them ten times smaller.
"""

import gzip
import json
import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pandas as pd
from golden.problems import make_rows
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from pcsda import (
    CSDA,
    PCSDA,
    PCSDACV,
    FourierMap,
    KernelCSDA,
    KernelPCSDA,
    NystroemMap,
    VerifierBank,
    save,
)
from pcsda.normalization import AdaptiveSNorm

VERSION = "0.1.0"
FOLDER = Path(__file__).with_name("models")
ROWS = make_rows((25, 20, 22, 18), 4, seed=11, weighted=True, n_new=12)
NAMES = ["length", "width", "height", "weight"]
TEXTS = np.array(["rest", "own"])[ROWS.y]


def results(model, new):
    """Return a model's results for rows by method name; pipeline steps are applied."""
    if isinstance(model, AdaptiveSNorm):
        return {"transform": model.transform(new)}
    if hasattr(model, "steps"):
        model, new = model[-1], model[:-1].transform(new)
    found = {}
    for method in ("log_likelihood_ratio", "decision_function", "predict_proba", "predict"):
        found[method] = np.asarray(getattr(model, method)(new))
    if hasattr(model, "transform"):
        found["abs_transform"] = np.abs(model.transform(new))
    return found


def linear(**params):
    return PCSDA(**{"regularization": 0.1, "random_state": 0} | params)


def given(model, y=ROWS.y, X=ROWS.X, **known):
    final = f"{model.steps[-1][0]}__" if hasattr(model, "steps") else ""
    known = {"subclass_labels": ROWS.labels} | known
    return model.fit(X, y, **{final + name: value for name, value in known.items()})


def streamed():
    model = linear()
    for part in np.array_split(np.arange(len(ROWS.X)), 3):
        model.partial_fit(
            ROWS.X[part], ROWS.y[part], classes=[0, 1], subclass_labels=ROWS.labels[part]
        )
    return model


def normalised():
    bank = VerifierBank(linear()).fit(ROWS.X, ROWS.labels, subclass_labels=ROWS.labels)
    cohort = make_rows((6, 6, 6, 6), 4, seed=12, n_new=1)
    scores = bank.log_likelihood_ratio(cohort.X)
    return AdaptiveSNorm(n_top=2).fit(scores, cohort.labels), bank.log_likelihood_ratio(ROWS.new)


def models():
    """Yield names, fitted models and rows to score."""
    frame, new = pd.DataFrame(ROWS.X, columns=NAMES), pd.DataFrame(ROWS.new, columns=NAMES)
    grid = {"n_components": [1, 2], "regularization": [0.05, 0.5], "cv": "leave-one-out"}
    yield "pcsda", linear().fit(ROWS.X, ROWS.y), ROWS.new
    yield "blend", given(linear(pos_label="own"), TEXTS, frame, sample_weight=ROWS.weights), new
    yield "published", given(PCSDA.published()), ROWS.new
    yield "float32", given(linear(), X=ROWS.X.astype(np.float32)), ROWS.new.astype(np.float32)
    yield "csda", CSDA(2, random_state=0).fit(ROWS.X, ROWS.y == 1), ROWS.new
    yield "kernel_pcsda", given(KernelPCSDA(regularization=0.1)), ROWS.new
    yield "kernel_csda", KernelCSDA(n_components=2, random_state=0).fit(ROWS.X, TEXTS), ROWS.new
    yield "search", given(PCSDACV(linear(), **grid)), ROWS.new
    bank = VerifierBank(linear()).fit(ROWS.X, ROWS.labels, subclass_labels=ROWS.subclasses)
    yield "bank", bank, ROWS.new
    bank = VerifierBank(KernelPCSDA(gamma="scale", regularization=0.1))
    yield "kernel_bank", bank.fit(ROWS.X, TEXTS, subclass_labels=ROWS.subclasses), ROWS.new
    nystroem = NystroemMap(15, random_state=0)
    yield "nystroem", given(make_pipeline(StandardScaler(), nystroem, linear())), ROWS.new
    yield "fourier", given(make_pipeline(FourierMap(20, random_state=0), linear())), ROWS.new
    yield "stream", streamed(), ROWS.new
    yield "adaptive_s_norm", *normalised()


def main():
    if version("pcsda") != VERSION:
        sys.exit(f"this is pcsda {version('pcsda')}; the files are those of {VERSION}")
    FOLDER.mkdir(exist_ok=True)
    for name, model, new in models():
        path, packed = FOLDER / f"{name}.pcsda", FOLDER / f"{name}.pcsda.gz"
        if packed.exists():
            continue
        save(model, path, metrics={"eer": 0.125})
        packed.write_bytes(gzip.compress(path.read_bytes(), mtime=0))
        path.unlink()
        columns = json.dumps(list(getattr(new, "columns", ())))
        np.savez_compressed(
            FOLDER / f"{name}.npz", rows=np.asarray(new), columns=columns, **results(model, new)
        )
        print(f"{name:20s} {packed.stat().st_size / 1024:.0f} KB")


if __name__ == "__main__":
    main()
