"""Pictures of a result: entries with error bars, slices with their standard error."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest

import lowtucker as lt
from lowtucker.labels import Labels
from lowtucker.run.pictures import described_bars, draw_run, kind_of_bars, slice_indices


def noisy(shape, rank, m, seed=0, dtype=float, **options):
    X_true = lt.random_tucker(shape, rank, seed=seed, dtype=dtype)
    A = lt.gaussian(shape, m, seed=seed + 1, dtype=dtype)
    rng = np.random.default_rng(seed)
    noise = rng.standard_normal(m) + (1j * rng.standard_normal(m) if dtype is complex else 0)
    return X_true, lt.recover(A, A.forward(X_true) + 0.02 * noise, rank, **options)


@pytest.fixture(scope="module")
def case():
    return noisy((5, 4, 40), (1, 2, 2), 500)


class Bars:
    """Calibration with known numbers."""

    def half_width(self, indices, level):
        return level * (1.0 + np.arange(len(indices)))

    def standard_error(self, indices):
        return 1.0 + np.arange(len(indices))


def drawn_bars(axes):
    """Middles and both ends of error bars."""
    (container,) = axes.containers
    line, _, (bars,) = container.lines
    ends = np.array(bars.get_segments())[:, :, 1]
    return line.get_ydata(), ends[:, 0], ends[:, 1]


def test_few_entries_have_bars(case):
    X_true, result = case
    indices = [[3, 1, 2], [0, 0, 0], [4, 2, 30]]
    (axes,) = result.plot_entries(indices, 0.8, X_true=X_true).axes
    middle, low, high = drawn_bars(axes)
    np.testing.assert_array_equal(middle, result.X.entries(indices))
    np.testing.assert_allclose((low, high), result.interval(indices, 0.8))
    assert [text.get_text() for text in axes.get_xticklabels()] == [
        "[3, 1, 2]", "[0, 0, 0]", "[4, 2, 30]",
    ]  # fmt: skip
    (truth,) = (line for line in axes.lines if line.get_label() == "truth")
    np.testing.assert_array_equal(truth.get_ydata(), X_true.entries(indices))
    assert axes.figure.get_suptitle() == "80 % intervals, by the linear model"


def test_truth_may_be_an_array(case):
    X_true, result = case
    one, other = (
        result.plot_entries([[1, 1, 1]], X_true=X).axes[0].lines[-1].get_ydata()
        for X in (X_true, X_true.full())
    )
    np.testing.assert_allclose(one, other)


def test_fibre_is_a_band_along_its_mode(case):
    X_true, result = case
    order = np.random.default_rng(0).permutation(40)
    given = np.array([[2, 3, k] for k in order])
    sorted_ = [[2, 3, k] for k in range(40)]
    (axes,) = result.plot_entries(given, X_true=X_true).axes
    estimate, truth = axes.lines
    np.testing.assert_array_equal(estimate.get_xdata(), np.arange(40))
    np.testing.assert_array_equal(estimate.get_ydata(), result.X.entries(sorted_))
    np.testing.assert_array_equal(truth.get_ydata(), X_true.entries(sorted_))
    (band,) = axes.collections
    corners = band.get_paths()[0].vertices
    for k, ends in enumerate(zip(*result.interval(sorted_), strict=True)):
        here = corners[corners[:, 0] == k][:, 1]
        np.testing.assert_allclose((here.min(), here.max()), ends)
    assert axes.get_xlabel() == "index in mode 2"


def test_numbers_along_a_fibre_are_its_axis(case):
    _, result = case
    indices = [[2, k, 7] for k in range(4)]
    waves = [400.0, 500.5, 610.0, 700.0]
    (axes,) = result.plot_entries(indices, labels=waves).axes
    np.testing.assert_array_equal(axes.lines[0].get_xdata(), waves)
    (axes,) = result.plot_entries(indices, labels=np.float32(waves)).axes
    np.testing.assert_array_equal(axes.lines[0].get_xdata(), waves)
    for labels in (list("abcd"), np.array(list("abcd"))):
        (axes,) = result.plot_entries(indices, labels=labels).axes
        assert [text.get_text() for text in axes.get_xticklabels()] == list("abcd")


def test_labels_follow_their_entries(case):
    _, result = case
    (axes,) = result.plot_entries([[2, 3, 7], [2, 0, 7], [2, 1, 7]], labels=list("dab")).axes
    assert [text.get_text() for text in axes.get_xticklabels()] == list("abd")
    assert axes.get_xticks().tolist() == [0, 1, 3]


def test_many_entries_have_few_texts(case, tmp_path):
    _, result = case
    indices = np.argwhere(np.ones(result.X.shape))[::4]
    figure = result.plot_entries(indices)
    assert len(figure.axes[0].get_xticks()) <= 24
    figure.savefig(tmp_path / "entries.png")  # constrained layout warns where nothing fits


@pytest.mark.parametrize(
    ("modes", "at", "where", "view"),
    [
        (None, None, "X[:, :, 0]", lambda Z: Z[:, :, 0]),
        (None, 7, "X[:, :, 7]", lambda Z: Z[:, :, 7]),
        ((2, 0), [3], "X[:, 3, :]", lambda Z: Z[:, 3, :].T),
        (np.array([0, 2]), (1,), "X[:, 1, :]", lambda Z: Z[:, 1, :]),
    ],
)
def test_slice_and_its_standard_error(case, modes, at, where, view):
    _, result = case
    figure = result.plot_slice(modes, at)
    left, right = figure.axes[:2]
    error = result.standard_error(np.argwhere(np.ones(result.X.shape))).reshape(result.X.shape)
    np.testing.assert_allclose(left.images[0].get_array(), view(result.X.full()), atol=1e-14)
    np.testing.assert_allclose(right.images[0].get_array(), view(error))
    assert right.images[0].norm.vmin == 0
    assert len(figure.axes) == 4  # with a colour bar each
    assert left.get_title() == where
    assert figure.get_suptitle() == "Standard errors, by the linear model"


def test_one_mode_is_drawn_as_curves(case):
    _, result = case
    left, right = result.plot_slice(2, (1, 3)).axes
    indices = [[1, 3, k] for k in range(40)]
    np.testing.assert_allclose(left.lines[0].get_ydata(), result.X.entries(indices))
    np.testing.assert_allclose(right.lines[0].get_ydata(), result.standard_error(indices))


@pytest.mark.parametrize(("shape", "images"), [((6,), 0), ((6, 5), 2), ((3, 4, 2, 3), 2)])
def test_tensors_of_every_order(shape, images, tmp_path):
    _, result = noisy(shape, (1,) * len(shape), 80)
    figure = result.plot_slice()
    assert sum(len(axes.images) for axes in figure.axes[:2]) == images
    figure.savefig(tmp_path / "slice.png")
    index = np.argwhere(np.ones(shape))[:5]
    np.testing.assert_array_equal(
        drawn_bars(result.plot_entries(index).axes[0])[0], result.X.entries(index)
    )


def test_complex_entries_have_bars_of_both_parts():
    X_true, result = noisy((5, 4, 3), (1, 2, 2), 200, dtype=complex)
    indices = [[1, 2, 0], [4, 3, 2]]
    panels = result.plot_entries(indices, X_true=X_true).axes
    ends = result.interval(indices)
    for axes, part in zip(panels, (np.real, np.imag), strict=True):
        middle, low, high = drawn_bars(axes)
        np.testing.assert_array_equal(middle, part(result.X.entries(indices)))
        np.testing.assert_allclose((low, high), part(ends))
    left = result.plot_slice().axes[0]
    np.testing.assert_allclose(left.images[0].get_array(), np.abs(result.X.full()[:, :, 0]))
    assert left.get_title() == "|X[:, :, 0]|"


def test_titles_say_what_the_bars_presume(case):
    _, result = case
    approximated = replace(result, status=lt.Status.APPROXIMATED)
    said = "presuming rank (1, 2, 2): the verdict is APPROXIMATED"
    with pytest.warns(lt.ModelWarning):
        figure = approximated.plot_entries([[0, 0, 0]])
    assert figure.get_suptitle() == f"95 % intervals, {said}"
    with pytest.warns(lt.ModelWarning):
        figure = approximated.plot_slice()
    assert figure.get_suptitle() == f"Standard errors, {said}"


def test_conformal_bars_are_drawn_where_the_model_is_not_supported(case):
    _, result = case
    result = replace(result, status=lt.Status.APPROXIMATED, calibration=Bars())
    indices = [[0, 0, 0], [1, 1, 1]]
    figure = result.plot_entries(indices)
    _, low, high = drawn_bars(figure.axes[0])
    np.testing.assert_allclose(high - low, [2 * 0.95, 4 * 0.95])
    assert figure.get_suptitle() == "95 % intervals, conformal, from held-out entries"
    with pytest.warns(lt.ModelWarning):
        figure = result.plot_entries(indices, method="model")
    assert "presuming rank (1, 2, 2)" in figure.get_suptitle()


def test_entries_that_nothing_measures_have_no_bars(tmp_path):
    X_true = lt.random_tucker((6, 5, 4), (1, 1, 1), seed=0)
    index = np.argwhere(np.ones((6, 5, 4)))
    index = index[index[:, 0] != 2]
    A = lt.entries((6, 5, 4), index)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        result = lt.recover(A, A.forward(X_true), (1, 1, 1))
        bars = result.plot_entries([[k, 1, 1] for k in range(6)])
        both = result.plot_slice()
    (marks,) = (line for line in bars.axes[0].lines if "not determined" in line.get_label())
    assert marks.get_xdata().tolist() == [2]
    hidden = np.ma.getmaskarray(both.axes[1].images[0].get_array())
    assert hidden.any(axis=1).tolist() == [False, False, True, False, False, False]
    assert both.axes[1].get_title().endswith("(grey: not determined)")
    for figure in (bars, both):
        figure.savefig(tmp_path / "undetermined.png")


def test_titles_of_many_fits_do_not_overlap():
    pytest.importorskip("tensorly")
    figure = lt.complete(lt.datasets.il2().values).plot()
    figure.canvas.draw()
    left, right = (axes.title for axes in figure.axes)
    assert " fits; last: " in left.get_text()
    assert left.get_window_extent().x0 >= 0
    assert left.get_window_extent().x1 < right.get_window_extent().x0


def test_run_with_the_first_slice_below(case):
    _, result = case
    figure = draw_run(result, bars=True)
    _, _, left, right = figure.axes[:4]
    index = slice_indices(result.X.shape)[0]
    np.testing.assert_array_equal(right.images[0].get_array().ravel(), result.standard_error(index))
    np.testing.assert_array_equal(left.images[0].get_array().ravel(), result.X.entries(index))
    assert right.get_title() == "standard error,\nby the linear model"


def test_slices_of_slice_indices():
    index, modes, fixed = slice_indices((2, 3, 4), (2, 0), 1)
    Z = np.arange(24).reshape(2, 3, 4)
    np.testing.assert_array_equal(Z[tuple(index.T)].reshape(4, 2), Z[:, 1, :].T)
    assert modes == (2, 0)
    assert fixed == [":", 1, ":"]


def test_html_has_the_size_of_the_bars(case):
    _, result = case
    error = result.standard_error(np.argwhere(np.ones(result.X.shape)))
    size = np.sqrt(np.mean(result.X.full() ** 2))
    said = f"standard error {np.sqrt(np.mean(error**2)):.2g} of entries of size {size:.2g}"
    assert said in result._repr_html_()
    assert "error bars" not in repr(result)


def test_html_computes_no_bars():
    _, result = noisy((5, 4, 6), (1, 2, 2), 100)
    result._repr_html_()
    assert result.uncertainty._information is None
    assert "by the linear model" in result._repr_html_()
    for change in ({"uncertainty": None}, {"error_estimate": None}, {"weights": np.ones(100)}):
        assert "error bars" not in replace(result, **change)._repr_html_()


def test_html_of_a_batch_and_of_conformal_bars(case):
    _, result = case
    approximated = replace(result, status=lt.Status.APPROXIMATED, calibration=Bars())
    assert "conformal, from held-out entries" in approximated._repr_html_()
    A = lt.gaussian((4, 3, 3), 40, seed=0, trials=2)
    y = A.forward(lt.random_tucker((4, 3, 3), (1, 1, 1), seed=0))
    assert "error bars" not in lt.recover(A, y, (1, 1, 1))._repr_html_()


def test_description_of_every_method(case):
    _, result = case
    assert kind_of_bars(replace(result, status=lt.Status.STALLED)) == "presumed"
    assert described_bars(result) == described_bars(result, "model") == "by the linear model"
    assert described_bars(replace(result, calibration=Bars())) == "by the linear model"
    assert described_bars(replace(result, calibration=Bars()), "conformal").startswith("conformal")


def test_axes_have_the_names_of_labelled_modes(case):
    labels = Labels(("drug", "dose", "cell"), (None, None, None))
    result = replace(case[1], labels=labels)
    left, *_ = result.plot_slice((0, 2), 1).axes
    assert (left.get_ylabel(), left.get_xlabel()) == ("drug", "cell")
    (axes,) = result.plot_entries([[2, 3, 7], [2, 0, 7]]).axes
    assert axes.get_xlabel() == "index in dose"
