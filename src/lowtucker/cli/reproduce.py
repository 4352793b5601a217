"""``lowtucker reproduce``: run the experiments of the paper."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from lowtucker.cli.common import check_extras, check_folder, console, table

__all__ = ["reproduce"]

NAMES = ("fig1", "fig2", "fig3", "fig4", "fig5", "fig6", "fig7", "shrinkage", "tuned")


@click.command()
@click.argument("what", nargs=-1, type=click.Choice([*NAMES, "all"]), metavar="[FIGURE]...")
@click.option("--trials", type=click.IntRange(min=1), default=100, show_default=True,
              help="Trials per setting of Figures 1 to 5.")  # fmt: skip
@click.option("-o", "--out", type=click.Path(file_okay=False, path_type=Path), show_default=True,
              default=Path("reproduction"), help="Folder to write to.")  # fmt: skip
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option("--candle", type=click.Path(path_type=Path),
              help="The authors' clip, candle_5_A.mat, for Figures 6 and 7.")  # fmt: skip
@click.option("--workers", type=click.IntRange(min=1),
              help="Number of processes; defaults to the number of cores.")  # fmt: skip
@click.option("--dask", metavar="ADDRESS",
              help="Scheduler of a Dask cluster to run on: tcp://host:8786.")  # fmt: skip
def reproduce(what: tuple[str, ...], trials: int, out: Path, seed: int, candle: Path | None,
              workers: int | None, dask: str | None) -> None:  # fmt: skip
    """Run the paper's experiments; write tables, plots and a report.

    FIGURE is any of fig1 to fig7, "shrinkage" (ours, not the paper's: the clip of Figure 7 without
    a rank), "tuned" (both methods with the published and with their best step), or "all", the
    default. Writes a CSV and a PNG per figure, and OUT/report.html.

    \b
    Examples:
      lowtucker reproduce                        all, 100 trials: a few minutes on two cores
      lowtucker reproduce fig3 fig4 --trials 20  a first look
      lowtucker reproduce fig6 fig7 --candle candle_5_A.mat
      lowtucker reproduce --dask tcp://192.168.0.5:8786

    Results are saved as they are computed: run the same command to resume after an interruption.
    With more trials, only the missing ones are computed. Figures 6 and 7 show a synthetic flame
    unless the authors' clip is given; they need a matrix of 1.1 GB.

    With --dask the jobs run on the workers of a cluster, one at a time per worker; the workers
    need this version of lowtucker. `dask worker --nthreads 1 --nworkers 8` uses 8 cores.
    """
    from lowtucker.io.guards import WriteError
    from lowtucker.lab.experiments.clip import ClipRecovery, flame
    from lowtucker.lab.experiments.clip import candle as load_candle
    from lowtucker.lab.experiments.figures import Paper
    from lowtucker.lab.experiments.reproduce import Reproduction
    from lowtucker.simulation.runner import available_workers

    if dask is not None and workers is not None:
        raise ValueError(
            "--workers are processes on this machine, but --dask runs on a cluster. Omit one of "
            "them."
        )
    names = NAMES if not what or "all" in what else tuple(dict.fromkeys(what))
    paper = Paper(clip=ClipRecovery(clip=flame() if candle is None else load_candle(candle)))
    run = Reproduction(names, out, trials, seed, workers or available_workers(), paper)
    check_extras("jinja2", "matplotlib", extra="experiments")
    check_folder(out)
    jobs = run.pending()
    screen = console()
    kept = f"Results so far are kept in {out / 'cells'}: run the same command to resume."
    try:
        with _client(dask) as client, _bar(jobs) as report:
            claims = replace(run, client=client).run(jobs, report)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"Interrupted. {kept}") from None
    except WriteError as error:
        raise WriteError(f"{error.reason}. {kept.removesuffix('.')}") from error
    if claims:
        screen.print(
            table(["the paper's claim", "this run"], [[c.title, c.verdict] for c in claims])
        )
    screen.print(f"Report: {out / 'report.html'}", markup=False, soft_wrap=True)


@contextmanager
def _client(address: str | None) -> Iterator[Any]:
    """Yield a client of a cluster whose workers are ready; None without an address."""
    if address is None:
        yield None
        return
    from lowtucker.operators.connection import check_workers, connect

    with connect(address) as client:
        check_workers(client)
        yield client


class _bar:  # noqa: N801 - reads as a statement
    """Progress bar over all jobs, weighted by their expected cost."""

    def __init__(self, jobs: list[Any]) -> None:
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
        from rich.progress import TimeRemainingColumn as Remaining

        self.total = sum(job.work for job in jobs)
        self.progress = Progress(
            TextColumn("{task.description:28}"), BarColumn(),
            TextColumn("{task.percentage:>3.0f}%"), TimeElapsedColumn(), TextColumn("left"),
            Remaining(), console=console(stderr=True),
        )  # fmt: skip

    def __enter__(self) -> Any:
        self.progress.start()
        self.task = self.progress.add_task("experiments", total=self.total)
        return self.report

    def report(self, job: Any) -> None:
        """Advance the bar."""
        last = f"{job.experiment.name} {job.cell}"
        self.progress.update(self.task, advance=job.work, description=last)

    def __exit__(self, *_: object) -> None:
        self.progress.stop()
