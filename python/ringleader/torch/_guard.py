"""``guard``: digests that must agree over data-parallel ranks, and NaN and Inf where they begin.

What is compared over whom:

* parameters and reduced gradients that are whole on every rank (DDP, plain loops): over the data-parallel group;
* DTensors (FSDP2): their local shards, over the mesh dimensions on which they are replicated. Shards that no other rank holds
  have nobody to be compared with: they are checked for NaN and Inf alone, and the guard says so once.

A fault before or within the reduction reaches all ranks alike. Agreement cannot see it; NaN and Inf in local gradients can be
seen, before the reduction mixes them.
"""

import math
import time
import warnings

import torch
import torch.distributed as dist

from ringleader.events import EVENTS
from ringleader.torch._digest import digest

try:
    from torch.distributed.tensor import DTensor, Replicate
except ImportError:  # torch before 2.5
    DTensor = Replicate = None

# Losses that are kept to tell a spike from noise, and how far one stands out: in robust standard deviations.
_LOSSES = 100
_SPIKE = 8.0
# What makes the median of absolute deviations a standard deviation.
_MAD = 1.4826


class Disagreement(RuntimeError):
    """Values that must be identical on all ranks are not."""


def guard(model=None, optimizer=None, every=100, group=None, gradients=True, parameters=True, local=True, action="warn"):
    """Watches a model while it trains.

    Args:
        model: the module: plain, ``DistributedDataParallel`` or sharded with ``fully_shard``; or an optimizer.
        optimizer: the optimizer, if the model was given first. Checks happen around its ``step``.
        every: compare digests every so many optimizer steps. NaN and Inf are looked for at the same steps.
        group: ranks that hold the same parameters; by default DDP's own, else all. DTensors bring their own.
        gradients: compare reduced gradients before the step.
        parameters: compare parameters after the step.
        local: look for NaN and Inf in local gradients before they are reduced.
        action: ``"warn"``, ``"raise"``, or a function that gets each event as a dict.

    Returns:
        The :class:`Guard`; ``close()`` takes it off again.
    """
    if optimizer is None and isinstance(model, torch.optim.Optimizer):
        model, optimizer = None, model
    if optimizer is None:
        raise TypeError("guard needs the optimizer: guard(model, optimizer)")
    return Guard(model, optimizer, every, group, gradients, parameters, local, action)


class _Kind:
    """Tensors that are compared over one group: names, and how to get each one's tensor."""

    def __init__(self, group):
        self.group = group
        self.names = []
        self.parameters = []


