# llava/train/llava_trainer.py, the part that picks the order of the samples (shortened)
def length_grouped(lengths, batch_size, world_size, generator=None):
    order = torch.randperm(len(lengths), generator=generator).tolist()
    mega = world_size * batch_size                       # 8 * 4 = 32 here
    out = []
    for start in range(0, len(order), mega):
        chunk = sorted(order[start:start + mega], key=lambda i: -lengths[i])
        out += split_to_even_chunks(chunk, lengths, world_size)      # one list a rank, equal sums as far as it goes
    return [i for rank_batch in out for i in rank_batch]
