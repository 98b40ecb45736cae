"""Dask equals the fit in memory, on a real cluster too, despite dying workers and bad blocks."""

import os
import signal
import sys
import threading
import time
from concurrent.futures import Future
from functools import partial

import dask
import dask.array as da
import dask.dataframe as dd
import joblib
import numpy as np
import pandas as pd
import pytest
from block_factories import assert_same_model, in_blocks, make_data
from distributed import Client, LocalCluster
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_info

import pcsda
from pcsda import (
    CSDA,
    PCSDA,
    PCSDACV,
    FourierMap,
    KernelPCSDA,
    MixtureVerifier,
    VerifierBank,
    distributed,
    fit_blocks,
)

N_ROWS = len(make_data()[0])
NAMES = [f"f{number}" for number in range(5)]


@pytest.fixture(scope="module")
def processes():
    """Return a client with two single-threaded workers, which a test names or makes active."""
    local = {"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0"}  # None would open port 8787
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, processes=True, **local) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client


def chunked(chunks, *arrays):
    return [da.from_array(array, chunks=(chunks, *array.shape[1:])) for array in arrays]


@pytest.mark.more  # starts processes
@pytest.mark.parametrize("per_worker", [1, 2, 5])
def test_a_fit_on_two_processes_equals_the_fit_in_memory(processes, per_worker):
    X, y, groups, weights = make_data(weighted=True, heavy=True)
    size = -(-N_ROWS // (2 * per_worker))
    parts = chunked(size, X, y, groups, weights)
    found = distributed.fit(
        PCSDA(), *parts[:2], subclass_labels=parts[2], sample_weight=parts[3], client=processes
    )
    expected = PCSDA().fit(X, y, subclass_labels=groups, sample_weight=weights)
    assert parts[0].numblocks == (2 * per_worker, 1)
    assert_same_model(found, expected, X)


@pytest.mark.more  # starts processes
@pytest.mark.parametrize("own", [False, True])
def test_k_means_on_two_processes_equals_k_means_in_memory(processes, own):
    X, y, _, _ = make_data(3)
    model = PCSDA(n_subclasses=5, random_state=0)
    if own:
        model = PCSDA(subclasses=KMeans(5, init=X[~y][:5], n_init=1, tol=0), random_state=0)
    found = distributed.fit(clone(model), *chunked(60, X, y), client=processes)
    assert_same_model(found, model.fit(X, y), X)


@given(cuts=st.sets(st.integers(1, N_ROWS - 1), max_size=11), columns=st.integers(1, 5))
@pytest.mark.more
def test_any_chunks_equal_the_fit_in_memory(cuts, columns):
    X, y, groups, _ = make_data()
    sizes = tuple(np.diff([0, *sorted(cuts), N_ROWS]).tolist())
    lazy = da.from_array(X, chunks=(sizes, columns))
    found = distributed.fit(PCSDA(), lazy, da.from_array(y, chunks=50), subclass_labels=groups)
    assert_same_model(found, PCSDA().fit(X, y, subclass_labels=groups), X)


@pytest.mark.parametrize(
    "model",
    [
        CSDA(random_state=0),
        PCSDA(covariance="resubstitution", random_state=0),
        PCSDA(n_subclasses=3, random_state=0),
        PCSDA(n_subclasses=3, random_state=0, calibration_rows=25),
        make_pipeline(FourierMap(12, random_state=0), PCSDA(n_subclasses=3, random_state=0)),
    ],
)
def test_dask_and_blocks_give_the_same_model(model):
    X, y, _, _ = make_data()
    here = fit_blocks(model, in_blocks(range(40, 220, 40), X, y))
    final = here[-1] if hasattr(here, "steps") else here
    expected = (final.components_, final.density_.base.negative, final.calibration_)
    found = distributed.fit(model, *chunked(40, X, y))
    final = found[-1] if hasattr(found, "steps") else found
    np.testing.assert_allclose(final.components_, expected[0], rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(final.density_.base.negative, expected[1], rtol=1e-8, atol=1e-14)
    assert final.calibration_.slope == pytest.approx(expected[2].slope, rel=1e-8)


def frame_of(X, y, groups):
    frame = pd.DataFrame(X, columns=NAMES)
    return frame.assign(label=np.where(y, "yes", "no"), group=groups)


def test_data_frame_columns_are_selected_by_name():
    X, y, groups, _ = make_data()
    frame = dd.from_pandas(frame_of(X, y, groups), npartitions=4)
    found = distributed.fit(PCSDA(), frame, "label", subclass_labels="group")
    assert found.feature_names_in_.tolist() == NAMES
    scores = distributed.predict(found, frame)  # which selects its columns and ignores the others
    expected = PCSDA().fit(X, np.where(y, "yes", "no"), subclass_labels=groups)
    np.testing.assert_allclose(
        scores.compute(scheduler="sync"), expected.log_likelihood_ratio(X), rtol=1e-8
    )
    apart = distributed.fit(PCSDA(), frame[NAMES], frame["label"], subclass_labels=frame["group"])
    np.testing.assert_allclose(apart.components_, expected.components_, rtol=1e-8)
    few = distributed.fit(PCSDA(n_subclasses=1), frame, "label", columns=NAMES[:2])
    assert few.feature_names_in_.tolist() == NAMES[:2]
    with pytest.raises(
        ValueError, match=r"^X has no column 'lable', did you mean 'label'\? It has f0"
    ):
        distributed.fit(PCSDA(), frame, "lable")
    with pytest.raises(
        ValueError, match=r"^y must be the name of a column of X, or have its 4 par"
    ):
        distributed.fit(PCSDA(), frame[NAMES], y)


@pytest.mark.more  # starts processes
def test_workers_read_files_themselves(processes, tmp_path):
    X, y, groups, _ = make_data()
    for number, rows in enumerate(np.array_split(np.arange(N_ROWS), 5)):
        np.savez(tmp_path / f"{number}.npz", X=X[rows], y=y[rows], subclass_labels=groups[rows])
    expected = PCSDA().fit(X, y, subclass_labels=groups)
    assert_same_model(distributed.fit(PCSDA(), tmp_path, client=processes), expected, X)
    files = sorted(tmp_path.iterdir())[::-1]
    assert_same_model(distributed.fit(PCSDA(), files, client=processes), expected, X)
    with pytest.raises(
        TypeError, match=r"^X is a function, which workers cannot read from; pass a"
    ):
        distributed.fit(PCSDA(), in_blocks([9], X, y), client=processes)


@pytest.mark.each_value
@pytest.mark.parametrize("method", pcsda.blocks.METHODS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_predictions_stay_lazy(method, dtype):
    X, y, groups, _ = make_data()
    X = X.astype(dtype)
    model = PCSDA().fit(X, np.where(y, "yes", "certainly not"), subclass_labels=groups)
    lazy = distributed.predict(model, da.from_array(X, chunks=(50, 2)), method)
    expected = getattr(model, method)(X)
    assert isinstance(lazy, da.Array)
    assert lazy.shape == expected.shape
    assert lazy.dtype == expected.dtype
    assert lazy.chunks[0] == (50, 50, 50, 50, 20)
    found = lazy.compute(scheduler="sync")
    if method == "predict":
        np.testing.assert_array_equal(found, expected)
    else:
        np.testing.assert_allclose(found, expected, rtol=1e-5 if dtype == np.float32 else 1e-12)


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("inside", [VerifierBank(), MixtureVerifier(n_modes=2)])
def test_banks_and_mixtures_predict_lazily(inside, scaled):
    X, y, groups, _ = make_data()
    target = np.where(y, 9, groups) if isinstance(inside, VerifierBank) else y
    inside = clone(inside)
    model = (make_pipeline(StandardScaler(), inside) if scaled else inside).fit(X, target)
    rows = da.from_array(X, chunks=(50, 2))
    for method in pcsda.blocks.METHODS:
        if not hasattr(inside, method):
            with pytest.raises(ValueError, match=f"^method='{method}': {type(inside).__name__} ha"):
                distributed.predict(model, rows, method)
            continue
        lazy = distributed.predict(model, rows, method)
        found = lazy.compute(scheduler="sync")
        expected = getattr(inside, method)(model[:-1].transform(X) if scaled else X)
        if method == "predict":
            np.testing.assert_array_equal(found, expected)
        else:
            np.testing.assert_allclose(found, expected, rtol=1e-9)
        assert (lazy.shape, lazy.dtype) == (found.shape, found.dtype)


def test_prediction_refuses_arrays_in_memory_and_unknown_methods():
    X, y, groups, _ = make_data()
    model = PCSDA().fit(X, y, subclass_labels=groups)
    with pytest.raises(
        TypeError, match=r"^X is a ndarray; predict takes a Dask array or DataFrame"
    ):
        distributed.predict(model, X)
    with pytest.raises(ValueError, match=r"^method='fly' must be one of"):
        distributed.predict(model, da.from_array(X), "fly")


@pytest.mark.more  # starts processes
def test_without_an_active_client_threads_are_used(processes, tmp_path):
    X, y, groups, _ = make_data()

    def signed(rows, folder=str(tmp_path)):
        with open(os.path.join(folder, str(os.getpid())), "w"):
            return rows

    def places():
        found = {int(name) for name in os.listdir(tmp_path)}
        for name in found:
            (tmp_path / str(name)).unlink()
        return found

    rows = da.from_array(X, chunks=(60, 5)).map_blocks(signed, dtype=float, meta=X[:0])
    fit = partial(distributed.fit, PCSDA(), rows, y, subclass_labels=groups)
    expected = PCSDA().fit(X, y, subclass_labels=groups)
    before = threadpool_info()
    assert_same_model(fit(), expected, X)
    assert places() == {os.getpid()}
    assert threadpool_info() == before
    with processes.as_current():
        assert_same_model(fit(), expected, X)
    assert places() <= set(processes.run(os.getpid).values())


@pytest.mark.more  # starts processes
def test_a_user_error_names_the_block(processes):
    X, y, groups, _ = make_data()

    def torn(block, block_info=None):
        if block_info[0]["chunk-location"][0] == 2:
            raise LookupError("the tape is torn")
        return block

    lazy = da.from_array(X, chunks=(50, 5)).map_blocks(torn, dtype=float)
    for client in (None, processes):
        with pytest.raises(LookupError, match="the tape is torn") as caught:
            distributed.fit(PCSDA(), lazy, y, subclass_labels=groups, client=client)
        assert "in block 2 (chunk 2 of X, 50 rows)" in caught.value.__notes__


def replaced(change, chunks=50):
    """Return rows as a Dask array with a changed third chunk."""
    X, *_ = make_data()
    parts = [X[start : start + chunks] for start in range(0, N_ROWS, chunks)]
    parts[2] = change(parts[2].copy())
    lazy = [dask.delayed(part) for part in parts]
    arrays = [da.from_delayed(part, (chunks, 5), float) for part in lazy[:-1]]
    return da.concatenate([*arrays, da.from_delayed(lazy[-1], (N_ROWS % chunks, 5), float)])


def with_nan(rows):
    rows[7, 1] = np.nan
    return rows


HERE = r"^block 2 \(chunk 2 of X, 50 rows\)"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (with_nan, f"{HERE}: X has NaN or infinity in 1 row, the first is row 7; leave those row"),
        (
            lambda rows: rows[:, :4],
            rf"{HERE} has 4 columns but block 0 \(chunk 0 of X, 50 rows\) h",
        ),
        (
            lambda rows: rows[:0],
            rf"{HERE}: the block has no rows; leave it out, or divide the da",
        ),
        (lambda rows: rows[:30], f"{HERE}: X has 30 rows but y has 50 labels"),
    ],
)
def test_errors_in_a_block_name_the_block(change, message):
    _, y, groups, _ = make_data()
    with pytest.raises(ValueError, match=message):
        distributed.fit(PCSDA(), replaced(change), y, subclass_labels=groups)


def test_an_empty_partition_is_named():
    rows = frame_of(*make_data()[:3]).assign(row=np.arange(N_ROWS))
    frame = dd.from_pandas(rows, npartitions=4)
    gap = frame[(frame["row"] < 50) | (frame["row"] > 120)].drop(columns="row")
    with pytest.raises(
        ValueError, match=r"^block 1 \(partition 1 of X\): the block has no rows; leave it out, or "
    ):
        distributed.fit(PCSDA(), gap, "label", subclass_labels="group")


def test_chunks_may_contain_a_single_class():
    X, y, groups, _ = make_data()
    order = np.argsort(y, kind="stable")
    found = distributed.fit(
        PCSDA(), *chunked(60, X[order], y[order]), subclass_labels=groups[order]
    )
    assert_same_model(found, PCSDA().fit(X, y, subclass_labels=groups), X)
    zeros = np.zeros(N_ROWS, dtype=int)
    with pytest.raises(ValueError, match=r"y has one class only, \[0\]"):
        distributed.fit(PCSDA(), *chunked(60, X, zeros))


def test_chunks_may_have_unknown_sizes():
    X, y, groups, _ = make_data()
    lazy, labels, subclasses = chunked(60, X, y, groups)
    kept = lazy[:, 0] < 1.0
    rows, labels, subclasses = lazy[kept], labels[kept], subclasses[kept]
    kept = kept.compute(scheduler="sync")
    found = distributed.fit(PCSDA(), rows, labels, subclass_labels=subclasses)
    assert_same_model(found, PCSDA().fit(X[kept], y[kept], subclass_labels=groups[kept]), X)
    with pytest.raises(
        ValueError,
        match=r"^chunk 0 of X has an unknown number of rows, so y, an array in memory, cannot "
        r"be split to match; call X.compute_chunk_sizes\(\) first$",
    ):
        distributed.fit(PCSDA(), rows, y[kept])
    with pytest.raises(
        ValueError,
        match=r"^chunk 0 has an unknown number of rows, and X has 4 chunks but y has 2; call "
        r"compute_chunk_sizes\(\) on both first$",
    ):
        distributed.fit(PCSDA(), rows, da.from_array(y, chunks=110))


def test_labels_may_be_a_column_or_a_series(tmp_path):
    X, y, groups, _ = make_data()
    expected = PCSDA().fit(X, y, subclass_labels=groups)
    lazy = da.from_array(X, chunks=(55, 5))
    column = da.from_array(y[:, None], chunks=(55, 1))
    series = dd.from_pandas(pd.Series(groups), npartitions=4)
    found = distributed.fit(PCSDA(), lazy, column, subclass_labels=series)
    assert_same_model(found, expected, X)
    (tmp_path / "header.csv").write_text("x,y\n")
    with pytest.raises(ValueError, match=r"^there are no blocks; the data are empty$"):
        distributed.fit(PCSDA(), tmp_path / "header.csv", "y")


def test_mismatched_shapes_are_refused():
    X, y, *_ = make_data()
    fit = partial(distributed.fit, PCSDA())
    lazy = da.from_array(X, chunks=(60, 5))
    with pytest.raises(ValueError, match=r"^y has shape \(9,\) but X has 220 rows$"):
        fit(lazy, y[:9])
    with pytest.raises(ValueError, match=r"^y has 9 entries but X has 220 rows$"):
        fit(lazy, da.from_array(y[:9]))
    with pytest.raises(ValueError, match=r"^y has 2 dimensions and must have 1$"):
        fit(lazy, da.from_array(np.column_stack([y, y])))
    with pytest.raises(ValueError, match=r"^X has 1 dimensions and must have 2, rows and columns$"):
        fit(lazy[:, 0], y)
    with pytest.raises(ValueError, match=r"^block 0 .*: the block has no labels; give y, or let"):
        fit(lazy)
    with pytest.raises(TypeError, match=r"^KernelPCSDA cannot be fitted in blocks"):
        distributed.fit(KernelPCSDA(), lazy, y)


@pytest.mark.parametrize(
    "call",
    [
        lambda X, y: PCSDA().fit(X, y),
        lambda X, y: CSDA().fit(X, y),
        lambda X, y: PCSDA().partial_fit(X, y),
        lambda X, y: KernelPCSDA().fit(X, y),
        lambda X, y: VerifierBank().fit(X, y),
        lambda X, y: PCSDACV().fit(X, y),
        lambda X, y: FourierMap().fit(X),
        lambda X, y: PCSDA().fit(X.compute(scheduler="sync"), y),
    ],
)
def test_fit_points_dask_users_to_the_distributed_fit(call):
    X, y, *_ = make_data()
    with pytest.raises(
        TypeError,
        match=r"^a Dask Array would be loaded into memory here; use pcsda.distributed.fit\(model, "
        r"X, y\), or pcsda.fit_blocks for data larger than memory. If it fits, pass its .compute\(",
    ):
        call(*chunked(60, X, y))


def test_prediction_points_dask_users_to_the_distributed_one():
    X, y, *_ = make_data()
    model = PCSDA(n_subclasses=2, random_state=0).fit(X, y)
    with pytest.raises(
        TypeError, match=r"use pcsda.distributed.predict\(model, X\), which stays l"
    ):
        model.predict(da.from_array(X))


@pytest.mark.more  # starts processes
def test_bank_and_selection_run_on_the_cluster(processes):
    X, _, groups, _ = make_data()
    bank = VerifierBank(PCSDA(n_subclasses=3, random_state=0)).fit(X, groups)
    search = PCSDACV(PCSDA(random_state=0), n_subclasses=[1, 2], regularization=[0.01, 0.1])
    search.fit(X, groups == 0)
    with processes.as_current(), joblib.parallel_config("dask"):
        there = VerifierBank(PCSDA(n_subclasses=3, random_state=0), n_jobs=2).fit(X, groups)
        found = PCSDACV(
            PCSDA(random_state=0), n_subclasses=[1, 2], regularization=[0.01, 0.1], n_jobs=2
        ).fit(X, groups == 0)
    np.testing.assert_allclose(
        there.log_likelihood_ratio(X), bank.log_likelihood_ratio(X), rtol=1e-8
    )
    assert found.best_params_ == search.best_params_
    np.testing.assert_allclose(
        found.cv_results_["mean_test_score"], search.cv_results_["mean_test_score"], rtol=1e-8
    )


def test_a_missing_dask_is_named_with_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "dask", None)
    X, y, *_ = make_data()
    with pytest.raises(
        ImportError, match=r'needs dask; install it with pip install "pcsda\[dask\]"'
    ):
        distributed.fit(PCSDA(), X, y)