class Guard:
    """See :func:`guard`."""

    def __init__(self, model, optimizer, every, group, gradients, parameters, local, action):
        if every < 1:
            raise ValueError("every counts steps, from 1 on")
        if not (action in ("warn", "raise") or callable(action)):
            raise ValueError("action is 'warn', 'raise' or a function")
        self.model, self.optimizer, self.every, self.action = model, optimizer, every, action
        self.step = 0
        self.rank = dist.get_rank() if _is_distributed() else 0
        self.seconds = 0.0
        self._gradients, self._parameters = gradients, parameters
        self._handles = []
        self._bad = {}
        self._losses = []
        self._told = set()
        self._named = _named(model, optimizer)
        self._known = {name for name, _ in self._named}
        self._kinds = self._sort(group)
        self._first_bad = None
        if local:
            self._watch_local()
        self._handles.append(optimizer.register_step_pre_hook(self._before_step))
        self._handles.append(optimizer.register_step_post_hook(self._after_step))

    # --- what is compared over which group

    def _sort(self, group):
        """Parameters by the group over which they must agree."""
        kinds = {}
        alone = 0
        default = group
        if default is None and isinstance(self.model, torch.nn.parallel.DistributedDataParallel):
            default = self.model.process_group
        for name, parameter in self._named:
            if DTensor is not None and isinstance(parameter, DTensor):
                dims = [n for n, where in enumerate(parameter.placements) if isinstance(where, Replicate)]
                dims = [n for n in dims if parameter.device_mesh.size(n) > 1]
                if not dims:
                    alone += 1
                for n in dims:
                    over = parameter.device_mesh.get_group(n)
                    self._add(kinds, over, name, parameter)
            elif _is_distributed():
                over = default if default is not None else dist.group.WORLD
                if dist.get_world_size(over) > 1:
                    self._add(kinds, over, name, parameter)
        if alone and not kinds and self.rank == 0:
            warnings.warn(
                "ringleader guard: all %d parameters are sharded without a copy on another rank; there is nothing to "
                "compare them with, only NaN and Inf are checked" % alone,
                stacklevel=4,
            )
        return list(kinds.values())

    @staticmethod
    def _add(kinds, group, name, parameter):
        ranks = tuple(dist.get_process_group_ranks(group))
        kind = kinds.setdefault(ranks, _Kind(group))
        kind.names.append(name)
        kind.parameters.append(parameter)

    # --- NaN and Inf before the reduction

    def _watch_local(self):
        """Hooks on parameters see the local gradient of DDP and plain loops, and with FSDP2 the reduced one.

        DDP's reducer sits on the node behind the hook; FSDP2 calls the hooks of sharded parameters after its
        reduce-scatter. There the unsharded gradients are seen on the way into the reduce-scatter, whose input is local.
        """
        sharded = [] if self.model is None else [m for m in self.model.modules() if hasattr(m, "set_custom_reduce_scatter")]
        for name, parameter in self._named:
            if not parameter.requires_grad or not hasattr(parameter, "register_post_accumulate_grad_hook"):
                continue
            is_sharded = DTensor is not None and isinstance(parameter, DTensor)
            if is_sharded and sharded:
                continue
            self._handles.append(parameter.register_post_accumulate_grad_hook(self._hook(name)))
        for module in sharded:
            self._wrap_reduce_scatter(module)

    def _is_due(self):
        return (self.step + 1) % self.every == 0

    def _hook(self, name):
        def seen(parameter):
            if self._is_due() and parameter.grad is not None and not _is_capturing(parameter):
                self._note(name, parameter.grad)

        return seen

    def _note(self, name, gradient):
        """Counts the values of a gradient that are NaN or Inf, on its device, in the order in which backward makes them."""
        local = _local(gradient)
        if local.numel() and local.is_floating_point():
            # A sum is finite only if every value is, but for an overflow of the sum, which is checked on the host.
            self._bad.setdefault(name, []).append(torch.stack([~torch.isfinite(local).all(), torch.isnan(local).any()]))

    def _wrap_reduce_scatter(self, module):
        """FSDP2 with its own reduce-scatter replaced by one that looks at its input first, where torch lets that be done."""
        state = getattr(module, "_get_fsdp_state", lambda: None)()
        param_group = getattr(state, "_fsdp_param_group", None)
        if param_group is None:
            return
        before = getattr(param_group, "_reduce_scatter_comm", None)
        label = next((name for name, m in self.model.named_modules() if m is module), "") or "the root module"
        if before is None:
            return
        guard_ = self

        class Watching(type(before)):
            def __init__(self):
                self.__dict__.update(before.__dict__)

            def __call__(self, output_tensor, input_tensor, *args, **kwargs):
                if guard_._is_due() and not _is_capturing(input_tensor):
                    guard_._note(label, input_tensor)
                return before(output_tensor, input_tensor, *args, **kwargs)

        try:
            module.set_custom_reduce_scatter(Watching())
            self._handles.append(_Undo(lambda: setattr(param_group, "_reduce_scatter_comm", before)))
        except (TypeError, AssertionError, AttributeError) as error:
            self._tell_once("reduce-scatter", "local gradients of FSDP2 are not checked: %s" % error)

    # --- around the step

    def _before_step(self, *_):
        self.step += 1
        if self.step % self.every or _is_capturing():
            self._bad.clear()
            return
        start = time.perf_counter()
        self._tell_bad()
        if self._gradients:
            self._compare("gradient", lambda parameter: parameter.grad)
        self.seconds += time.perf_counter() - start

    def _after_step(self, *_):
        if self.step % self.every or _is_capturing():
            return
        start = time.perf_counter()
        if self._parameters:
            self._compare("parameter", lambda parameter: parameter)
        self.seconds += time.perf_counter() - start

    def _tell_bad(self):
        """Names the first gradient with NaN or Inf on this rank. Backward makes the last layer's gradients first, so that
        where it began is the one that was made first. A copy to the host, of one byte for each gradient."""
        if not self._bad:
            return
        noted, self._bad = self._bad, {}
        flat = [(name, flags) for name, all_flags in noted.items() for flags in all_flags]
        devices = {}
        for name, flags in flat:
            devices.setdefault(flags.device, []).append((name, flags))
        bad = []
        for pairs in devices.values():
            values = torch.stack([flags for _, flags in pairs]).cpu().tolist()
            bad.extend((name, value) for (name, _), value in zip(pairs, values) if value[0])
        if bad:
            name, (_, is_nan) = bad[0]
            what = "NaN" if is_nan else "Inf"
            layers = len({name for name, _ in bad})
            self._emit(
                "nan",
                "rank %d: the local gradient of %s holds %s at step %d, before it was reduced (%d of %d gradients)"
                % (self.rank, name, what, self.step, layers, len(noted)),
                parameter=name,
                layer=self._layer(name),
                value=what,
            )

    def _layer(self, name):
        """The module of a parameter; a name without a parameter is already a module."""
        return (name.rpartition(".")[0] or name) if name in self._known else name

    # --- comparison

    def _compare(self, what, get):
        for kind in self._kinds:
            tensors = [get(parameter) for parameter in kind.parameters]
            self._compare_kind(what, kind, tensors)

    def _compare_kind(self, what, kind, tensors):
        device = next((_local(t).device for t in tensors if t is not None), torch.device("cpu"))
        missing = torch.zeros((), dtype=torch.int64, device=device)
        digests = [missing if t is None else digest(_local(t)).to(device) for t in tensors]
        digests = torch.stack(digests)
        # One number for all: the digest of the digests.
        own = digest(digests).reshape(1)
        all_digests = _gather(own, kind.group)
        if len(set(all_digests)) == 1:
            return
        # All ranks are here: they have seen the same numbers.
        again = torch.stack([missing if t is None else digest(_local(t)).to(device) for t in tensors])
        is_steady = bool((again == digests).all())
        table = _gather(torch.cat([digests, torch.tensor([int(is_steady)], device=device)]), kind.group)
        n = len(tensors) + 1
        rows = [table[k * n : (k + 1) * n] for k in range(len(table) // n)]
        ranks = dist.get_process_group_ranks(kind.group)
        unsteady = [ranks[k] for k, row in enumerate(rows) if not row[-1]]
        differing = [k for k in range(len(tensors)) if len({row[k] for row in rows}) > 1]
        if not differing:
            return
        odd = unsteady or _odd(ranks, [row[differing[0]] for row in rows])
        name = kind.names[differing[0]]
        first = what not in self._told
        self._told.add(what)
        began = "never in sync" if self.step <= self.every and first else "in sync before"
        if not odd:
            who = "ranks %s disagree and none has the majority" % ", ".join(map(str, ranks))
        else:
            who = "rank%s %s" % ("s" if len(odd) > 1 else "", ", ".join(map(str, odd)))
            who += " reads other bits each time" if unsteady else " differs from the majority"
        gpus = self._gpus(kind.group)
        self._emit(
            "digest",
            "%s at step %d: %s; the first %s that differs is %s, %d of %d differ (%s; %s)"
            % (what, self.step, who, what, name, len(differing), len(tensors), began, gpus),
            parameter=name,
            layer=self._layer(name),
            value=what,
            group=_folded(ranks),
            agree=False,
            odd=odd,
            differing=len(differing),
            of=len(tensors),
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
        """Takes the loss of a step, as a number: notes a spike, or NaN and Inf."""
        value = float(value)
        if not math.isfinite(value):
            self._emit(
                "spike", "rank %d: the loss is %s at step %d" % (self.rank, value, self.step + 1), value=str(value)
            )
            return
        if len(self._losses) >= 20:
            ordered = sorted(self._losses)
            middle = ordered[len(ordered) // 2]
            spread = sorted(abs(x - middle) for x in ordered)[len(ordered) // 2] * _MAD
            if value - middle > _SPIKE * max(spread, 1e-3 * abs(middle)):
                self._emit(
                    "spike",
                    "rank %d: the loss is %.4g at step %d, %.4g before" % (self.rank, value, self.step + 1, middle),
                    value=value,
                )
        self._losses.append(value)
        del self._losses[:-_LOSSES]

    # --- reporting

    def _emit(self, kind, message, **fields):
        event = EVENTS.write(kind, rank=self.rank, step=self.step, **fields)
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
            raise Disagreement("ringleader guard: " + message)
        else:
            warnings.warn("ringleader guard: " + message, stacklevel=5)

    def _tell_once(self, key, message):
        if key not in self._told:
            self._told.add(key)
            warnings.warn("ringleader guard: " + message, stacklevel=4)

    def close(self):
        """Takes all hooks off."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()


class _Undo:
    def __init__(self, undo):
        self.remove = undo


def _named(model, optimizer):
    """Parameters that are trained, with names; of an optimizer alone, by group and place."""
    if model is not None:
        inner = model.module if isinstance(model, torch.nn.parallel.DistributedDataParallel) else model
        return [(name, p) for name, p in inner.named_parameters() if p.requires_grad]
    named = []
    for number, group in enumerate(optimizer.param_groups):
        named.extend(("group %d parameter %d" % (number, n), p) for n, p in enumerate(group["params"]) if p.requires_grad)
    return named


def _local(tensor):
    if DTensor is not None and isinstance(tensor, DTensor):
        tensor = tensor._local_tensor
    tensor = tensor.detach()
    return tensor.coalesce().values() if tensor.is_sparse else tensor


def _is_distributed():
    return dist.is_available() and dist.is_initialized()


def _is_capturing(tensor=None):
    if tensor is not None and not tensor.is_cuda:
        return False
    return torch.cuda.is_available() and torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()


def _gather(own, group):
    """The numbers of all ranks of a group, rank after rank, on the host."""
    n = dist.get_world_size(group)
    backend = dist.get_backend(group)
    if "nccl" in backend and not own.is_cuda:
        own = own.cuda()
    elif backend == "gloo" and own.is_cuda:
        own = own.cpu()
    out = torch.empty(n * own.numel(), dtype=own.dtype, device=own.device)
    dist.all_gather_into_tensor(out, own.contiguous(), group=group)
    return out.tolist()


def _odd(ranks, values):
    """Ranks outside of the majority; empty if there is none."""
    camps = {}
    for rank, value in zip(ranks, values):
        camps.setdefault(value, []).append(rank)
    most = max(camps.values(), key=len)
    if len(most) * 2 <= len(ranks):
        return []
    return sorted(rank for camp in camps.values() if camp is not most for rank in camp)


def _folded(ranks):
    """0-3,7"""
    parts = []
    for rank in sorted(ranks):
        if parts and rank == parts[-1][1] + 1:
            parts[-1][1] = rank
        else:
            parts.append([rank, rank])
    return ",".join(str(a) if a == b else "%d-%d" % (a, b) for a, b in parts)
