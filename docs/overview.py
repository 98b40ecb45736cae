"""Draw the picture of the README and of the first page: `make readme`."""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from pcsda import PCSDA

OUTPUT = Path(__file__).parent / "_static" / "overview.png"


def surrounded() -> tuple[np.ndarray, np.ndarray]:
    """A class in the middle of five others, as in the toy figure of the paper."""
    rng = np.random.default_rng(0)
    angles = 2 * np.pi * np.arange(5) / 5
    centres = 4.5 * np.column_stack([np.cos(angles), np.sin(angles)])
    rest = np.concatenate([rng.normal(centre, 0.8, size=(60, 2)) for centre in centres])
    X = np.concatenate([rng.normal(0, 0.8, size=(80, 2)), rest])
    return X, np.repeat([1, 0], [80, 300])


def draw_regions(ax, model, X, y, name: str) -> None:
    """Where a model sees the class of interest, over the plane."""
    grid = np.linspace(-7, 7, 300)
    points = np.stack(np.meshgrid(grid, grid), axis=-1).reshape(-1, 2)
    accepted = (model.fit(X, y).decision_function(points) >= 0).reshape(300, 300)
    ax.contourf(grid, grid, accepted, levels=[0.5, 1.5], colors=["#0072B233"])
    ax.scatter(*X[y == 0].T, s=7, color="#E69F00", label="the rest")
    ax.scatter(*X[y == 1].T, s=14, color="#111111", marker="^", label="class of interest")
    ax.set(xticks=[], yticks=[], aspect="equal")
    ax.set_title(f"{name}: {model.score(X, y):.1%} right", fontsize=15)


def draw(output: Path = OUTPUT) -> None:
    figure = Figure(figsize=(9, 4.6), layout="constrained")
    panels = figure.subplots(1, 2)
    X, y = surrounded()
    lda = LinearDiscriminantAnalysis(priors=[0.5, 0.5])
    draw_regions(panels[0], lda, X, y, "LDA, one axis")
    draw_regions(panels[1], PCSDA(5, priors="equal", random_state=0), X, y, "PCSDA, two axes")
    panels[0].legend(loc="lower left")
    output.parent.mkdir(exist_ok=True)
    figure.savefig(output, dpi=130, metadata={"Software": None})


if __name__ == "__main__":
    draw()
