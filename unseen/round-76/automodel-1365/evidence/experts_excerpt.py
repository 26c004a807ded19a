        if ep_size > 1:
            # bring the tokens of all ranks together for the local experts
            x = DTensor.from_local(x, device_mesh=ep_mesh, placements=[Shard(0)]).full_tensor()
            weights = DTensor.from_local(weights, device_mesh=ep_mesh, placements=[Shard(0)]).full_tensor()
