"""One model in many threads: every answer comes from the model before or after an update."""

import copy
import multiprocessing
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from kernel_factories import labelled
from sklearn.base import clone

from pcsda import (
    CSDA,
    PCSDA,
    PCSDACV,
    KernelCSDA,
    KernelPCSDA,
    MixtureVerifier,
    MultilinearCSDA,
    VerifierBank,
    fit_blocks,
    load,
    save,
)
from pcsda.estimators import dual, training, verifier

X, Y, GROUPS = labelled(sizes=[40, 35, 38, 30])
NEW = labelled(sizes=[9, 8, 9, 8], seed=1)[0]


def begun(kind=PCSDA):
    return kind(random_state=0).partial_fit(X[::2], Y[::2], classes=[0, 1])


def bank(estimator=None):
    estimator = PCSDA(random_state=0) if estimator is None else estimator
    return VerifierBank(estimator).fit(X[GROUPS < 3], GROUPS[GROUPS < 3])


UPDATES = {
    "fit": (begun, lambda model: model.fit(X[1::2], Y[1::2])),
    "kernel fit": (
        lambda: KernelPCSDA(random_state=0).fit(X[::2], Y[::2]),
        lambda model: model.fit(X[1::3], Y[1::3]),
    ),
    "partial_fit": (begun, lambda model: model.partial_fit(X[1::2], Y[1::2])),
    "CSDA": (lambda: begun(CSDA), lambda model: model.partial_fit(X[1::2], Y[1::2])),
    "recalibrate": (begun, lambda model: model.recalibrate(NEW, np.arange(len(NEW)) % 2)),
}


@pytest.mark.each_value
@pytest.mark.parametrize("method", ["log_likelihood_ratio", "predict_proba", "rank"])
@pytest.mark.parametrize("way", UPDATES)
def test_an_update_during_a_call_does_not_show(monkeypatch, way, method):
    """Rows projected before the update were scored by the density after it."""
    make, update = UPDATES[way]
    model, before = make(), make()
    project = verifier.Verifier._project
    done = []

    def interrupted(self, rows):
        z = project(self, rows)
        if not done:
            done.append(True)
            thread = threading.Thread(target=update, args=(model,))
            thread.start()
            thread.join()
        return z

    monkeypatch.setattr(verifier.Verifier, "_project", interrupted)
    np.testing.assert_array_equal(getattr(model, method)(NEW), getattr(before, method)(NEW))
    after = make()
    update(after)
    assert done
    np.testing.assert_array_equal(model.log_likelihood_ratio(NEW), after.log_likelihood_ratio(NEW))


@pytest.mark.each_value
@pytest.mark.filterwarnings("ignore:at the threshold of .* labels reject")
@pytest.mark.parametrize("method", ["predict", "identify", "log_likelihood_ratio"])
@pytest.mark.parametrize("estimator", [PCSDA(random_state=0), KernelPCSDA(random_state=0)], ids=str)
@pytest.mark.more
def test_removing_a_label_during_a_call_does_not_show(monkeypatch, estimator, method):
    """An index was out of bounds, or labels were paired with the wrong scores."""
    model, expected = bank(estimator), getattr(bank(estimator), method)(NEW)
    scores, done = VerifierBank._scores, []

    def interrupted(self, *args, **kwargs):
        found = scores(self, *args, **kwargs)
        if not done:
            done.append(True)
            thread = threading.Thread(target=model.remove, args=(0,))
            thread.start()
            thread.join()
        return found

    monkeypatch.setattr(VerifierBank, "_scores", interrupted)
    np.testing.assert_array_equal(getattr(model, method)(NEW), expected)
    assert 0 not in model.models_


@pytest.mark.parametrize("way", ["pickle", "copy", "save"])
def test_copies_made_during_an_update_are_consistent(monkeypatch, tmp_path, way):
    model, expected = bank(), bank().log_likelihood_ratio(NEW)
    last_step, copies = VerifierBank._forget_threshold, []

    def copied():
        if way == "pickle":
            return pickle.loads(pickle.dumps(model))
        if way == "copy":
            return copy.deepcopy(model)
        save(model, tmp_path / "m")
        return load(tmp_path / "m")

    def interrupted(self, *args):
        with ThreadPoolExecutor(1) as pool:
            copies.append(pool.submit(copied).result())
        return last_step(self, *args)

    monkeypatch.setattr(VerifierBank, "_forget_threshold", interrupted)
    model.enroll(X[GROUPS == 3], 3)
    monkeypatch.undo()
    np.testing.assert_array_equal(copies[0].log_likelihood_ratio(NEW), expected)
    assert copies[0].classes_.tolist() == [0, 1, 2]
    assert model.classes_.tolist() == [0, 1, 2, 3]


def test_a_failed_update_leaves_the_model_unchanged(monkeypatch):
    model, expected = bank(), bank().log_likelihood_ratio(NEW)

    def fails(*_):
        raise MemoryError

    monkeypatch.setattr(VerifierBank, "_forget_threshold", fails)
    with pytest.raises(MemoryError):
        model.enroll(X[GROUPS == 3], 3)
    np.testing.assert_array_equal(model.log_likelihood_ratio(NEW), expected)
    monkeypatch.undo()
    assert 3 in model.enroll(X[GROUPS == 3], 3).models_


