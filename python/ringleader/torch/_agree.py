"""Options of the guard that must be the same on all ranks: looked at once, when it is set up.

With another ``every`` or ``lag`` ranks would gather at different steps, and with other ``gradients``, ``parameters`` or names
different things: the job would hang, or be told of faults that are none.

Ranks meet in the store that ``init_process_group`` made, without a collective: a rank that never comes is named, where a
collective would hang or mix with those of training. One rank of each reach reads what all have written, and writes what differs.
Where torch keeps no such store (MPI), nothing is looked at.
"""

import hashlib
import json
import time
import weakref

import torch.distributed as dist

from ringleader.torch._ranks import named

# Seconds between two looks into the store: the first, and the most. 10,000 ranks ask it 20,000 times a second at most.
_FIRST_WAIT, _MOST_WAIT = 0.005, 0.5
# Seconds that the others give the one that reads beyond the time that it has itself.
_GRACE = 30.0
# Seconds that the one that reads stays, if something differs, so that all have read it: it may be the host of the store.
_STAY = 20.0
# How many guards each reach of a process group has seen: their keys differ.
_turns = weakref.WeakKeyDictionary()


class Reach:
    """Ranks that train together, and the names of the parameters that some of them compare."""

    def __init__(self, ranks):
        self.ranks = sorted(ranks)
        self.names = []


def disagreements(reaches, rank, options):
    """What differs over ranks that must have the same options, in words: the same on all that compare anything.

    A rank that compares nothing tells its options and waits for no one.

    Args:
        reaches: see :class:`Reach`; this rank is in each.
        rank: this rank.
        options: values by name; those that are compared at all have ``gradients`` or ``parameters``.
    """
    store = _store()
    if store is None:
        return []
    meetings = [_Meeting(store, reach, rank, options) for reach in reaches]
    found = [meeting.verdict() for meeting in meetings if _compares(options)]
    return [words for words in found if words]


def _compares(options):
    return bool(options["gradients"] or options["parameters"])


def _store():
    """The store of the default group, or None."""
    try:
        return dist.distributed_c10d._get_default_store()
    except (AttributeError, KeyError, RuntimeError, ValueError):
        return None


def _timeout_s(store):
    """As long as a collective would wait, as far as the store knows."""
    timeout = getattr(store, "timeout", None)
    return timeout.total_seconds() if timeout is not None else 300.0


class _Meeting:
    """The options of the ranks of one reach, in the store."""

    def __init__(self, store, reach, rank, options):
        self.store, self.ranks, self.rank = store, reach.ranks, rank
        digest = hashlib.sha256(repr(reach.ranks).encode()).hexdigest()[:16]
        turns = _turns.setdefault(dist.group.WORLD, {})
        turns[digest] = turn = turns.get(digest, 0) + 1
        self.key = "ringleader/guard/%s/%d/" % (digest, turn)
        names = hashlib.sha256("\n".join(reach.names).encode()).hexdigest()
        self.own = dict(options, number=len(reach.names), names=names)
        store.set(self.key + str(rank), json.dumps(self.own, default=int))

    def verdict(self):
        """What differs, in words; empty if nothing does."""
        timeout_s = _timeout_s(self.store)
        reader = self.ranks[0]
        if self.rank != reader:
            end = time.monotonic() + timeout_s + _GRACE
            if not self._came(str(reader), end):
                return "rank %d has set up no guard in %.0f s" % (reader, timeout_s)
            row = self._row(reader)
            if not _compares(row):
                # It waits for no one, and reads nothing.
                return _words({reader: row, self.rank: self.own})
            if not self._came("verdict", end):
                return "rank %d has not answered in %.0f s" % (reader, timeout_s)
            words = self.store.get(self.key + "verdict").decode()[1:]
            self._leave(words)
            return words
        return self._read(timeout_s)

    def _read(self, timeout_s):
        """Reads what all have written, and writes what differs."""
        end = time.monotonic() + timeout_s
        rows = {rank: self._row(rank) for rank in self.ranks if self._came(str(rank), end)}
        absent = [rank for rank in self.ranks if rank not in rows]
        words = "%s set up no guard in %.0f s" % (_have(absent), timeout_s) if absent else _words(rows)
        # A value of no length is not for every store.
        self.store.set(self.key + "verdict", "." + words)
        self._leave(words)
        if words:
            n_readers = sum(map(_compares, rows.values()))
            end = time.monotonic() + _STAY
            while self.store.add(self.key + "left", 0) < n_readers and time.monotonic() < end:
                time.sleep(_FIRST_WAIT)
        return words

    def _came(self, what, end):
        """Waits until a key is there; False if it is not by this time of the monotonic clock."""
        wait = _FIRST_WAIT
        while not self.store.check([self.key + what]):
            if time.monotonic() >= end:
                return False
            time.sleep(wait)
            wait = min(wait * 1.5, _MOST_WAIT)
        return True

    def _row(self, rank):
        return json.loads(self.store.get(self.key + str(rank)))

    def _leave(self, words):
        """The last one that leaves takes the keys along, if nothing differs and the store can."""
        if self.store.add(self.key + "left", 1) < len(self.ranks) or words:
            return
        for what in [*map(str, self.ranks), "verdict", "left"]:
            try:
                self.store.delete_key(self.key + what)
            except RuntimeError:
                return


def _words(rows):
    """What differs in rows of options by rank, in words."""
    rows = dict(sorted(rows.items()))
    if not any(map(_compares, rows.values())):
        return ""
    differing = []
    for name in next(iter(rows.values())):
        camps = {}
        for rank, row in rows.items():
            camps.setdefault(json.dumps(row[name]), []).append(rank)
        if len(camps) == 1:
            continue
        if name == "names":
            # Another number has other names.
            if len({row["number"] for row in rows.values()}) == 1:
                differing.append("other parameters are compared on %s" % " than on ".join(map(named, camps.values())))
            continue
        label = "the number of parameters to compare" if name == "number" else name
        listed = ", ".join("%s on %s" % (_value(value), named(ranks)) for value, ranks in camps.items())
        differing.append("%s differs: %s" % (label, listed))
    words = "; ".join(differing)
    if words and len({(row["number"], row["names"]) for row in rows.values()}) > 1:
        words += "; group= names the ranks that hold the same parameters"
    return words


def _value(value):
    return {"true": "True", "false": "False", "null": "None"}.get(value, value)


def _have(ranks):
    return "%s %s" % (named(ranks), "have" if len(ranks) > 1 else "has")
