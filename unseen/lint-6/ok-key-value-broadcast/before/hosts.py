import json

import jax
from jax._src import distributed

_calls = 0


def broadcast_json(value, is_source=None, timeout=200.0):
    """The value of one process, on all of them; goes through the coordinator, not the devices."""
    global _calls
    if is_source is None:
        is_source = jax.process_index() == 0
    if jax.process_count() == 1:
        return value

    client = distributed.global_state.client
    if client is None:
        raise RuntimeError("jax.distributed is not initialized")
    key = f"broadcast_json/{_calls}"
    _calls += 1
    if is_source:
        client.key_value_set(key, json.dumps(value))
    client.wait_at_barrier(key, timeout_in_ms=int(timeout * 1000))
    if not is_source:
        value = json.loads(client.blocking_key_value_get(key, int(timeout * 1000)))
    return value
