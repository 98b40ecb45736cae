"""The numbers of version 0.1.0 on fixed problems: what is not meant to change does not change.

`golden/problems.py` has the problems, and the table of those that have changed on purpose;
`golden/make.py` writes the numbers.
"""

import numpy as np
import pytest
from golden.make import read
from golden.problems import CHANGED_ON_PURPOSE, PROBLEMS

GOLDEN = read()
NAMES = [problem.name for problem in PROBLEMS]


@pytest.mark.parametrize("problem", PROBLEMS, ids=NAMES)
def test_a_problem_keeps_the_numbers_of_the_first_version(problem):
    expected = dict(GOLDEN[problem.name])
    rows = problem.make()
    np.testing.assert_allclose(
        rows.fingerprint(), expected.pop("fingerprint"), rtol=1e-6 if single(problem) else 1e-12
    )
    found = problem.run(rows)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(
            found[name],
            value,
            rtol=problem.tolerance,
            atol=problem.tolerance * np.abs(value).max(),
            err_msg=f"{name} of {problem.name!r}",
        )


def single(problem):
    return problem.rows.get("dtype") is np.float32


def test_every_problem_has_numbers_and_every_number_a_problem():
    assert set(GOLDEN) == set(NAMES)
    for name, arrays in GOLDEN.items():
        for array, value in arrays.items():
            assert np.isfinite(value).all(), (name, array)


def test_every_intended_change_is_known_and_has_a_reason():
    assert {*CHANGED_ON_PURPOSE} <= {*NAMES}
    assert all(len(reason) > 20 for reason in CHANGED_ON_PURPOSE.values())
