from tracker import TRACKER

COLLECTED = {"aux_loss": "load_balancing_loss", "seq_aux_loss": "seq_load_balancing_loss"}


class Router:
    def __init__(self, config, layer):
        self.config = config
        self.layer = layer
        self.name = COLLECTED.get(config.balancing)

    def apply_aux_loss(self, probs, counts):
        if self.name is None or self.config.aux_coeff == 0.0:
            return probs
        loss = self.config.aux_coeff * (probs.mean(0) * counts).sum()
        TRACKER.record(self.name, loss, self.layer, self.config.num_layers)
        return probs + 0.0 * loss


def get_moe_metrics(config, loss_scale, totals=None, per_layer=False):
    name = COLLECTED.get(config.balancing)
    if name is not None and config.aux_coeff != 0.0:
        TRACKER.ensure(name, config.num_layers)
    TRACKER.reduce_across_ranks()
    found = {}
    for name, values in TRACKER.entries.items():
        scaled = values.float() * loss_scale
        found[name] = float(scaled.sum() / config.num_layers)
        if totals is not None:
            totals[name] = totals.get(name, 0.0) + found[name]
        if per_layer:
            for index, value in enumerate(scaled.tolist()):
                found[f"moe/{name}_layer_{index}"] = value
    TRACKER.clear()
    return found


def train_step(config, stage, batches, optimizer):
    for batch in batches:
        stage.forward_backward(batch)
    optimizer.step()
    optimizer.zero_grad()
    return get_moe_metrics(config, 1.0 / len(batches))
