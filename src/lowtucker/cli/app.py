"""``lowtucker app``: the playground in the browser."""

from __future__ import annotations

import click

from lowtucker.cli.common import check_extras

__all__ = ["app"]


@click.command()
@click.option("--port", type=click.IntRange(0, 65535), default=8000, show_default=True,
              help="Port to listen on; 0 takes one that is free.")  # fmt: skip
@click.option("--host", default="127.0.0.1", show_default=True,
              help="Address to listen on; others than the default let other machines in."
              )  # fmt: skip
@click.option("--open/--no-open", "opens", default=False, help="Open it in the browser.")
def app(port: int, host: str, opens: bool) -> None:
    """Open a page on this machine to try recoveries: synthetic tensors, your data, phase diagrams.

    Nothing is sent anywhere: the page needs no network. Ctrl-C ends it.
    """
    check_extras("starlette", "uvicorn", "av", "jinja2", "matplotlib", extra="app")
    from lowtucker.lab.app.server import listen, serve

    listening = listen(host, port)
    number = listening.getsockname()[1]
    url = f"http://{f'[{host}]' if ':' in host else host}:{number}/"
    if host not in ("127.0.0.1", "localhost", "::1"):
        click.echo(
            f"Warning: --host {host} lets anybody who reaches this machine run computations and "
            "send files. There is no password.",
            err=True,
        )

    def ready() -> None:
        click.echo(f"The playground is at {url}  (Ctrl-C ends it)")
        if opens:
            click.launch(url)

    serve(listening, host, ready=ready)
