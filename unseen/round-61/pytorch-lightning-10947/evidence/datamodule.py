class ScanData(pl.LightningDataModule):
    def setup(self, stage=None):
        scans = load_index(self.root)
        np.random.shuffle(scans)
        scans = balance_by_class(scans)          # drops scans of frequent classes until the quota is met, in list order
        n = int(0.9 * len(scans))
        self.train, self.val = Scans(scans[:n]), Scans(scans[n:])

    def train_dataloader(self):
        return DataLoader(self.train, batch_size=4, num_workers=8, collate_fn=collate_fn_train)
