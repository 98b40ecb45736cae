"""What is tried: an attack takes a seed and a folder, and says how it went.

It returns "agrees" where the answer is the one that it should be, "refuses" where a message says
what is wrong, and raises `BreachError` otherwise.
"""

import os
import pickle
import signal
import subprocess
import sys
import time
import warnings
from functools import cache
from pathlib import Path

import numpy as np
import test_fuzz_routes
from block_factories import in_blocks, make_data
from kernel_factories import labelled
from sklearn.base import BaseEstimator
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from pcsda import PCSDA, KernelPCSDA, VerifierBank, fit_blocks, load, save

from . import mutations

ATTACKS = {}
# A reader that takes longer hangs; they take a fraction of a second. Processes may wait.
PATIENCE, LONG_PATIENCE = 60.0, 600.0
CUTS = range(20, 220, 20)


class BreachError(Exception):
    """The library gave a wrong answer, or crashed on input that it should refuse."""


def attack(name, often=1):
    """Register an attack; `often` is how many are tried per round."""

    def enter(function):
        ATTACKS[name] = (function, often)
        return function

    return enter


def refusing(action, *kinds, patience=None):
    """Return an action's result, or None if it refuses with a message."""
    begin = time.monotonic()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = action()
    except kinds as error:
        if not str(error).strip():
            raise BreachError(f"{type(error).__name__} without a word") from error
        found = None
    except Exception as error:
        raise BreachError(f"{type(error).__name__}: {error!s:.200}") from error
    if time.monotonic() - begin > (PATIENCE if patience is None else patience):
        raise BreachError(f"took {time.monotonic() - begin:.0f} s")
    return found


@attack("routes x degeneracies", often=10)
def routes(seed, folder):
    broken = test_fuzz_routes.check(seed)
    if broken:
        raise BreachError("; ".join(broken))
    return "agrees"


@cache
def models():
    X, y, groups = labelled(sizes=[30, 25, 28, 20])
    return (
        PCSDA(3, random_state=0).fit(X, y),
        KernelPCSDA(n_subclasses=2, random_state=0).fit(X, y),
        VerifierBank(PCSDA(random_state=0)).fit(X, groups),
        make_pipeline(StandardScaler(), PCSDA(random_state=0)).fit(X, y),
        PCSDA(n_subclasses=2, random_state=0).partial_fit(X, y, classes=[0, 1]),
    )


@cache
def file_of(number):
    path = Path(os.environ["PCSDA_FUZZ_FOLDER"]) / f"model{number}"
    save(models()[number], path)
    return path.read_bytes()


@attack("mutated model files", often=20)
def model_files(seed, folder):
    rng = np.random.default_rng(seed)
    path = folder / "m"
    path.write_bytes(mutations.altered_model(file_of(seed % len(models())), rng))
    before = set(os.listdir())
    model = refusing(lambda: load(path), ValueError)
    if set(os.listdir()) != before:
        raise BreachError("a file appeared")
    if model is None:
        return "refuses"
    if not isinstance(model, BaseEstimator):
        raise BreachError(f"a {type(model).__name__} came back")
    return "agrees"


@cache
def stopped():
    """Return blocks, the checkpoint of a stopped fit, and the model of an uninterrupted one."""
    X, y, groups, _ = make_data()
    path = Path(os.environ["PCSDA_FUZZ_FOLDER"]) / "state.npz"
    blocks = in_blocks(CUTS, X, y, groups)

    def stops():
        for number, block in enumerate(blocks()):
            if path.exists() and number == 7:
                raise KeyboardInterrupt
            yield block

    try:
        fit_blocks(PCSDA(random_state=0), stops, checkpoint=path, checkpoint_seconds=0)
    except KeyboardInterrupt:
        return blocks, path.read_bytes(), fit_blocks(PCSDA(random_state=0), blocks), X
    raise AssertionError("the fit was not stopped")


@attack("mutated checkpoints", often=10)
def checkpoints(seed, folder):
    blocks, content, _, X = stopped()
    path = folder / "state.npz"
    path.write_bytes(mutations.altered_checkpoint(content, np.random.default_rng(seed)))

    def resume():
        model = PCSDA(random_state=0)
        return fit_blocks(model, blocks, checkpoint=path).log_likelihood_ratio(X)

    scores = refusing(resume, ValueError)
    if scores is not None and not np.isfinite(scores).all():
        raise BreachError("scores are not finite")
    return "refuses" if scores is None else "agrees"


