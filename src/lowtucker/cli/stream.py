"""``lowtucker stream``: samples that arrive one after the other."""

from __future__ import annotations

import os
import time
from functools import partial
from pathlib import Path
from typing import Any

import click

from lowtucker.cli.common import FILE, IntTuple, check_targets, single
from lowtucker.cli.outcome import EXIT_CODES, check_fits, check_output, finish
from lowtucker.cli.rescue import FAILURES, save_or_keep
from lowtucker.cli.verbose import verbose_option

__all__ = ["stream"]

# Seconds between two looks at a file that has not grown
POLL = 0.1


@click.command(epilog=EXIT_CODES)
@click.argument("samples", type=click.Path(allow_dash=True, path_type=Path))
@click.option("--shape", type=IntTuple(), required=True, help="Shape of the tensor.")
@click.option("--rank", type=IntTuple(), required=True, help="Tucker rank, one entry per mode.")
@click.option("-o", "--output", type=FILE, required=True,
              help="The result as .npz, or the full tensor X as .npy or .mat.")  # fmt: skip
@click.option("--follow", is_flag=True,
              help="Wait for more samples at the end of a file, until Ctrl-C.")  # fmt: skip
@click.option("--memory", type=float,
              help="For tensors that change: samples after which one counts less by the factor "
              "e. By default nothing is forgotten.")  # fmt: skip
@click.option("--block", type=click.IntRange(min=1), default=1000, show_default=True,
              help="Most samples that are used at a time.")  # fmt: skip
@click.option("--every", type=click.FloatRange(min=0), default=2.0, show_default=True,
              help="Seconds between two reports; the checkpoint is then written too.")  # fmt: skip
@click.option("--max-seconds", type=click.FloatRange(min=0, min_open=True),
              help="Stop after so much wall time.")  # fmt: skip
@click.option("--checkpoint", type=FILE,
              help="File to keep the stream in; the same command resumes after the samples of the "
              "file that were used. All samples of a pipe are new.")  # fmt: skip
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option("--plot", type=FILE, help="Write a plot of the result (.png, .pdf, .svg).")
@click.option("--overwrite", is_flag=True, help="Replace existing files.")
@click.option("-q", "--quiet", is_flag=True, help="No reports and no summary.")
@verbose_option
def stream(samples: Path, shape: tuple[int, ...], rank: tuple[int, ...], output: Path,
           follow: bool, memory: float | None, block: int, every: float,
           max_seconds: float | None, checkpoint: Path | None, seed: int, plot: Path | None,
           overwrite: bool, quiet: bool) -> None:  # fmt: skip
    """Follow a tensor of low Tucker rank through a stream of its entries.

    SAMPLES is a table with the columns i1, ..., id, value (indices from 0, optional header line)
    that may still grow, or "-" for the standard input. Every sample is used once.

    \b
    Examples:
      lowtucker stream samples.csv --shape 100,100,50 --rank 3,3,3 -o X.npz
      lowtucker stream samples.csv --shape 100,100,50 --rank 3,3,3 -o X.npz --follow \\
          --memory 20000 --checkpoint stream.npz
      sensor | lowtucker stream - --shape 100,100,50 --rank 3,3,3 -o X.npz

    Ctrl-C ends a stream that is followed, and so does the end of the standard input; the result
    is then written. It is also written if the file is deleted, replaced or truncated, which is an
    error (exit code 2). A line that is no sample ends the command with an error that names the
    line; what was used before is in the checkpoint.
    """
    import lowtucker as lt
    from lowtucker.io.lines import SampleLines
    from lowtucker.run.lock import FileLock

    if checkpoint is not None:
        check_targets([checkpoint], True)
        lock = FileLock(Path(os.path.realpath(checkpoint)), "checkpoint")
        click.get_current_context().call_on_close(lock.release)
        overwrite = overwrite or checkpoint.exists()
    check_output(output, plot, overwrite, inputs=(samples, checkpoint))
    check_fits(output, shape)
    if checkpoint is not None and checkpoint.exists():
        online = lt.Online.load(checkpoint)
        _check_same(online, checkpoint, shape, rank, memory)
    else:
        online = lt.Online(shape, single(rank), memory=memory, seed=seed)
    followed = _Followed(online, checkpoint, every, quiet)
    with SampleLines(samples, shape) as lines:
        if not lines.is_pipe:
            lines.skip(online.m)
        lost = followed.run(lines, block, follow, max_seconds)
    if not online.m:
        raise lost or ValueError(f"{samples} has no samples. Expected lines i1, ..., id, value.")
    others = [path for path in (plot,) if path is not None]
    try:
        finish(online.result(), output, plot, overwrite=overwrite, quiet=quiet, written=others)
    except SystemExit:
        if checkpoint is not None and followed.trouble is not None:
            again = partial(online.save, checkpoint, overwrite=True)
            save_or_keep(again, online.save, checkpoint, "stream")
        if lost is not None:  # an error, but the result is written
            raise lost from None
        raise


