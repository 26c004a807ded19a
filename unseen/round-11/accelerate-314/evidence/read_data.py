class LineShuffler:
    def __init__(self, path, cache):
        if accelerator.is_main_process and not os.path.exists(cache):
            with open(path, 'rb') as f, tqdm(total=os.path.getsize(path)) as bar:   # 200 GB
                pos, offs = 0, []
                for line in f:
                    offs.append(pos); pos += len(line); bar.update(len(line))
            np.save(cache, np.array(offs))
        accelerator.wait_for_everyone()
        self.offs = np.load(cache, mmap_mode='r')