@attack("mutated data files", often=10)
def data_files(seed, folder):
    rng = np.random.default_rng(seed)
    X, y, _, _ = make_data()
    kind = ("npz", "npz", "npy", "csv", "parquet")[int(rng.integers(5))]
    path, companions = folder / f"rows.{kind}", {"y": y}
    if kind == "npz":
        (np.savez, np.savez_compressed)[int(rng.integers(2))](path, X=X, y=y)
        companions = {}
    elif kind == "npy":
        np.save(path, X)
    else:
        import pandas as pd

        table = pd.DataFrame(X, columns=list("abcde")).assign(y=y)
        getattr(table, f"to_{kind}")(path, index=False)
        companions = {"y": "y"}
    path.write_bytes(mutations.spoiled(path.read_bytes(), rng))
    model = PCSDA(random_state=0)
    # Errors of the file system are passed on.
    fitted = refusing(lambda: fit_blocks(model, path, **companions), ValueError, OSError)
    if fitted is not None and not np.isfinite(fitted.components_).all():
        raise BreachError("components are not finite")
    return "refuses" if fitted is None else "agrees"


SAVES = """
import pickle, sys
from pcsda import save
with open(sys.argv[1], "rb") as file:
    models = pickle.load(file)
while True:
    for model in models:
        save(model, sys.argv[2])
"""
RESUMES = """
import sys, time
from block_factories import in_blocks, make_data
from pcsda import PCSDA, fit_blocks
X, y, groups, _ = make_data()
def blocks():
    for block in in_blocks(range(20, 220, 20), X, y)():
        time.sleep(0.01)
        yield block
while True:
    model = PCSDA(n_subclasses=3, random_state=0)
    fit_blocks(model, blocks, checkpoint=sys.argv[1], checkpoint_seconds=0)
"""


def killed(script, arguments, appears, rng):
    """Run a script and kill it some time after a file has appeared."""
    # The folder of block_factories, for the script.
    tests = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    process = subprocess.Popen(
        [sys.executable, "-c", script, *map(str, arguments)], env=os.environ | {"PYTHONPATH": tests}
    )
    try:
        deadline = time.monotonic() + LONG_PATIENCE
        while not appears.exists():
            if process.poll() is not None or time.monotonic() > deadline:
                raise BreachError(f"the process ended with {process.poll()} before it was killed")
            time.sleep(0.005)
        time.sleep(float(rng.uniform(0, 0.4)))
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


def leftovers(folder):
    return [name for name in os.listdir(folder) if name.endswith(".part")]


@attack("killed saves")
def killed_saves(seed, folder):
    pair, path = models()[:2], folder / "m"
    (folder / "models").write_bytes(pickle.dumps(pair))
    killed(SAVES, [folder / "models", path], path, np.random.default_rng(seed))
    X = labelled(sizes=[9, 8, 9, 8], seed=1)[0]
    found = refusing(lambda: load(path).log_likelihood_ratio(X))
    if not any(np.array_equal(found, model.log_likelihood_ratio(X)) for model in pair):
        raise BreachError("the file holds neither model")
    save(pair[0], path)
    if leftovers(folder):
        raise BreachError(f"{leftovers(folder)} stay")
    return "agrees"


@attack("killed fits, resumed")
def killed_fits(seed, folder):
    path = folder / "state.npz"
    killed(RESUMES, [path], path, np.random.default_rng(seed))
    X, y, _, _ = make_data()
    blocks = in_blocks(CUTS, X, y)
    model, expected = (PCSDA(n_subclasses=3, random_state=0) for _ in range(2))
    refusing(lambda: fit_blocks(model, blocks, checkpoint=path, checkpoint_seconds=0))
    fit_blocks(expected, blocks)
    if not np.array_equal(model.log_likelihood_ratio(X), expected.log_likelihood_ratio(X)):
        raise BreachError("the fit that was resumed differs")
    if leftovers(folder) or path.exists():
        raise BreachError(f"{os.listdir(folder)} stay")
    return "agrees"
