"""Draw the picture of the README and of the first page: `make readme`."""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from sklearn.datasets import load_digits
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.model_selection import train_test_split

from pcsda import PCSDA
from pcsda.plots import ScoreDisplay

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
    ax.set(xticks=[], yticks=[], aspect="equal", title=f"{name}: {model.score(X, y):.0%} right")


def draw(output: Path = OUTPUT) -> None:
    figure = Figure(figsize=(12, 3.9), layout="constrained")
    panels = figure.subplots(1, 3, width_ratios=[1, 1, 1.35])
    X, y = surrounded()
    lda = LinearDiscriminantAnalysis(priors=[0.5, 0.5])
    draw_regions(panels[0], lda, X, y, "LDA, one axis")
    draw_regions(panels[1], PCSDA(5, priors="equal", random_state=0), X, y, "PCSDA, two axes")
    panels[0].legend(loc="lower left", fontsize=8)
    X, y = load_digits(return_X_y=True)
    X_train, X_test, y_train, y_test = train_test_split(X, y == 3, stratify=y, random_state=0)
    llr = PCSDA(9, random_state=0).fit(X_train, y_train).log_likelihood_ratio(X_test)
    ScoreDisplay.from_predictions(
        y_test, llr, threshold=0.0, score_name="log-likelihood ratio", ax=panels[2]
    )
    panels[2].set_title("Is this digit a three? Scores of test images", pad=10)
    output.parent.mkdir(exist_ok=True)
    figure.savefig(output, dpi=110, metadata={"Software": None})


if __name__ == "__main__":
    draw()
