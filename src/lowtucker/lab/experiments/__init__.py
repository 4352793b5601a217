"""Experiments: a frozen description, a runner, a picture."""
