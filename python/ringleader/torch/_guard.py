"""``guard``: digests that must agree over data-parallel ranks, and NaN and Inf where they begin.

What is compared over whom:

* parameters and reduced gradients that are whole on every rank (DDP, plain loops): over the data-parallel group;
* DTensors (FSDP2): their local shards, over the mesh dimensions on which they are replicated. Shards that no other rank holds
  have nobody to be compared with: they are checked for NaN and Inf alone, and the guard says so once.

A fault before or within the reduction reaches all ranks alike. Agreement cannot see it; NaN and Inf in local gradients can be
seen, before the reduction mixes them.

Nothing here waits for the GPU while all is well: digests are computed and gathered behind what is queued, and read a step later.
"""

import atexit
import math
import time
import warnings
import weakref

import torch
import torch.distributed as dist

from ringleader.events import EVENTS
from ringleader.torch._agree import Reach, disagreements
from ringleader.torch._digest import Digester, folded
from ringleader.torch._gather import Gathered
from ringleader.torch._later import Aside, Later
from ringleader.torch._local import Watch, held, is_capturing, is_sharded, largest
from ringleader.torch._ranks import named, spans
from ringleader.torch._ranks import odd as odd_of

try:
    from torch.distributed.tensor import Replicate
except ImportError:  # torch before 2.5
    Replicate = None

# Losses that are kept to tell a spike from noise, and how far one stands out: in robust standard deviations.
_LOSSES = 100
_SPIKE = 8.0
# What makes the median of absolute deviations a standard deviation.
_MAD = 1.4826

# Why a rank stops, as it tells the others with a check: its place here, from 1 on.
_STOPS = {
    "nan": "found NaN or Inf in its local gradients",
    "spike": "has a loss that jumped or is no number",
    "digest": "stopped with ranks that it was compared with",
}


class Disagreement(RuntimeError):
    """Values that must be identical on all ranks are not."""


def guard(
    model=None, optimizer=None, every=100, group=None, gradients=True, parameters=True, local=True, action="warn", lag=None
):
    """Watches a model while it trains.

    Args:
        model: the module: plain, ``DistributedDataParallel`` or sharded with ``fully_shard``; or an optimizer.
        optimizer: the optimizer, if the model was given first. Checks happen around its ``step``.
        every: compare digests every so many optimizer steps. NaN and Inf are looked for at the same steps.
        group: ranks that hold the same parameters; by default DDP's own, else all. DTensors bring their own.
        gradients: compare reduced gradients before the step.
        parameters: compare parameters after the step.
        local: look for NaN and Inf in local gradients before they are reduced.
        action: ``"warn"``, ``"raise"``, or a function that gets each event as a dict. ``"raise"`` raises :class:`Disagreement`
            on all ranks of a group that is compared, in the same step.
        lag: steps after which a check is read. With 0 each check waits for the GPU, and what it finds is told before the
            optimizer uses the gradients. By default 1 on GPUs, 0 on the CPU and with ``action="raise"``.

    All ranks of a group call it, with the same ``every``, ``lag``, ``gradients`` and ``parameters``, and ``"raise"`` on all or
    none. They are compared here, once, through the store of ``init_process_group``, without a collective; a rank that compares
    anything waits for the others, at most the group's timeout.

    Returns:
        The :class:`Guard`; ``close()`` takes it off again.

    Raises:
        ValueError: an option has no meaning; or an option differs over the ranks, or a rank has set up no guard: then on all that
            did, with the option and the ranks.
        TypeError: there is no optimizer.
    """
    if optimizer is None and isinstance(model, torch.optim.Optimizer):
        model, optimizer = None, model
    if optimizer is None:
        raise TypeError("guard needs the optimizer: guard(model, optimizer)")
    return Guard(model, optimizer, every, group, gradients, parameters, local, action, lag)


class _Kind:
    """Tensors that are compared over one group."""

    def __init__(self, group, lag):
        self.group, self.lag = group, lag
        self.ranks = dist.get_process_group_ranks(group)
        self.names, self.parameters = [], []
        self.gradients = None
        self._digester = Digester()

    def device(self, tensors):
        """Where the digests are: the device of the first tensor."""
        return next((held(t).device for t in tensors if t is not None), torch.device("cpu"))

    def digests(self, tensors):
        """A digest for each tensor, int64, on one device; 0 where there is none. Waits for nothing."""
        locals_ = [None if t is None else held(t) for t in tensors]
        device = self.device(tensors)
        total = self._digester([t if t is not None and t.device == device else None for t in locals_], device)
        for other in {t.device for t in locals_ if t is not None} - {device}:
            total = total + self._digester([t if t is not None and t.device == other else None for t in locals_], other).to(device)
        return total


