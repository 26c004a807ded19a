from accelerate import Accelerator


def evaluate(model, eval_loader, metric, accelerator: Accelerator):
    model.eval()
    for batch in eval_loader:
        generated = model.generate(batch["input_ids"], max_length=128)
        labels = batch["labels"]
        generated = accelerator.pad_across_processes(generated, dim=1, pad_index=0)
        labels = accelerator.pad_across_processes(labels, dim=1, pad_index=-100)
        generated = accelerator.gather(generated)
        labels = accelerator.gather(labels)
        metric.add_batch(predictions=generated, references=labels)
    return metric.compute()
