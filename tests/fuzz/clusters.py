"""Dask workers that are killed during a pass."""

import os
import signal
import threading
import time
import warnings
from functools import cache

import dask
import dask.array as da
import numpy as np
from block_factories import make_data
from distributed import Client, LocalCluster

from pcsda import CSDA, PCSDA, distributed

from .attacks import LONG_PATIENCE, BreachError, attack, refusing

STEP = 20


@cache
def client():
    """Return a client with two single-threaded workers."""
    dask.config.set({"distributed.admin.log-format": "", "logging.distributed": "critical"})
    local = {"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0"}
    cluster = LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, silence_logs=50, **local
    )
    return Client(cluster, set_as_default=False)


def stop():
    """Stop the cluster, if any."""
    if client.cache_info().currsize:
        client().close()
        client().cluster.close()
        client.cache_clear()


def noting(X, folder, seconds):
    """Return blocks that record which worker reads them, and take a while."""

    def read(start):
        with open(os.path.join(folder, f"{time.monotonic_ns()}.{os.getpid()}"), "w"):
            time.sleep(seconds)
        return X[start : start + STEP]

    lazy = dask.delayed(read, pure=False)
    shape = (STEP, X.shape[1])
    return da.concatenate(
        [da.from_delayed(lazy(start), shape, float) for start in range(0, len(X), STEP)]
    )


def killing(folder, after):
    """Kill the worker that reads this block, counted over all passes."""

    def kill():
        deadline = time.monotonic() + 60
        while len(notes := sorted(os.listdir(folder))) <= after:
            if time.monotonic() > deadline:
                return
            time.sleep(0.01)
        os.kill(int(notes[-1].partition(".")[2]), signal.SIGKILL)

    thread = threading.Thread(target=kill, daemon=True)
    thread.start()
    return thread


@attack("killed Dask workers")
def killed_workers(seed, folder):
    rng = np.random.default_rng(seed)
    X, y, _, _ = make_data()
    model = (PCSDA(n_subclasses=3, random_state=0), CSDA(random_state=0))[int(rng.integers(2))]
    n_blocks = len(X) // STEP
    killer = killing(folder, int(rng.integers(2 * n_blocks - 2)))  # both read the rows twice
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rows = noting(X, folder, 0.02)
        found = refusing(
            lambda: distributed.fit(model, rows, y, client=client()), patience=LONG_PATIENCE
        )
    killer.join()
    scores = found.log_likelihood_ratio(X)
    expected = type(model)(**model.get_params()).fit(X, y).log_likelihood_ratio(X)
    if np.abs(scores - expected).max() > 1e-8 * np.abs(expected).max():
        raise BreachError("the fit differs from that in memory")
    return "agrees"
