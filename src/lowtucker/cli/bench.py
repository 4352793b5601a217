"""``lowtucker bench``: run the benchmarks."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from lowtucker.cli.common import (
    NOT_RECOVERED,
    check_extras,
    check_folder,
    check_picture,
    check_targets,
    console,
    table,
    write_picture,
)

__all__ = ["bench"]

DATA = Path("../shared/data")
CANDLE = DATA / "candle_5_A.mat"
# Options of each benchmark, besides --csv
OPTIONS = {
    "iteration": (),
    "stack": ("only", "quick"),
    "recover": ("only", "trials", "plot", "candle"),
    "structured": ("only", "trials", "gigabytes", "folder"),
    "dask": ("gigabytes",),
    "regression": (),
    "realdata": ("only", "data", "quick", "update"),
    "compare": ("only", "markdown"),
    "costs": (),
    "verdict": ("only", "quick", "problems", "seed", "jobs", "kernel", "hostile"),
    "checks": ("quick", "seed"),
    "family": ("only", "quick", "update", "output"),
    "uncertainty": ("only", "trials", "data", "quick"),
    "online": ("only", "trials", "quick"),
}


@click.command()
@click.argument("what", type=click.Choice(list(OPTIONS)))
@click.option(
    "--csv", "csv_file", type=click.Path(path_type=Path), help="Also write the rows to this file."
)
@click.option("--only", metavar="A1,B1,...",
              help="stack, recover, structured, realdata, uncertainty, online: the yardsticks to "
              "run. compare: the problems. family: the formats. verdict: indices of problems, to "
              "run alone and to print whole.")  # fmt: skip
@click.option("--trials", type=click.IntRange(min=1),
              help="recover, structured: trials of the default solver, and the maximum for "
              "other methods. O always has one. uncertainty, online: runs of each "
              "setting.")  # fmt: skip
@click.option("--plot", type=click.Path(path_type=Path),
              help="recover: plot success against measurements for A1 and A2.")  # fmt: skip
@click.option("--candle", type=click.Path(path_type=Path),
              help=f"recover: the authors' clip, for A5; default {CANDLE}.")  # fmt: skip
@click.option("--gigabytes", type=click.FloatRange(min=0.5),
              help="structured: size of the file of O, default 2 (the full benchmark has 12). "
              "dask: size of A, default 1.")  # fmt: skip
@click.option("--folder", type=click.Path(path_type=Path),
              help="structured: folder for the temporary file of O; the system's temporary "
              "folder by default.")  # fmt: skip
@click.option("--data", type=click.Path(path_type=Path),
              help="realdata, uncertainty: folder of candle_5_A.mat, Birmingham.mat and "
              f"Hangzhou.mat; default {DATA}.")  # fmt: skip
@click.option("--quick", is_flag=True, default=None,
              help="stack: measure once instead of nine times. realdata: omit the methods that the "
              "library is compared with. verdict: 60 problems. checks, family, uncertainty, "
              "online: a tenth of the cases.")  # fmt: skip
@click.option("--update", is_flag=True, default=None,
              help="realdata, family: keep rows of the files that are not measured "
              "again.")  # fmt: skip
@click.option("-o", "--output", type=click.Path(path_type=Path),
              help="family: folder for points.csv, claims.csv and diagrams.png.")  # fmt: skip
@click.option("--markdown", type=click.Path(path_type=Path),
              help="compare: also write the table to this file, in Markdown.")  # fmt: skip
@click.option("--problems", type=click.IntRange(min=1),
              help="verdict: number of problems, default 2000.")  # fmt: skip
@click.option("--seed", type=click.IntRange(min=0),
              help="verdict, checks: seed of the problems, default 0.")  # fmt: skip
@click.option("--jobs", type=click.IntRange(min=1),
              help="verdict: number of processes, default 2.")  # fmt: skip
@click.option("--kernel", metavar="NAME",
              help="verdict: run again with this kernel of OpenBLAS, such as Haswell or Prescott, "
              "and count other verdicts.")  # fmt: skip
@click.option("--hostile", is_flag=True, default=None,
              help="verdict: small problems of hostile operators instead (huge spreads of singular "
              "values, blind directions, repeated rows, wrong adjoints, ...), of which no wrong "
              "answer may be called a success.")  # fmt: skip
@click.option("--overwrite", is_flag=True, help="Replace existing files.")
def bench(what: str, csv_file: Path | None, only: str | None, trials: int | None,
          plot: Path | None, candle: Path | None, gigabytes: float | None,
          folder: Path | None, data: Path | None, quick: bool | None,
          update: bool | None, output: Path | None, markdown: Path | None,
          problems: int | None, seed: int | None,
          jobs: int | None, kernel: str | None, hostile: bool | None,
          overwrite: bool) -> None:  # fmt: skip
    """Measure the cost of the library's parts and the quality of its results, with targets.

    \b
    iteration   a gradient, an HOSVD, a StoTIHT iteration (against TensorLy and NumPy loops),
                and the import; one BLAS thread, half a minute
    stack       a batch of small problems against a loop over single calls, starts that share A, a
                plan and a phase diagram; one BLAS thread, ten minutes
    recover     recover(A, y, rank) with default settings against TIHT and StoTIHT at their
                best step, normalised TIHT, Gauss-Newton from one start and TensorLy; minutes
    structured  recover(A, y, rank) where A is not a matrix in memory: success rate, time and
                memory, each in its own process; a quarter of an hour
    dask        a Gauss-Newton iteration on two worker processes against one process, and the
                bytes transferred; one or two minutes
    regression  estimators.TuckerRegressor against TensorLy's with its default and its best
                ridge: synthetic tensors and an aerial hyperspectral scene; minutes
    realdata    complete(array) and recover(A, y) without a rank on real data, against TensorLy,
                scikit-learn's imputers, means and main effects; a quarter of an hour
    compare     the same few problems with the library, TensorLy, scikit-learn's imputers, PyLops
                and the paper's scripts: error, time, and what has to be given; two minutes
    costs       a step of each solver on sampled entries against the model by which "auto"
                chooses, and the default against ALS on ill-conditioned tensors; a minute
    verdict     recover(A, y) on random problems of many kinds: how often success, status and
                error estimate are right; half an hour, with --hostile eight minutes
    checks      each check of a result on cases with known answers: how often it is wrong, against
                the rate that it states, and the threshold that would have that rate; four minutes
    family      a phase diagram for each format of the paper's family, the ancestor beside the
                default, and the claims of the publications, judged by numbers; a quarter of an hour
    uncertainty coverage and width of error bars (F1), and of conformal intervals for hidden entries
                of real data (F2); two hours
    online      one pass over a stream against a fit to all of it (F3), and a tensor that changes
                against refits on a sliding window (F4); half an hour

    \b
    Yardsticks of `stack`:
      E1  Gauss-Newton steps of 200 problems   E4  a plan for 30x30x30, rank (3,3,3)
      E2  A1 at m = 28 to the verdict          E5  a phase diagram of 36 cells, 10x10x10
      E3  passes of 100 starts of A3

    \b
    Yardsticks of `recover`:
      A1  5x5x6, rank (1,2,2), m from 26       B1  30x30x30, rank (3,3,3), m = 3000
      A2  15x15x15, rank (2,2,2), m from 120   B2  the same, m = 1350
      A3  15x15x15, rank (5,5,5), m = 450      B3  the same, m = 810
      A5  the paper's candle clip              C1  B1 with noise of 10 %
      S   200 small problems: number where     C2  B1 with outliers
          the default is worse than StoTIHT    C3  B1 with unknown rank

    \b
    Yardsticks of `structured`:
      A4   15x15x15, rank (2,2,2), rank-one rows, m = 300 and 200
      B6   50x50x50, rank (2,2,2), rank-one rows, m = 900
      B7   20x20x20x20, rank (2,2,2,2), rank-one rows, m = 3200
      B8   40x40x40x40, rank (3,3,3,3), 3000 Fourier (and cosine) coefficients
      B9   300x400x500, rank (12,4,3), 66750 sampled entries
      B10  1000x1000x1000, rank (5,5,5), 3 million and half a million sampled entries
      O    50x50x40, rank (3,3,3), Gaussian rows in a file read block by block

    \b
    Yardsticks of `realdata` (data that are not available are skipped):
      D0  the paper's candle clip, Gaussian    D6  covid serology
      D1  Birmingham car parks                 D7  fluorescence (kinetic)
      D2  the same, whole days missing         D8  Indian Pines, cosine coefficients
      D3  Hangzhou metro                       N1  sea surface temperature
      D4  the same, whole days missing         N2  ocean temperature
      D5  responses to IL-2                    N3  winds

    \b
    Problems of `compare`:
      photograph  il2  kinetic   values are missing
      lowrank  pines             1000 Gaussian measurements of 8000 entries

    \b
    Formats of `family`:
      sparse  mmv  matrix  tucker  train  hierarchical  tubal  growing  convex  trimmed

    Exit code 0 if every target was met, 3 if one was missed.
    """
    options = {"only": only, "trials": trials, "plot": plot, "candle": candle,
               "gigabytes": gigabytes, "folder": folder, "data": data,
               "quick": quick, "update": update, "output": output, "markdown": markdown,
               "problems": problems,
               "seed": seed, "jobs": jobs, "kernel": kernel, "hostile": hostile}  # fmt: skip
    for name, value in options.items():
        if value is not None and name not in OPTIONS[what]:
            owners = [one for one, names in OPTIONS.items() if name in names]
            known = ", ".join(f"--{one}" for one in ("csv", *OPTIONS[what]))
            raise click.UsageError(
                f"--{name} is not an option of {what}, but of {', '.join(owners)}. The options of "
                f"{what} are {known}."
            )
    files = [file for file in (csv_file, plot, markdown) if file is not None]
    for file in files:
        check_folder(file.parent)
    check_targets(files, overwrite or bool(update))
    goals: list[Any] | None = None
    if what == "family":
        from lowtucker.cli.family import family

        rows = family(only, bool(quick), output, overwrite, bool(update))
        goals = []  # claims are judged, not met
    elif what == "uncertainty":
        from lowtucker.cli.uncertainty import uncertainty

        rows = uncertainty(only, trials, bool(quick), data, DATA)
    elif what == "online":
        from lowtucker.cli.uncertainty import online

        rows = online(only, trials, bool(quick))
    elif what == "recover":
        rows = _recover(only, trials, plot, candle)
    elif what == "structured":
        rows = _structured(only, trials, gigabytes, folder)
    elif what == "dask":
        rows = _dask(gigabytes)
    elif what == "regression":
        rows = _regression()
    elif what == "realdata":
        rows = _realdata(only, data, bool(quick), csv_file if update else None)
    elif what == "compare":
        rows = _compare(only, markdown)
        goals = []  # compared, not met
    elif what == "costs":
        rows = _costs()
    elif what == "verdict":
        rows, goals = _verdict(
            only, problems, bool(quick), seed or 0, jobs or 2, kernel,
            "hostile" if hostile else "usual",
        )  # fmt: skip
    elif what == "checks":
        rows = _checks(bool(quick), seed or 0)
    elif what == "stack":
        rows = _stack(only, bool(quick))
    else:
        rows = _iteration()
    if csv_file is not None:
        from lowtucker.lab.bench.timing import write_csv

        write_csv(rows, csv_file)
    missed = any(row.met is False for row in (rows if goals is None else goals))
    sys.exit(NOT_RECOVERED if missed else 0)


def _iteration() -> list[Any]:
    from lowtucker.lab.bench import iteration

    return _ratios(iteration.run())


def _stack(only: str | None, quick: bool) -> list[Any]:
    from lowtucker.lab.bench import stack
    from lowtucker.lab.bench.timing import REPEATS

    names = stack.NAMES if only is None else stack.chosen(tuple(only.upper().split(",")))
    return _ratios(stack.run(names, 1 if quick else REPEATS))


def _dask(gigabytes: float | None) -> list[Any]:
    check_extras("dask", "distributed", extra="dask")
    from lowtucker.lab.bench import cluster

    return _ratios(cluster.run(gigabytes or 1.0))


def _regression() -> list[Any]:
    check_extras("tensorly", extra="bench")
    check_extras("sklearn", extra="sklearn")
    from lowtucker.estimators import TuckerRegressor
    from lowtucker.lab.bench import regression

    return _ratios(regression.run(TuckerRegressor))


def _costs() -> list[Any]:
    from lowtucker.lab.bench import costs

    return _ratios(costs.run())


def _verdict(
    only: str | None,
    problems: int | None,
    quick: bool,
    seed: int,
    jobs: int,
    kernel: str | None,
    source: str,
) -> tuple[list[Any], list[Any]]:
    from lowtucker.cli import verdict

    if only is not None:
        if problems is not None or quick or kernel is not None:
            raise ValueError(
                "--only of verdict runs the problems that it names: omit --problems, --quick and "
                "--kernel. For another kernel set OPENBLAS_CORETYPE in the environment."
            )
        return verdict.single_problems(seed, verdict.indices_of(only), source)
    count = verdict.QUICK if quick else verdict.PROBLEMS
    return verdict.verdict(problems or count, seed, jobs, kernel, source)


def _checks(quick: bool, seed: int) -> list[Any]:
    from lowtucker.lab.bench import checks

    rows = []
    for row in checks.run(seed, 0.1 if quick else 1.0):
        rows.append(row)
        click.echo(f"  {row.check}: {row.mistake}: {row.wrong} of {row.cases}", err=True)
    columns = ["check", "wrong claim", "statistic", "1, 50, 99 %", "threshold", "n", "wrong",
               "rate", "stated", "met", "needed"]  # fmt: skip
    console().print(table(columns, map(_checks_cells, rows)))
    return rows


def _checks_cells(row: Any) -> list[str]:
    share = "" if math.isnan(row.rate) else f"{row.rate:.2%}"
    quantiles = ", ".join(map(_number, (row.low, row.median, row.high)))
    return [
        row.check, row.mistake, row.statistic, quantiles, row.threshold, str(row.cases),
        str(row.wrong), share, f"{row.stated:.1%}", _met(row.met), _number(row.needed),
    ]  # fmt: skip


def _ratios(measured: Iterable[Any]) -> list[Any]:
    """Print rows of ratios as they are measured, then their table; return the rows."""
    rows = []
    screen = console()
    for row in measured:
        rows.append(row)
        click.echo(f"  {row.what}: {row.ratio:.3g}", err=True)
    screen.print(
        table(
            ["what", "ratio", "target", "met", "times"],
            [[r.what, f"{r.ratio:.3g}", r.target, _met(r.met), r.detail] for r in rows],
        )
    )
    return rows


def _recover(
    only: str | None, trials: int | None, plot: Path | None, candle: Path | None
) -> list[Any]:
    from lowtucker.lab.bench import recover
    from lowtucker.lab.bench.yardsticks import NAMES, chosen

    names = NAMES if only is None else tuple(only.upper().split(","))
    if candle is not None and not candle.exists():
        raise ValueError(f"{candle} does not exist. Check the path.")
    yardsticks = chosen(names, candle or CANDLE)
    check_extras("tensorly", extra="bench")
    if plot is not None:
        check_extras("matplotlib", extra="plot")
        check_picture(plot)
        if not set(names) & set(recover.PHASES):
            raise ValueError("--plot shows A1 and A2: include one of them in --only.")
    if "A5" in names and all(one.name != "A5" for one in yardsticks):
        click.echo(f"  A5 is skipped: the authors' clip is not at {CANDLE}", err=True)
    rows = []
    for row in recover.run(yardsticks, trials):
        rows.append(row)
        work = f"{row.work} m = {row.m}" if row.m else row.work
        note = f" ({row.note})" if row.note else ""
        click.echo(f"  {work} {row.method}: {row.measure} {_value(row)}{note}", err=True)
    rows.sort(key=lambda row: NAMES.index(row.work))
    columns = ["work", "m", "method", "trials", "", "passes", "to tol", "A @ x", "MB", "target",
               "met", ""]  # fmt: skip
    console().print(table(columns, map(_cells, rows)))
    if plot is not None:
        write_picture(recover.phase_plot(rows), plot, dpi=150)
    return rows


def _structured(
    only: str | None, trials: int | None, gigabytes: float | None, folder: Path | None
) -> list[Any]:
    from lowtucker.lab.bench import structured

    names = structured.NAMES if only is None else tuple(only.upper().split(","))
    works = structured.chosen(names, gigabytes or 2.0, None if folder is None else str(folder))
    if "O" not in names and (gigabytes, folder) != (None, None):
        raise ValueError("--gigabytes and --folder apply to O: include it in --only.")
    if folder is not None:
        check_folder(folder)
    rows = []
    for row in structured.run(works, trials):
        rows.append(row)
        reached = [f"recovered {row.recovered:.1%} in {row.seconds:.3g} s"] if row.trials else []
        said = "; ".join(filter(None, [*reached, row.note]))
        click.echo(f"  {row.work} m = {row.m}: {said}", err=True)
    columns = ["work", "m", "trials", "recovered", "error", "s", "worst s", "passes", "MB",
               "target", "met", ""]  # fmt: skip
    console().print(table(columns, map(_structured_cells, rows)))
    return rows


def _realdata(only: str | None, data: Path | None, quick: bool, file: Path | None) -> list[Any]:
    """Measure; return the rows, after those of an earlier run that they do not replace."""
    from lowtucker.lab.bench import realdata

    works = realdata.chosen(realdata.NAMES if only is None else tuple(only.upper().split(",")))
    if data is not None and not data.is_dir():
        raise ValueError(f"--data {data} is not a folder. Check the path.")
    check_extras("tensorly", extra="bench")
    check_extras("sklearn", extra="sklearn")
    earlier = realdata.read(file) if file is not None and file.exists() else []
    rows = []
    for row in realdata.run(works, data or DATA, quick):
        rows.append(row)
        found = "" if math.isnan(row.error) else f"{_error(row)} in {row.seconds:.3g} s"
        said = "; ".join(filter(None, [found, row.note]))
        click.echo(f"  {row.work} {row.data}, {row.method}: {said}", err=True)
    columns = ["work", "data", "method", "error", "CPU s", "passes", "goal", "met", "published", ""]
    console().print(table(columns, map(_realdata_cells, rows)))
    return realdata.updated(earlier, rows) if earlier else rows


def _compare(only: str | None, markdown: Path | None) -> list[Any]:
    check_extras("tensorly", extra="bench")
    check_extras("sklearn", extra="sklearn")
    check_extras("PIL", extra="video")
    from lowtucker.lab.bench import compare

    rows = []
    for row in compare.run(compare.chosen(compare.NAMES if only is None else only.split(","))):
        rows.append(row)
        found = "" if math.isnan(row.error) else f"error {row.error:.3g} in {row.seconds:.3g} s; "
        click.echo(f"  {row.problem}, {row.method}: {found}{row.note}", err=True)
    columns = ["problem", "method", "given", "error", "CPU s", "time / ours", ""]
    console().print(table(columns, map(_compare_cells, rows)))
    if markdown is not None:
        from lowtucker.io import replacing

        with replacing(markdown) as file:
            file.write(compare.markdown(rows).encode())
    return rows


def _compare_cells(row: Any) -> list[str]:
    numbers = map(_number, (row.error, row.seconds, row.ratio))
    return [row.problem, row.method, row.given, *numbers, row.note]


def _realdata_cells(row: Any) -> list[str]:
    return [
        row.work, row.data, row.method, _error(row), _number(row.seconds), _number(row.passes),
        row.target, _met(row.met), row.published, row.note,
    ]  # fmt: skip


def _error(row: Any) -> str:
    return "" if math.isnan(row.error) else f"{row.measure} {row.error:.3g}"


def _structured_cells(row: Any) -> list[str]:
    share = "" if math.isnan(row.recovered) else f"{row.recovered:.1%}"
    numbers = (row.error, row.seconds, row.worst, row.passes, row.memory)
    return [
        row.work, str(row.m), str(row.trials), share, *map(_number, numbers),
        row.target, _met(row.met), row.note,
    ]  # fmt: skip


def _cells(row: Any) -> list[str]:
    spread = f" ({_number(row.time_least)}-{_number(row.time_greatest)})"
    time = "" if math.isnan(row.time) else _number(row.time) + spread
    return [
        row.work, str(row.m or ""), row.method, str(row.trials), f"{row.measure} {_value(row)}",
        _number(row.passes), _number(row.passes_to_tol), time, _number(row.memory), row.target,
        _met(row.met), row.note,
    ]  # fmt: skip


def _number(number: float) -> str:
    return "" if math.isnan(number) else f"{number:.3g}"


def _value(row: Any) -> str:
    is_share = row.measure in ("recovered", "rank found")
    return f"{row.value:.1%}" if is_share else f"{row.value:.4g}"


def _met(met: bool | None) -> str:
    return {True: "yes", False: "no", None: ""}[met]
