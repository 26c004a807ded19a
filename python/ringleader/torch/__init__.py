"""Guards for a PyTorch job: :func:`guard` against silent corruption, :func:`setup` for failures that can be diagnosed."""

from ringleader.torch._guard import Guard, guard
from ringleader.torch._setup import setup

__all__ = ["Guard", "guard", "setup"]