class _Followed:
    """A stream with its reports and its checkpoint."""

    def __init__(self, online: Any, checkpoint: Path | None, every: float, quiet: bool) -> None:
        self.online, self.checkpoint, self.every, self.quiet = online, checkpoint, every, quiet
        self.trouble: Exception | None = None  # why the checkpoint could not be written
        self._reported, self._at = time.monotonic(), online.m

    def run(
        self, lines: Any, block: int, follow: bool, max_seconds: float | None
    ) -> Exception | None:
        """Use samples until there are no more, the time is over, or Ctrl-C.

        Returns the error where the file was deleted, replaced or truncated.
        """
        from lowtucker.io.lines import LostFileError

        begin = time.monotonic()
        try:
            while max_seconds is None or time.monotonic() - begin < max_seconds:
                indices, values = lines.read(block, last=not follow)
                self.online.update_entries(indices, values)
                if not len(values):
                    if not follow or lines.ended:
                        break
                    time.sleep(POLL)
                if time.monotonic() - self._reported >= self.every:
                    self.report()
        except LostFileError as error:
            return error
        except KeyboardInterrupt:
            if not follow:
                raise
        finally:
            self.report()
        return None

    def report(self) -> None:
        """Write the checkpoint, and a line on what is known, if there are new samples."""
        online = self.online
        self._reported = time.monotonic()
        if online.m == self._at:
            return
        self._at = online.m
        if self.checkpoint is not None:
            self._save(self.checkpoint)
        if not self.quiet:
            click.echo(_said(online), err=True)

    def _save(self, path: Path) -> None:
        """Write the checkpoint; a full disk does not end the stream."""
        try:
            self.online.save(path, overwrite=True)
            self.trouble = None
        except FAILURES as error:
            if self.trouble is None:
                reason = getattr(error, "reason", error)
                click.echo(f"Warning: checkpoint {reason}. The stream continues.", err=True)
            self.trouble = error


def _said(online: Any) -> str:
    """One line on the state of a stream."""
    ratio = online.m / online.degrees_of_freedom
    count = f"{online.m} sample{'s' if online.m > 1 else ''}"
    text = f"{count}, {ratio:.1f} per degree of freedom"
    if online.warming_up:
        more = f"at least {online.needed} more needed" if online.needed else "more needed"
        return f"{text}: not enough for the rank yet, {more}"
    estimate = online.error_estimate
    known = "" if estimate is None else f", error about {estimate:.1e}"
    return f"{text}: {online.status.words}{known}"


def _check_same(
    online: Any, path: Path, shape: tuple[int, ...], rank: tuple[int, ...], memory: float | None
) -> None:
    """Raise ValueError if a checkpoint is of another stream."""
    import lowtucker as lt

    wanted = (tuple(shape), lt.attainable_rank(rank), memory)
    if (online.shape, online.rank, online.memory) != wanted:
        raise ValueError(
            f"--checkpoint {path} is of shape {online.shape}, rank {online.rank} and memory "
            f"{online.memory}, not of {wanted[0]}, {wanted[1]} and {wanted[2]}. Use another file."
        )