REFUSED = {
    "PCSDA": (PCSDA(random_state=0), {"n_subclasses": 5000}),
    "CSDA": (CSDA(2, random_state=0), {"n_components": 5000}),
    "KernelPCSDA": (KernelPCSDA(random_state=0), {"n_subclasses": 5000}),
    "KernelCSDA": (KernelCSDA(n_components=2, random_state=0), {"n_components": 5000}),
    "PCSDACV": (PCSDACV(PCSDA(random_state=0)), {"n_components": [5000]}),
    "MixtureVerifier": (MixtureVerifier(PCSDA(random_state=0), n_modes=2), {"n_modes": 5000}),
    "MultilinearCSDA": (MultilinearCSDA((1, 2), shape=(1, 5)), {"n_components": (1, 5000)}),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_a_refused_fit_leaves_the_model_unchanged(kind):
    """The classes of the refused labels stayed, and with kernels the refused rows."""
    template, impossible = REFUSED[kind]
    model = clone(template).fit(X, Y)
    model.set_params(**impossible)
    before, expected = dict(vars(model)), model.predict_proba(NEW)
    with pytest.raises(ValueError, match="5000"):
        model.fit(X[::-1] + 1, np.where(Y, "weld", "rest"))
    assert vars(model).keys() == before.keys()
    assert all(value is before[name] for name, value in vars(model).items())
    np.testing.assert_array_equal(model.predict_proba(NEW), expected)


def test_a_refused_fit_of_a_bank_leaves_its_labels():
    model = bank().set_params(estimator__n_components=500)
    expected = bank().predict(NEW)
    with pytest.raises(ValueError, match="n_components=500"):
        model.fit(X, np.array(["anna", "bert", "carl", "dora"])[GROUPS])
    np.testing.assert_array_equal(model.predict(NEW), expected)


@pytest.mark.parametrize("kind", [PCSDA, KernelPCSDA])
def test_an_interrupted_fit_leaves_the_model_unchanged(monkeypatch, kind):
    model = kind(random_state=0).fit(X, Y)
    expected = model.predict_proba(NEW)

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(training if kind is PCSDA else dual, "keep_training", interrupted)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X[::2] + 1, ~Y[::2].astype(bool))
    np.testing.assert_array_equal(model.predict_proba(NEW), expected)


@pytest.mark.parametrize("n_components", [4, 5000])
def test_a_refused_fit_in_blocks_leaves_the_model_unchanged(n_components):
    model = PCSDA(3, random_state=0).fit(X, Y)
    before = dict(vars(model))
    model.set_params(n_components=n_components)
    with pytest.raises(ValueError, match=f"n_components={n_components}"):
        fit_blocks(model, X[::2], y=Y[::2])
    del before["n_components"], model.n_components
    assert vars(model).keys() == before.keys()
    assert all(value is before[name] for name, value in vars(model).items())


def test_updates_wait_for_each_other():
    """Two labels enrolled at the same time are both present."""
    model = bank()
    rows = {number: X[GROUPS == 3] + number for number in range(3, 9)}
    with ThreadPoolExecutor(len(rows)) as pool:
        list(pool.map(lambda number: model.enroll(rows[number], number), rows))
    assert model.classes_.tolist() == list(range(9))
    assert len(model._rows.X) == np.sum(GROUPS < 3) + 6 * np.sum(GROUPS == 3)


def test_many_threads_score_pickle_and_save_one_model(tmp_path):
    model = pickle.loads(pickle.dumps(PCSDA(random_state=0).fit(X, Y)))
    expected = model.log_likelihood_ratio(NEW)

    def use(number):
        if number % 4 == 0:
            return pickle.loads(pickle.dumps(model)).log_likelihood_ratio(NEW)
        if number % 4 == 1:
            save(model, tmp_path / f"{number}")
            return load(tmp_path / f"{number}").log_likelihood_ratio(NEW)
        return model.log_likelihood_ratio(NEW)

    with ThreadPoolExecutor(8) as pool:
        for found in pool.map(use, range(40)):
            np.testing.assert_array_equal(found, expected)


def enrolled(model, results):
    results.put(model.enroll(X[GROUPS == 3], 3).classes_.tolist())


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # forking with threads is tested
@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="no fork")
def test_a_forked_child_does_not_wait_for_its_parents_update(monkeypatch):
    """The thread that would release the lock does not exist in the child."""
    model, context = bank(), multiprocessing.get_context("fork")
    last_step, results = VerifierBank._forget_threshold, context.Queue()

    def forks(self, *args):
        monkeypatch.undo()
        child = context.Process(target=enrolled, args=(model, results))
        child.start()
        assert results.get(timeout=60) == [0, 1, 2, 3]
        child.join()
        return last_step(self, *args)

    monkeypatch.setattr(VerifierBank, "_forget_threshold", forks)
    thread = threading.Thread(target=model.enroll, args=(X[GROUPS == 3], 3))
    thread.start()
    thread.join()
    assert 3 in model.models_
