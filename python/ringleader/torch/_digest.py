"""64-bit digests of tensors' bits, the same on every device.

The bytes of a tensor are cut into lines. The digest of a line is the sum of its bytes (as signed numbers) times fixed odd 64-bit
weights, modulo 2^64. It is computed as a product of matrices of bytes, of which tensor cores make one pass over memory: the
weights are eight columns, their digits to the base 256. Sums of a line stay below 2^31, so that they are exact in any order, on
every device. The digest of a line is then mixed with its place, and the lines are added up.

One flipped bit always changes the digest: the weights are odd, and a byte changes by less than 2^8. Exchanged bytes, and flips of
the same bit in two places, do too, where XOR would miss them.
"""

import torch

# Bytes of a line. A product of bytes is below 2^14, so that the sum of a line is below 2^26.
LINE = 4096
# Digits of a weight.
_DIGITS = 8
# Columns of a product on GPUs, half of them zeros: cuBLAS is twice as fast with 16 as with 8 (H200, cuBLAS 13.1).
_GPU_COLUMNS = 16
# The fewest lines of a product: fewer are refused on GPUs, and a short one is not worth a kernel of its own.
_FEWEST = 32
# Where addresses of a product must begin on GPUs, bytes.
_ALIGNED = 16
# Lines at once where there is no product of bytes (128 MiB), and where memory is out (2 MiB).
_SLOW_LINES = 4096
_FEW_LINES = 64

# torch before 2.5 has it for CUDA alone.
_OutOfMemory = getattr(torch, "OutOfMemoryError", None) or torch.cuda.OutOfMemoryError
# Words of errors that mean the same and have no class of their own: of cuBLAS, whose own memory it is, and of the CPU.
_NO_MEMORY = ("CUBLAS_STATUS_ALLOC_FAILED", "DefaultCPUAllocator")


def _is_out_of_memory(error):
    return isinstance(error, _OutOfMemory) or any(words in str(error) for words in _NO_MEMORY)


def _signed(value):
    """A number below 2^64 as torch's int64."""
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value


_ODD = _signed(0x9E3779B97F4A7C15)
_MIX_1 = _signed(0xBF58476D1CE4E5B9)
_MIX_2 = _signed(0x94D049BB133111EB)


