    pp_group = grid.get_pg("pp")                       # this rank's pipeline group
    ranks = dist.get_process_group_ranks(pp_group)
    embd_ranks = [ranks[0], ranks[-1]] if len(ranks) > 1 else ranks
    embd_pg = dist.new_group(ranks=embd_ranks, group_desc="EMBEDDING_GROUP")
    pos_embd_pg = dist.new_group(ranks=embd_ranks, group_desc="POSITION_EMBEDDING_GROUP")
