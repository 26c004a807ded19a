class Hook:
    def before_epoch(self, runner):
        pass

    def after_iter(self, runner):
        pass

    def after_epoch(self, runner):
        pass

    def after_val_epoch(self, runner):
        pass
