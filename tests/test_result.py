"""Results: representation, plots, files."""

from __future__ import annotations

import json

import numpy as np
import pytest

import lowtucker as lt


def make(trials=None, **options):
    X_true = lt.random_tucker((5, 5, 6), (1, 2, 2), seed=0, trials=trials)
    A = lt.gaussian((5, 5, 6), 100, seed=1, trials=trials)
    return lt.recover(A, A.forward(X_true), (1, 2, 2), X_true=X_true, **options)


@pytest.fixture(scope="module")
def result():
    return make()


def test_repr_is_a_readable_summary(result):
    text = repr(result)
    assert text.startswith("Result: recovered\n")
    assert "shape (5, 5, 6), rank (1, 2, 2)" in text
    assert "100 measurements, 4.5 per degree of freedom" in text
    assert f"{result.epochs} epochs" in text
    assert "status    CONVERGED\n" in text
    assert text.splitlines()[-1].startswith("  advice    The residual fell below the tolerance")


def test_repr_of_a_failure_carries_the_advice():
    text = repr(make(max_epochs=2, solver="tiht"))
    assert text.startswith("Result: not recovered: max epochs\n")
    assert "status    MAX_EPOCHS\n" in text
    assert text.endswith("start=result.state)")


def test_html_is_well_formed_and_escapes(result):
    from html.parser import HTMLParser

    class Balance(HTMLParser):
        def __init__(self):
            super().__init__()
            self.open = []

        def handle_starttag(self, tag, attrs):
            self.open.append(tag)

        def handle_endtag(self, tag):
            assert self.open.pop() == tag

    html = result._repr_html_()
    parser = Balance()
    parser.feed(html)
    assert not parser.open
    assert "<svg" in html
    assert "recovered" in html


def test_plot_shows_residual_error_and_spectra(result, tmp_path):
    figure = result.plot()
    left, right = figure.axes
    assert [line.get_label() for line in left.lines] == ["relative residual", "relative error"]
    np.testing.assert_allclose(left.lines[0].get_ydata(), result.history.residual)
    assert len(right.lines) == 3
    figure.savefig(tmp_path / "run.png")
    assert (tmp_path / "run.png").stat().st_size > 1000


def test_plot_of_a_batch(tmp_path):
    figure = make(trials=3, max_epochs=5).plot()
    assert figure.axes[0].lines[0].get_label() == "relative residual (median)"


@pytest.mark.parametrize("trials", [None, 3])
def test_load_returns_the_saved_result(tmp_path, trials):
    result = make(trials=trials)
    result.save(tmp_path / "x.npz")
    again = lt.load(tmp_path / "x.npz")
    np.testing.assert_array_equal(again.X.full(), result.X.full())
    assert np.all(again.status == result.status)
    assert np.all(again.success == result.success)
    assert np.all(again.epochs == result.epochs)
    assert list(again.history) == list(result.history)
    for name in result.history:
        np.testing.assert_array_equal(again.history[name], result.history[name])
    assert repr(again) == repr(result)
    assert type(again.success) is type(result.success)
    assert (again.state is None) == (result.state is None)
    assert again.call == result.call
    assert again.advice == result.advice


def test_save_overwrites_only_on_request(tmp_path, result):
    result.save(tmp_path / "x.npz")
    with pytest.raises(FileExistsError, match="overwrite=True"):
        result.save(tmp_path / "x.npz")
    result.save(tmp_path / "x.npz", overwrite=True)


def test_load_refuses_other_files(tmp_path, result):
    np.savez(tmp_path / "other.npz", a=np.ones(3))
    with pytest.raises(lt.FileFormatError, match="is not a lowtucker result"):
        lt.load(tmp_path / "other.npz")
    (tmp_path / "text.npz").write_text("hello")
    with pytest.raises(lt.FileFormatError, match="is plain text"):
        lt.load(tmp_path / "text.npz")
    meta = np.frombuffer(json.dumps({"format": "lowtucker result 99"}).encode(), dtype=np.uint8)
    np.savez(tmp_path / "newer.npz", meta=meta)
    with pytest.raises(lt.FileFormatError, match="Upgrade lowtucker"):
        lt.load(tmp_path / "newer.npz")
    np.savez(tmp_path / "broken.npz", meta=np.frombuffer(b"{nonsense", dtype=np.uint8))
    with pytest.raises(lt.FileFormatError, match="damaged lowtucker result"):
        lt.load(tmp_path / "broken.npz")
    result.save(tmp_path / "x.npz")
    with np.load(tmp_path / "x.npz") as file:
        partial = {name: file[name] for name in file if name != "X.core"}
    np.savez(tmp_path / "partial.npz", **partial)
    with pytest.raises(lt.FileFormatError, match="damaged lowtucker result"):
        lt.load(tmp_path / "partial.npz")


def test_automatic_settings_are_in_the_solver_line(result):
    assert result.solver == "RSGD(block_size=34, least_squares=True)"
    bound = make(solver="stotiht")
    assert bound.solver == "StoTIHT(step='auto', block_size=50)"
    assert repr(lt.TIHT(step=0.5)) == "TIHT(step=0.5)"