@pytest.mark.more  # `make fuzz` kills a worker in every round
@pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL")
def test_a_killed_worker_costs_only_time(processes, tmp_path):
    X, y, groups, _ = make_data()
    edges = list(range(0, N_ROWS + 1, 20))

    def slow(start, folder=str(tmp_path)):
        with open(os.path.join(folder, f"{time.monotonic_ns()}.{os.getpid()}"), "w"):
            time.sleep(0.15)
        return X[start : start + 20]

    rows = [da.from_delayed(dask.delayed(slow)(start), (20, 5), float) for start in edges[:-1]]
    killed = []

    def kill():
        while len(started := sorted(os.listdir(tmp_path))) < 4:  # the pass has begun
            time.sleep(0.02)
        pid = int(started[-1].partition(".")[2])
        os.kill(pid, signal.SIGKILL)
        killed.append((pid, len(started)))

    before = set(processes.run(os.getpid).values())
    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    found = distributed.fit(
        PCSDA(), da.concatenate(rows), y, subclass_labels=groups, client=processes
    )
    killer.join(timeout=30)
    assert killed[0][0] in before
    assert killed[0][1] < len(rows)  # blocks were still to come
    pids = {int(name.partition(".")[2]) for name in os.listdir(tmp_path)}
    assert pids - {killed[0][0]}  # others have gone on
    assert_same_model(found, PCSDA().fit(X, y, subclass_labels=groups), X)


class Restarted:
    """A client whose scheduler was restarted: Dask cancels all pending work."""

    def compute(self, wanted):
        futures = [Future() for _ in wanted]
        for future in futures:
            future.cancel()
        return futures

    def cancel(self, futures):
        assert all(future.cancelled() for future in futures)


def test_a_lost_scheduler_is_named_with_a_remedy():
    X, y, groups, _ = make_data()
    message = (
        "the cluster lost this fit, because its scheduler was restarted or closed; call fit again "
        "with a client that is connected, or fit_blocks with checkpoint=, which resumes"
    )
    rows = da.from_array(X, chunks=(50, 5))
    with pytest.raises(RuntimeError, match=message):
        distributed.fit(PCSDA(), rows, y, subclass_labels=groups, client=Restarted())
