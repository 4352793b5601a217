"""The command ``lowtucker video``."""

from __future__ import annotations

import csv

import numpy as np
import pytest
from click.testing import CliRunner

import lowtucker as lt
from lowtucker import datasets
from lowtucker.cli import main
from lowtucker.lab.video import load_video, save_gif


@pytest.fixture(scope="module")
def flame(tmp_path_factory):
    """A clip in three forms: array, GIF, folder of images."""
    folder = tmp_path_factory.mktemp("clip")
    clip = datasets.flame((20, 24, 8)).values
    np.save(folder / "clip.npy", clip)
    save_gif(folder / "clip.gif", clip)
    (folder / "frames").mkdir()
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    for k in range(8):
        pixels = np.rint(255 * clip[:, :, k]).astype(np.uint8)
        image.fromarray(pixels).save(folder / "frames" / f"{k + 1}.png")
    return folder


def call(*arguments):
    return CliRunner().invoke(main, ["video", *map(str, arguments)])


def read(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("name", ["clip.npy", "clip.gif", "frames"])
def test_clip_is_recovered_and_all_files_are_written(flame, tmp_path, name):
    out = tmp_path / "out"
    done = call(flame / name, "--rank", "4,4,2", "--measurements", "450", "-o", out,
                "--frames", "2:5", "--rows", "3:14", "--columns", "5:16",
                "--max-epochs", 30)  # fmt: skip
    assert done.exit_code == 0, done.output
    recovered = np.load(out / "recovered.npy")
    true = datasets.flame((20, 24, 8)).values[2:14, 4:16, 1:5]
    assert recovered.shape == (12, 12, 4)
    error = np.linalg.norm(recovered - true) / np.linalg.norm(true)
    best = lt.metrics.relative_error(lt.hooi(true, (4, 4, 2)), true)
    assert error < best + 0.05
    if name == "clip.npy":  # the others are rounded to 256 grey levels
        assert f"relative error  {error:.4f}" in done.output
    rows = read(out / "frames.csv")
    assert [row["frame"] for row in rows] == ["2", "3", "4", "5"]
    assert "rows 3:14, columns 5:16, frames 2:5" in (out / "report.html").read_text()
    for k, row in enumerate(rows):
        frame = recovered[:, :, k]
        quality = -10 * np.log10(np.mean((frame - true[:, :, k]) ** 2))
        assert float(row["psnr"]) == pytest.approx(quality, abs=0.5)  # a GIF has 256 grey levels
        assert 0.3 < float(row["ssim"]) <= 1
    curve = read(out / "curves.csv")
    assert list(curve[0]) == ["epoch", "cost", "residual", "relative_error"]
    # zero has residual 1; the last start need not be the best
    residuals = [float(row["residual"]) for row in curve]
    assert min(residuals) < min(0.2, residuals[0])
    np.testing.assert_allclose(
        load_video(out / "recovered.gif")[:: 240 // 12, :: 240 // 12],
        recovered.clip(0, 1),
        atol=0.5 / 255,
    )
    assert lt.load(out / "result.npz").X.rank == (4, 4, 2)
    for file in ("report.html", "strip.png", "curves.png", "comparison.gif"):
        assert (out / file).stat().st_size > 1000
    assert not list(out.glob(".lowtucker*"))


def test_no_rank_is_needed(flame, tmp_path):
    out = tmp_path / "out"
    done = call(flame / "clip.npy", "--measurements", "200", "-o", out, "--frames", "2:5", "--rows",
                "3:9", "--columns", "5:11", "--max-seconds", "inf")  # fmt: skip
    assert done.exit_code == 0, done.output
    rank = lt.load(out / "result.npz").rank
    assert f"of rank {rank}" in done.output or rank is None


def test_tensor_without_a_rank_is_reported(flame, tmp_path, monkeypatch):
    def shrunk(A, y, rank, **settings):
        assert rank is None
        solver = lt.TIHT(step=0.3, thresholding=lt.Shrinkage(0.1))
        return lt.solve(lt.Problem(A, y), solver, stop=lt.MaxEpochs(5))

    monkeypatch.setattr("lowtucker.lab.experiments.video.recover", shrunk)
    out = tmp_path / "out"
    done = call(flame / "clip.npy", "--measurements", "300", "-o", out, "--rows", "3:9")
    assert done.exit_code == 3, done.output  # cut short after five epochs
    result = lt.load(out / "result.npz")
    ratio = 300 / result.degrees_of_freedom
    assert f"{ratio:.3g} per effective degree of freedom" in done.output
    assert "best approximation" not in done.output
    assert "none given" in (out / "report.html").read_text()
    assert "Standard errors need a Tucker rank" in (out / "report.html").read_text()
    np.testing.assert_array_equal(np.load(out / "recovered.npy"), result.X.full())
    assert read(out / "curves.csv")[-1]["relative_error"] == "nan"


def test_solver_can_be_chosen_and_small_frames_have_no_ssim(flame, tmp_path):
    done = call(flame / "clip.npy", "--rank", "2,2,2", "--measurements", "600", "-o", tmp_path,
                "--rows", "1:8", "--solver", "tiht", "--max-epochs", "5", "-q")  # fmt: skip
    assert done.exit_code == 3, done.output  # too few epochs
    assert done.output == ""
    assert {row["ssim"] for row in read(tmp_path / "frames.csv")} == {"nan"}
    assert "TIHT" in lt.load(tmp_path / "result.npz").solver


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["clip.npy", "--rank", "30,6,3"], "rank[0] = 30 must be between 1 and 20"),
        (["clip.npy", "--rank", "6,6"], "rank must have one entry per mode: got 2 entries"),
        (["clip.npy", "--rank", "6,6,3", "--rows", "10:40"], "rows 10:40 are outside the clip"),
        (
            ["clip.npy", "--rank", "6,6,3", "--frames", "5:2"],
            "--frames 5:2; expected (first, last)",
        ),
        (
            ["clip.npy", "--rank", "6,6,3", "--columns", "0:4"],
            "--columns 0:4; expected (first, last)",
        ),
        (["clip.npy", "--rank", "6,6,3", "--rows", "a:b"], "not a range such as 61:90"),
        (["absent.mp4", "--rank", "6,6,3"], "absent.mp4 does not exist"),
        (["clip.npy", "--solver", "tiht"], "--rank is needed with these solver settings"),
        (["text.mp4", "--rank", "6,6,3"], "text.mp4 is plain text"),
        (["clip.xyz", "--rank", "6,6,3"], "has the suffix '.xyz'"),
        (["black.npy", "--rank", "2,2,2"], "black in every selected frame"),
        (["bright.npy", "--rank", "2,2,2"], "divide by the largest value"),
        (["matrix.npy", "--rank", "2,2,2"], r"expected (rows, columns, frames)"),
    ],
)
def test_bad_input_prints_one_line(flame, tmp_path, arguments, message):
    name, *rest = arguments
    np.save(tmp_path / "black.npy", np.zeros((6, 6, 4)))
    np.save(tmp_path / "bright.npy", np.full((6, 6, 4), 200.0))
    np.save(tmp_path / "matrix.npy", np.ones((6, 6)))
    (tmp_path / "text.mp4").write_text("no video")
    (tmp_path / "clip.xyz").write_text("no video")
    file = flame / name if name == "clip.npy" else tmp_path / name
    done = call(file, "--measurements", "500", "-o", tmp_path / "out", *rest)
    assert done.exit_code == 2
    assert message in done.output
    assert "Traceback" not in done.output
    assert not (tmp_path / "out").exists()


def test_unwritable_folder_is_rejected_before_the_run(flame, tmp_path):
    (tmp_path / "file").write_text("")
    done = call(flame / "clip.npy", "--rank", "6,6,3", "--measurements", 10**5, "-o",
                tmp_path / "file" / "out")  # fmt: skip
    assert done.exit_code == 2
    assert "cannot be written to" in done.output


def test_matrix_larger_than_memory_is_rejected_before_the_run(flame, tmp_path):
    done = call(flame / "clip.npy", "--rank", "6,6,3", "--measurements", 10**9, "-o", tmp_path)
    assert done.exit_code == 2
    assert "need a matrix of" in done.output
    assert "Crop the clip" in done.output
