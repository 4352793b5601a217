"""The playground: a local web page for trying recoveries, ``lowtucker app``.

The server parses settings, runs them in worker processes, and streams events to the page.
"""