def _logical(x, bits):
    """x >> bits without the sign."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _final(x):
    """A number in which every bit depends on every bit; different numbers stay different (splitmix64)."""
    x = (x ^ _logical(x, 30)) * _MIX_1
    x = (x ^ _logical(x, 27)) * _MIX_2
    return x ^ _logical(x, 31)


def _columns():
    """Weights of the bytes of a line, int8 of shape [LINE, 8]: digits of odd numbers, the lowest first."""
    seeds = torch.arange(1, LINE + 1, dtype=torch.int64) * _ODD
    columns = _final(seeds).view(torch.int8).reshape(LINE, _DIGITS).clone()
    columns[:, 0] |= 1
    return columns


def data(tensor):
    """The bytes of a tensor in the order of its elements, int8 of one dimension: a view where its storage has that order."""
    flat = tensor.detach().contiguous().reshape(-1)
    if flat.is_complex():
        flat = torch.view_as_real(flat).reshape(-1)
    if flat.dtype == torch.bool:
        flat = flat.to(torch.uint8)
    return flat.view(torch.int8)


class _Tables:
    """What depends on the device alone."""

    def __init__(self, device):
        columns = _columns()
        radix = torch.ones(_DIGITS, dtype=torch.int64) << torch.arange(0, 64, 8)
        if device.type == "cuda":
            # Column after column, which is several times as fast there; on the CPU row after row is.
            more = _GPU_COLUMNS - _DIGITS
            columns = torch.nn.functional.pad(columns, (0, more)).t().contiguous().t()
        self.columns, self.radix = columns.to(device), radix.to(device)
        self.width = columns.shape[1]
        self.has_products = hasattr(torch, "_int_mm")

    def products(self, lines, out):
        """Sums over the digits of each line, int32 of shape [lines, width], into ``out``."""
        lines_at_once = _SLOW_LINES
        if self.has_products:
            try:
                torch._int_mm(lines, self.columns, out=out)
                return
            except RuntimeError as error:
                # Memory may be there the next time. All else is a device or a build without products of bytes, for good (what a
                # broken GPU says comes again with the next line). Either way what is slower gives the same.
                if _is_out_of_memory(error):
                    lines_at_once = _FEW_LINES
                else:
                    self.has_products = False
        columns = self.columns.to(torch.float64)
        for start in range(0, lines.shape[0], lines_at_once):
            part = lines[start : start + lines_at_once].to(torch.float64) @ columns
            out[start : start + lines_at_once] = part.to(torch.int32)


_tables = {}


def _table(device):
    if device not in _tables:
        _tables[device] = _Tables(device)
    return _tables[device]


class _Layout:
    """Where the lines of tensors of these sizes are: those of a large tensor by themselves, all others together in one buffer.

    Args:
        device: where they are.
        sizes: bytes of each tensor.
        lengths: elements of each tensor; they are part of the digest. -1: no tensor, whose digest is 0.
        width: columns of a product.
    """

    def __init__(self, device, sizes, lengths, width):
        own = [n // LINE if n // LINE >= _FEWEST else 0 for n in sizes]
        self.large = [(k, lines) for k, lines in enumerate(own) if lines]
        self.n_large = sum(own)
        self.pieces = []
        # Four borders for each tensor: of its own lines, and of its lines in the buffer.
        borders, places = [], []
        at = 0
        for lines in own:
            borders.append([at, at + lines])
            places.append(torch.arange(1, lines + 1))
            at += lines
        staged = 0
        for k, n in enumerate(sizes):
            rest = n - own[k] * LINE
            lines = -(-rest // LINE)
            borders[k] += [self.n_large + staged, self.n_large + staged + lines]
            places.append(torch.arange(own[k] + 1, own[k] + lines + 1))
            if rest:
                self.pieces.append((k, own[k] * LINE, staged * LINE, rest))
            staged += lines
        self.n_staged = max(staged, _FEWEST)
        places.append(torch.zeros(self.n_staged - staged, dtype=torch.int64))
        self.places = (torch.cat(places) * _ODD).to(device)
        self.borders = torch.tensor(borders, dtype=torch.int64).reshape(-1, 4).to(device)
        lengths = [_signed((n + 1) * 0x9E3779B97F4A7C15) for n in lengths]
        self.lengths = torch.tensor(lengths, dtype=torch.int64).to(device)
        # Zero beyond the end of each piece, for good.
        self.buffer = torch.zeros(self.n_staged * LINE, dtype=torch.int8, device=device)
        self.targets = [self.buffer[to : to + n] for _, _, to, n in self.pieces]
        self.sums = torch.empty(self.n_large + self.n_staged, width, dtype=torch.int32, device=device)


class Digester:
    """Computes digests of several tensors of one device in few kernels, and keeps what depends on their sizes."""

    # Layouts kept: of the parameters, and of gradients of which some are missing.
    MOST = 4

    def __init__(self):
        self._layouts = {}

    def _layout(self, parts, tensors, device):
        lengths = tuple(-1 if tensor is None else tensor.numel() for tensor in tensors)
        key = (device, tuple(0 if part is None else part.numel() for part in parts), lengths)
        found = self._layouts.get(key)
        if found is None:
            while len(self._layouts) >= self.MOST:
                self._layouts.pop(next(iter(self._layouts)))
            found = self._layouts[key] = _Layout(*key, _table(device).width)
        return found

    def __call__(self, tensors, device):
        """Digests of the tensors' bits and lengths, int64 of shape [len(tensors)] on their device. Waits for nothing.

        Where there is None instead of a tensor, the digest is 0.

        Raises:
            torch.OutOfMemoryError: the device has no memory for them; it says so in the guard's name.
        """
        try:
            return self._digests(tensors, device)
        except RuntimeError as error:
            if not _is_out_of_memory(error):
                raise
            size = sum(tensor.numel() * tensor.element_size() for tensor in tensors if tensor is not None)
            # What the tables take, which are made at the first call; more only where tensors are not contiguous.
            message = "ringleader guard: %s has no memory left for digests of %.0f MiB, which take about 2 %% of that: %s"
            raise _OutOfMemory(message % (device, size / 2**20, error)) from error

    def _digests(self, tensors, device):
        table = _table(device)
        parts = [None if tensor is None else data(tensor) for tensor in tensors]
        layout = self._layout(parts, tensors, device)
        at = 0
        for k, n in layout.large:
            lines = parts[k][: n * LINE]
            if device.type == "cuda" and lines.data_ptr() % _ALIGNED:
                lines = lines.clone()
            table.products(lines.view(n, LINE), layout.sums[at : at + n])
            at += n
        if layout.pieces:
            _copy(layout.targets, [parts[k][start : start + n] for k, start, _, n in layout.pieces])
            table.products(layout.buffer.view(-1, LINE), layout.sums[at:])
        else:
            layout.sums[at:].zero_()
        # int32 times int64 gives int64; what leaves its 64 bits is dropped, as it should be.
        lines = (layout.sums[:, :_DIGITS] * table.radix).sum(dim=1)
        before = torch.nn.functional.pad(torch.cumsum(_final(lines ^ layout.places), 0), (1, 0))
        found = before[layout.borders]
        total = found[:, 1] - found[:, 0] + found[:, 3] - found[:, 2]
        return _final(total ^ layout.lengths)


def _copy(targets, parts):
    if hasattr(torch, "_foreach_copy_"):
        torch._foreach_copy_(targets, parts)
    else:
        for target, part in zip(targets, parts):
            target.copy_(part)


def digest(tensor):
    """The digest of one tensor's bits and length, int64 without dimensions on its device."""
    return Digester()([tensor], tensor.device)[0]


def folded(digests):
    """One number for all digests of a device, int64 of shape [1]."""
    places = torch.arange(1, digests.numel() + 1, dtype=torch.int64, device=digests.device) * _ODD
    return _final(digests ^ places).sum().reshape(1)
