"""The rotation of the axes when blocks of rows are left out: its definition."""

import numpy as np
import pytest
from factories import close
from scipy.linalg import sqrtm

from pcsda.core.alignment import turns_of_blocks


@pytest.mark.parametrize("spread", [1e-3, 0.03, 0.1, 1.0, [0.01, 1.0]], ids=str)
def test_turns_follow_their_definition_however_far_the_axes_move(spread):
    rng = np.random.default_rng(0)
    spread = np.resize(spread, 6)[:, None, None]  # in the last case, blocks move by turns
    apart = spread * rng.standard_normal((6, 5, 5))
    own = np.eye(5) + apart + apart.swapaxes(1, 2) + apart @ apart.swapaxes(1, 2)
    across = np.eye(5) + spread * rng.standard_normal((6, 5, 5))
    for turn, c, b in zip(turns_of_blocks(own, across), own, across, strict=True):
        inner = b.T @ np.linalg.solve(c, b)
        close(turn.T, np.linalg.inv(sqrtm(inner).real) @ b.T @ np.linalg.inv(c), 1e-9)
        close(turn.T @ c @ turn, np.eye(5), 1e-9)


def test_a_lost_direction_has_no_axis():
    own = np.stack([np.diag([1.0, 1.0, 0.0]), np.eye(3)])
    across = np.stack([np.diag([1.0, 1.0, 0.0]), np.diag([1.0, 1.0, 0.0])])
    for turn in turns_of_blocks(own, across):
        close(turn, np.diag([1.0, 1.0, 0.0]))
