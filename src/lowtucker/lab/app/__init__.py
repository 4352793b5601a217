"""The playground: a page on this machine to try recoveries, ``lowtucker app``.

A face only: settings come in, the package computes in processes of their own, events go out.
"""
