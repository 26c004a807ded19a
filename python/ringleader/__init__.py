"""ringleader: finds the rank that stalls, breaks or poisons a multi-GPU training job.

``ringleader.diagnose(path)`` reads evidence and answers with the report as a dict. ``ringleader.torch.guard`` watches a running
job for silent corruption, ``ringleader.torch.setup`` makes its next failure diagnosable. Nothing is imported here: torch is
needed for ``ringleader.torch`` alone.
"""

__all__ = ["RingleaderError", "diagnose", "plugin", "program"]


def __getattr__(name):
    if name in __all__:
        from ringleader import _program

        return getattr(_program, name)
    raise AttributeError("module 'ringleader' has no attribute {!r}".format(name))