class _Check:
    """Digests of a step that were gathered and not yet read."""

    def __init__(self, kind, step, parts, gathered):
        self.kind, self.step, self.parts, self.gathered = kind, step, parts, gathered


class Guard:
    """See :func:`guard`."""

    def __init__(self, model, optimizer, every, group, gradients, parameters, local, action, lag):
        if every < 1:
            raise ValueError("every counts steps, from 1 on")
        if not (action in ("warn", "raise") or callable(action)):
            raise ValueError("action is 'warn', 'raise' or a function")
        self.model, self.optimizer, self.every, self.action = model, optimizer, every, action
        self.step = 0
        self.rank = dist.get_rank() if _is_distributed() else 0
        self.seconds = 0.0
        self._gradients, self._parameters = gradients, parameters
        self._losses, self._loss_queue = [], []
        self._told = set()
        self._named = _named(model, optimizer)
        self._known = {name for name, _ in self._named}
        on_gpu = any(parameter.is_cuda for _, parameter in self._named)
        self.lag = lag if lag is not None else int(on_gpu and action != "raise")
        self._aside = Aside()
        self._checks, self._nans = [], []
        # What was noted of the step that is checked; and what stops this rank, with its kind, once the others know.
        self._noted, self._held = None, None
        self._kinds, reaches = self._sort(group)
        self._agree(reaches)
        self._warm_up()
        # Hooks come last: a guard that could not be set up leaves nothing on the model.
        self._watch = Watch(model, self._named, self._is_due, self._tell_once) if local else None
        self._handles = [
            optimizer.register_step_pre_hook(self._before_step),
            optimizer.register_step_post_hook(self._after_step),
        ]
        atexit.register(_finish, weakref.ref(self))

    # --- what is compared over which group

    def _sort(self, group):
        """Parameters by the group over which they must agree, and over whom options must."""
        kinds, reaches, meshes = {}, {}, {}
        alone = 0
        default = group
        if default is None and isinstance(self.model, torch.nn.parallel.DistributedDataParallel):
            default = self.model.process_group
        for name, parameter in self._named:
            if is_sharded(parameter):
                dims = [n for n, where in enumerate(parameter.placements) if isinstance(where, Replicate)]
                dims = [n for n in dims if parameter.device_mesh.size(n) > 1]
                if not dims:
                    alone += 1
                else:
                    # A shard's copies are on some ranks of its mesh; all of these wait for each other.
                    mesh = parameter.device_mesh
                    if mesh not in meshes:
                        meshes[mesh] = tuple(mesh.mesh.reshape(-1).tolist())
                    reaches.setdefault(meshes[mesh], Reach(meshes[mesh])).names.append(name)
                for n in dims:
                    self._add(kinds, parameter.device_mesh.get_group(n), name, parameter)
            elif _is_distributed():
                over = default if default is not None else dist.group.WORLD
                if dist.get_world_size(over) > 1:
                    self._add(kinds, over, name, parameter)
                    ranks = tuple(dist.get_process_group_ranks(over))
                    reaches.setdefault(ranks, Reach(ranks)).names.append(name)
        if alone and not kinds and self.rank == 0:
            warnings.warn(
                "ringleader guard: all %d parameters are sharded without a copy on another rank; there is nothing to "
                "compare them with, only NaN and Inf are checked" % alone,
                stacklevel=4,
            )
        return list(kinds.values()), list(reaches.values())

    def _add(self, kinds, group, name, parameter):
        ranks = tuple(dist.get_process_group_ranks(group))
        kind = kinds.setdefault(ranks, _Kind(group, self.lag))
        kind.names.append(name)
        kind.parameters.append(parameter)

    def _agree(self, reaches):
        """Raises on all ranks if options differ: they would gather at different steps, and hang."""
        # Of the actions only raising must be everyone's: a function, or none, stops nobody.
        action = "raise" if self.action == "raise" else "not raise"
        options = dict(
            every=self.every, lag=self.lag, gradients=bool(self._gradients), parameters=bool(self._parameters), action=action
        )
        found = disagreements(reaches, self.rank, options)
        if found:
            raise ValueError("ringleader guard: all ranks must set it up with the same options; %s" % "; ".join(found))

    def _warm_up(self):
        """Loads kernels, weights and tables now, so that the first check costs no more than the others.

        Where it cannot (parameters that are not on the GPU yet, work that is being recorded), the first check loads them: it takes
        longer and finds the same.
        """
        on_gpu = [parameter for _, parameter in self._named if parameter.is_cuda]
        if not on_gpu or is_capturing():
            return
        for device, dtype in {(p.device, p.dtype) for p in on_gpu}:
            Later(largest(torch.zeros(1, dtype=dtype, device=device))).read()
        for kind in self._kinds:
            if not any(parameter.is_meta for parameter in kind.parameters):
                Later(folded(kind.digests(kind.parameters))).read()

    # --- around the step

    def _is_due(self):
        return (self.step + 1) % self.every == 0

    def _before_step(self, *_):
        self.step += 1
        if not self._checks and not self._nans and self.step % self.every:
            if self._watch is not None:
                self._watch.forget()
            return
        if is_capturing():
            return
        start = time.perf_counter()
        self._read(self.step)
        if self.lag:
            self._raise()
        if self.step % self.every == 0:
            self._look()
        elif self._watch is not None:
            self._watch.forget()
        self.seconds += time.perf_counter() - start
        # Told with the gradients, before the optimizer uses them; else with the parameters, after the step.
        if self._gradients or not self._tells(self.step):
            self._raise()

    def _look(self):
        """Takes what backward noted, and the digests of the reduced gradients."""
        noted = self._noted = self._watch.take() if self._watch is not None else None
        if noted is not None:
            self._nans.append((self.step, noted))
            if self.lag == 0:
                self._read_nans(self.step)
        for kind in self._kinds if self._gradients else ():
            gradients = [parameter.grad for parameter in kind.parameters]
            if kind.lag == 0:
                self._compare(kind, "gradient", gradients)
            else:
                kind.gradients = kind.digests(gradients)

    def _after_step(self, *_):
        if self._watch is not None:
            self._watch.turn()
        if self.step % self.every or is_capturing():
            return
        start = time.perf_counter()
        for kind in self._kinds:
            parts, kind.gradients = [("gradient", kind.gradients)] if kind.gradients is not None else [], None
            if self._parameters and kind.lag == 0:
                self._compare(kind, "parameter", kind.parameters)
            elif self._parameters:
                parts.append(("parameter", kind.digests(kind.parameters)))
            if parts:
                # One number for all digests of a part.
                own = torch.cat([folded(digests) for _, digests in parts])
                self._checks.append(_Check(kind, self.step, parts, self._gather(kind, own)))
        self.seconds += time.perf_counter() - start
        self._raise()

    # --- stopping together

    def _gather(self, kind, numbers):
        """Gathers numbers of all ranks of a kind. If all are to raise, whether this rank stops goes along."""
        if self.action == "raise":
            numbers = torch.cat([numbers, self._stop(numbers.device)])
        return Gathered(numbers, kind.group, self._aside)

    def _stop(self, device):
        """Why this rank stops, as a place in ``_STOPS``, or 0: int64 of shape [1] on a device."""
        if self._held is not None:
            return torch.full((1,), list(_STOPS).index(self._held[0]) + 1, device=device)
        if self.lag and self._noted is not None:
            # Not read yet: what it finds is "nan", the first place.
            return self._noted.any_bad(device)
        return torch.zeros(1, dtype=torch.int64, device=device)

    def _heed(self, kind, rows, step):
        """Stops this rank with others of its kind that stop."""
        if self.action != "raise":
            return
        why = {rank: row[-1] for rank, row in zip(kind.ranks, rows) if row[-1]}
        if self.rank in why:
            # Its own message says where.
            self._read_nans(step)
        if why and self._held is None:
            first = min(why.values())
            ranks = [rank for rank, reason in why.items() if reason == first]
            message = "%s %s at step %d; this rank stops, too" % (named(ranks), list(_STOPS.values())[first - 1], step)
            self._held = ("digest", message)

    def _tells(self, step):
        """Whether a check of this step, read at once, tells the others that this rank stops."""
        return self.lag == 0 and step % self.every == 0 and bool(self._kinds) and bool(self._gradients or self._parameters)

    def _raise(self):
        """Raises what was held until the others know."""
        if self._held is not None:
            (_, message), self._held = self._held, None
            raise Disagreement("ringleader guard: " + message)

    # --- reading

    def _read(self, until):
        """Reads what was queued at least a lag before this step. All ranks of a group read at the same steps."""
        self._read_nans(until - self.lag)
        while self._checks and self._checks[0].step + self.lag <= until:
            check = self._checks.pop(0)
            rows = check.gathered.rows()
            self._heed(check.kind, rows, check.step)
            for n, (what, digests) in enumerate(check.parts):
                if len({row[n] for row in rows}) > 1:
                    # From now on read at once, with a second look.
                    check.kind.lag = 0
                    self._disagree(check.kind, what, check.step, digests, True)

    def _read_nans(self, until):
        """Names the first gradient with NaN or Inf on this rank. Backward makes the last layer's gradients first, so that
        where it began is the one that was made first."""
        while self._nans and self._nans[0][0] <= until:
            step, noted = self._nans.pop(0)
            bad = noted.bad()
            if not bad:
                continue
            name, is_nan = bad[0]
            what = "NaN" if is_nan else "Inf"
            self._emit(
                "nan",
                "rank %d: the local gradient of %s holds %s at step %d, before it was reduced (%d of %d gradients)"
                % (self.rank, name, what, step, len({name for name, _ in bad}), noted.n),
                step,
                parameter=name,
                layer=self._layer(name),
                value=what,
            )

    def _layer(self, name):
        """The module of a parameter; a name without a parameter is already a module."""
        return (name.rpartition(".")[0] or name) if name in self._known else name

    # --- comparison

    def _compare(self, kind, what, tensors):
        """Compares at once, and looks a second time if ranks disagree."""
        digests = kind.digests(tensors)
        rows = self._gather(kind, folded(digests)).rows()
        self._heed(kind, rows, self.step)
        if len({row[0] for row in rows}) == 1:
            return
        # All ranks are here: they have seen the same numbers.
        again = kind.digests(tensors)
        self._disagree(kind, what, self.step, digests, bool((again == digests).all()))

    def _disagree(self, kind, what, step, digests, is_steady):
        """Names who differs, and in what first: the digests of all are gathered."""
        own = torch.cat([digests, torch.tensor([int(is_steady)], device=digests.device)])
        rows = Gathered(own, kind.group, self._aside).rows()
        ranks = kind.ranks
        unsteady = [ranks[k] for k, row in enumerate(rows) if not row[-1]]
        differing = [k for k in range(len(kind.names)) if len({row[k] for row in rows}) > 1]
        if not differing:
            return
        odd = unsteady or odd_of(ranks, [row[differing[0]] for row in rows])
        name = kind.names[differing[0]]
        first = what not in self._told
        self._told.add(what)
        began = "never in sync" if step <= self.every and first else "in sync before"
        if not odd:
            who = "ranks %s disagree and none has the majority" % ", ".join(map(str, ranks))
        else:
            who = "rank%s %s" % ("s" if len(odd) > 1 else "", ", ".join(map(str, odd)))
            who += " reads other bits each time" if unsteady else " differs from the majority"
        self._emit(
            "digest",
            "%s at step %d: %s; the first %s that differs is %s, %d of %d differ (%s; %s)"
            % (what, step, who, what, name, len(differing), len(kind.names), began, self._gpus(kind.group)),
            step,
            parameter=name,
            layer=self._layer(name),
            value=what,
            group=spans(ranks),
            agree=False,
            odd=odd,
            differing=len(differing),
            of=len(kind.names),
            never_in_sync=began == "never in sync",
        )

    def _gpus(self, group):
        """Kinds of GPU and versions of torch over the group: another kind rounds differently, which is not a fault."""
        own = torch.cuda.get_device_name() if torch.cuda.is_available() and torch.cuda.is_initialized() else "CPU"
        own += ", torch " + torch.__version__
        try:
            everyone = [None] * dist.get_world_size(group)
            dist.all_gather_object(everyone, own, group=group)
        except (RuntimeError, ValueError):
            everyone = [own]
        return " and ".join(sorted(set(everyone)))

    # --- loss

    def loss(self, value):
        """Takes the loss of a step, a number or a tensor: notes a spike, or NaN and Inf. On a GPU it is read a step later.

        With ``action="raise"`` it raises here, on this rank alone; in a step whose check is read at once, within
        ``optimizer.step``, on all ranks that are compared.
        """
        if not torch.is_tensor(value) or not value.is_cuda or self.lag == 0:
            self._judge_loss(float(value), self.step + 1)
        else:
            self._loss_queue.append((Later(value.detach().reshape(())), self.step + 1))
            while len(self._loss_queue) > self.lag:
                self._read_loss()
        if not self._tells(self.step + 1):
            self._raise()

    def _read_loss(self):
        later, step = self._loss_queue.pop(0)
        self._judge_loss(later.read(), step)

    def _judge_loss(self, value, step):
        if not math.isfinite(value):
            self._emit("spike", "rank %d: the loss is %s at step %d" % (self.rank, value, step), step, value=str(value))
            return
        if len(self._losses) >= 20:
            ordered = sorted(self._losses)
            middle = ordered[len(ordered) // 2]
            spread = sorted(abs(x - middle) for x in ordered)[len(ordered) // 2] * _MAD
            if value - middle > _SPIKE * max(spread, 1e-3 * abs(middle)):
                self._emit(
                    "spike",
                    "rank %d: the loss is %.4g at step %d, %.4g before" % (self.rank, value, step, middle),
                    step,
                    value=value,
                )
        self._losses.append(value)
        del self._losses[:-_LOSSES]

    # --- reporting

    def _emit(self, kind, message, step, **fields):
        event = EVENTS.write(kind, rank=self.rank, step=step, **fields)
        # All ranks saw it and all keep it; to say it once, the odd ones and one of the others are enough. Raising happens
        # on all ranks together.
        odd = event.get("odd")
        if kind == "digest" and self.action == "warn" and odd and self.rank not in odd:
            world = range(dist.get_world_size()) if _is_distributed() else [0]
            if self.rank != min((rank for rank in world if rank not in odd), default=self.rank):
                return
        if callable(self.action):
            self.action(dict(event, message=message))
        elif self.action == "raise":
            # Not here: first the others are told.
            self._held = self._held or (kind, message)
        else:
            warnings.warn("ringleader guard: " + message, stacklevel=5)

    def _tell_once(self, key, message):
        if key not in self._told:
            self._told.add(key)
            warnings.warn("ringleader guard: " + message, stacklevel=4)

    def close(self):
        """Reads what is still unread, and takes all hooks off. Call it on all ranks, before the process group is destroyed."""
        self._remove()
        while self._loss_queue:
            self._read_loss()
        self._read(self.step + self.lag)
        self._raise()

    def _remove(self):
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        if self._watch is not None:
            self._watch.remove()

    def _finish(self):
        """At the end of the process: what is there is told, without another rank; the parameter is not known then."""
        self._remove()
        self.action = "warn" if self.action == "raise" else self.action
        if self._held is not None:
            warnings.warn("ringleader guard: " + self._held[1], stacklevel=2)
        try:
            self._nans = [(step, noted) for step, noted in self._nans if noted.is_there()]
            self._read_nans(self.step)
        except RuntimeError:
            # The GPU has failed: what the rank says of that stays its last word.
            return
        for check in self._checks:
            try:
                if not check.gathered.is_there():
                    continue
                rows = check.gathered.rows()
            except RuntimeError:
                # The GPU has failed: what the rank says of that stays its last word.
                return
            ranks = check.kind.ranks
            for n, (what, _) in enumerate(check.parts):
                column = [row[n] for row in rows]
                if len(set(column)) > 1:
                    odd = odd_of(ranks, column)
                    who = "ranks %s disagree" % ", ".join(map(str, odd or ranks))
                    message = "%s at step %d: %s; the job ended before the first that differs was known"
                    self._emit(
                        "digest",
                        message % (what, check.step, who),
                        check.step,
                        value=what,
                        group=spans(ranks),
                        agree=False,
                        odd=odd,
                        of=len(check.kind.names),
                    )
        self._checks.clear()


def _finish(reference):
    found = reference()
    if found is not None:
        found._finish()


def _named(model, optimizer):
    """Parameters that are trained, with names; of an optimizer alone, by group and place."""
    if model is not None:
        inner = model.module if isinstance(model, torch.nn.parallel.DistributedDataParallel) else model
        return [(name, p) for name, p in inner.named_parameters() if p.requires_grad]
    named = []
    for number, group in enumerate(optimizer.param_groups):
        named.extend(("group %d parameter %d" % (number, n), p) for n, p in enumerate(group["params"]) if p.requires_grad)
    return named


def _is_distributed():
    return dist.is_available() and dist.is_initialized()
