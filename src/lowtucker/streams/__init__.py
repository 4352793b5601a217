"""Measurements that arrive one after the other."""

from lowtucker.streams.online import Online

__all__ = ["Online"]
