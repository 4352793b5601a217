"""``lowtucker video``: measure and recover a clip."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from lowtucker.cli.common import (
    INTERRUPTED,
    NOT_RECOVERED,
    SOLVERS,
    Rank,
    Span,
    as_solver,
    check_extras,
    check_folder,
    console,
)
from lowtucker.cli.outcome import EXIT_CODES, check_rank_known, max_seconds_option
from lowtucker.cli.rescue import save_or_keep
from lowtucker.cli.verbose import progress, verbose_option

__all__ = ["video"]


@click.command(epilog=EXIT_CODES)
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--rank", type=Rank(), help='Tucker rank: rows, columns, frames; "auto" searches for '
              "one. By default none is needed.")  # fmt: skip
@click.option("--measurements", type=click.IntRange(min=1), required=True,
              help="Number of Gaussian measurements of the clip.")  # fmt: skip
@click.option("-o", "--out", type=click.Path(file_okay=False, path_type=Path), required=True,
              help="Folder for the recovered clip, plots, tables and the report.")  # fmt: skip
@click.option("--frames", type=Span(), help="First and last, counted from 1; all by default.")
@click.option("--rows", type=Span(), help="First and last, counted from 1; all by default.")
@click.option("--columns", type=Span(), help="First and last, counted from 1; all by default.")
@click.option("--name", help="Name of the array, if a .mat or .npz file holds several.")
@click.option("--solver", type=click.Choice(SOLVERS), default="auto", show_default=True)
@click.option("--max-epochs", type=click.IntRange(min=1), default=100, show_default=True)
@max_seconds_option
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option("-q", "--quiet", is_flag=True, help="No progress bar and no summary.")
@verbose_option
def video(file: Path, rank: Any, measurements: int, out: Path,
          frames: tuple[int, int] | None, rows: tuple[int, int] | None,
          columns: tuple[int, int] | None, name: str | None, solver: str, max_epochs: int,
          max_seconds: float | None, seed: int, quiet: bool) -> None:  # fmt: skip
    """Recover a clip from Gaussian measurements and report the result.

    FILE is a video (.mp4, .avi, .webm, .gif, .mov, .mkv), an array (.npy, .npz, .mat; rows x
    columns x frames) or a folder of images. Colours are converted to grey.

    \b
    Examples:
      lowtucker video candle_5_A.mat --measurements 3000 \\
          --frames 1:10 --rows 61:90 --columns 71:100 -o candle
      lowtucker video candle_5_A.mat --rank 8,8,2 --measurements 3000 \\
          --frames 1:10 --rows 61:90 --columns 71:100 -o candle
      lowtucker video clip.mp4 --rank 12,12,4 --measurements 5000 --frames 1:20 -o clip

    The measurement matrix takes 4 x measurements x pixels bytes: crop large clips.
    """
    import lowtucker as lt
    from lowtucker.lab.experiments.clip import Clip
    from lowtucker.lab.experiments.video import VideoRecovery
    from lowtucker.lab.video import load_video

    check_extras("av", "jinja2", "matplotlib", extra="video")
    check_rank_known(rank, None, solver)
    pixels = load_video(file, frames=frames, rows=rows, columns=columns, name=name)
    if not pixels.any():
        raise ValueError(f"{file} is black in every selected frame: nothing to recover.")
    ranges = {"rows": rows, "columns": columns, "frames": frames}
    crop = [f"{what} {span[0]}:{span[1]}" for what, span in ranges.items() if span]
    clip = Clip(pixels, ", ".join([file.resolve().name, *crop]), False)
    first = 1 if frames is None else frames[0]
    setting = VideoRecovery(
        clip, rank, measurements, as_solver(solver), max_epochs, seed, first, max_seconds
    )
    check_folder(out)
    result = setting.run(progress("recover", quiet))
    save_or_keep(lambda: setting.write(out, result), result.save, out / "result.npz")
    if not quiet:
        lines = [f"{label:15} {text}" for label, text in setting.summary(result).items()]
        lines.append(f"{'report':15} {out / 'report.html'}")
        console().print("\n".join(lines), markup=False, soft_wrap=True)
    if result.status is lt.Status.INTERRUPTED:
        sys.exit(INTERRUPTED)
    sys.exit(0 if result.success else NOT_RECOVERED)
