"""The notebooks run from top to bottom."""

from pathlib import Path

import pytest

nbclient = pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")
pytest.importorskip("ipykernel")

BOOKS = sorted((Path(__file__).parents[2] / "examples" / "notebooks").glob("*.ipynb"))


def test_they_are_there() -> None:
    assert len(BOOKS) == 4


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("book", BOOKS, ids=lambda book: book.stem)
def test_a_notebook_runs(book: Path) -> None:
    notebook = nbformat.read(book, as_version=4)
    nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
