    async def init_sender(self, state_dict, param_names_need_sync, send, recv):
        del state_dict, send, recv
        self.param_names_need_sync = set(param_names_need_sync)
        ...
    def _divide_into_buckets(self, state_dict):
        for name in self.param_names_need_sync:
            value = state_dict[name]
            if isinstance(value, DTensor):
                value = value.full_tensor()
