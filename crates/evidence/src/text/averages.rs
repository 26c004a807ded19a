//! The table of averages that torch's profiler prints: what the host's time goes into while the GPU has nothing to do.
//!
//! ```text
//!                     Name    Self CPU %      Self CPU     CPU total     Self CUDA    # of Calls
//!    cudaStreamSynchronize        46.91%     721.913ms     721.913ms       0.000us           170
//!         cudaLaunchKernel        21.10%     324.717ms     324.717ms       0.000us         40488
//! Self CPU time total: 1.539s
//! Self CUDA time total: 848.114ms
//! ```
//!
//! Columns differ between versions and with the options; they are identified by their names, and cells are counted from
//! the right, since names hold anything. Source: `torch/autograd/profiler_util.py`.

use ringleader_knowledge::sign::ids;
use ringleader_model::{Cite, Fact, Sign, WallTime, Who};

use crate::ground::{Line, Sink, lossy};

/// Longest line that is looked at, bytes.
const MAX_BYTES: usize = 4 << 10;
/// Rows of one table.
const MAX_ROWS: usize = 2_000;
/// Lines that are no rows, after which a table is over.
const MAX_OTHER: u32 = 3;
/// Fewer rows show nothing.
const MIN_ROWS: usize = 3;
/// A GPU that works for more of the host's time does not wait for it.
const BUSY: f64 = 0.8;
/// Share of the host's time from which something counts.
const LEAST: f64 = 0.15;
/// The same for calls that copy: each pass of an optimizer has some.
const LEAST_COPY_CALLS: f64 = 0.3;
/// The same for everything that leads to launches together.
const LEAST_HOST: f64 = 0.5;
/// Calls of communication, and the mean time of one, us, that are many and small.
const MANY: f64 = 200.0;
const SMALL_US: f64 = 100.0;

/// A column that matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Column {
    SelfCpu,
    SelfCpuPct,
    SelfGpu,
    GpuTotal,
    Calls,
    Other,
}

/// What is added up of a table; times in microseconds.
#[derive(Clone, Debug, Default, PartialEq)]
struct Sums {
    n_rows: usize,
    /// Of the host, as the rows or the line below them tell.
    total: f64,
    is_total_stated: bool,
    gpu: f64,
    is_gpu_stated: bool,
    waiting: f64,
    loading: f64,
    allocator: f64,
    copies: f64,
    /// What the host spends on asking for copies one by one.
    copy_calls: f64,
    launching: f64,
    operators: f64,
    comm_calls: f64,
    comm_gpu: f64,
    comm_host: f64,
}

/// Where a table begins.
struct TableHead {
    cite: Cite,
    at: Option<WallTime>,
    who: Who,
    text: Vec<u8>,
}

/// The tables of one source: the one with most rows counts.
#[derive(Default)]
pub(super) struct AveragesReader {
    columns: Vec<Column>,
    n_other: u32,
    sums: Sums,
    place: Option<TableHead>,
    best: Option<(Sums, TableHead)>,
}

impl AveragesReader {
    /// Looks at a line.
    pub(super) fn line(&mut self, line: &Line<'_>, sink: &Sink<'_>) {
        if self.columns.is_empty() && !line.body.windows(8).any(|w| w == b"Self CPU") {
            return;
        }
        let text = lossy(line.body.get(..MAX_BYTES).unwrap_or(line.body));
        if let Some(columns) = header(&text) {
            self.end();
            self.columns = columns;
            self.place = Some(TableHead {
                cite: sink.cite(line.number, line.offset, line.end()),
                at: line.tag.at,
                who: line.tag.who.clone(),
                text: line.body.to_vec(),
            });
        } else if !self.columns.is_empty() {
            self.row(&text);
        }
    }

    fn row(&mut self, text: &str) {
        let trimmed = text.trim();
        if trimmed.is_empty() || trimmed.bytes().all(|b| b == b'-' || b == b' ') {
            return;
        }
        if let Some((name, time)) = trimmed.split_once("time total:") {
            let Some(us) = micros(time.trim()) else { return };
            if name.contains("CPU") {
                (self.sums.total, self.sums.is_total_stated) = (us, true);
            } else {
                (self.sums.gpu, self.sums.is_gpu_stated) = (us, true);
            }
            return;
        }
        if self.sums.n_rows < MAX_ROWS && self.sums.add(trimmed, &self.columns) {
            self.n_other = 0;
            return;
        }
        self.n_other += 1;
        if self.n_other > MAX_OTHER {
            self.end();
        }
    }

    /// The table is over.
    fn end(&mut self) {
        self.columns.clear();
        self.n_other = 0;
        let sums = std::mem::take(&mut self.sums);
        let Some(place) = self.place.take() else { return };
        if self.best.as_ref().is_none_or(|(best, _)| sums.n_rows > best.n_rows) {
            self.best = Some((sums, place));
        }
    }

    /// End of the source.
    pub(super) fn finish(&mut self, sink: &mut Sink<'_>) {
        self.end();
        let Some((sums, place)) = self.best.take() else { return };
        let mut tell = |id| {
            let sign = Sign { id, count: 1 };
            sink.push(place.cite, place.who.clone(), place.at, Fact::Sign(sign), &place.text);
        };
        if sums.n_rows >= MIN_ROWS && sums.gpu > 0.0 && sums.total > 0.0 {
            tell(ids::AVERAGES_UNDERSTOOD);
            if let Some(id) = sums.shows() {
                tell(id);
            }
        }
    }
}

/// The columns of a header, behind the name.
fn header(text: &str) -> Option<Vec<Column>> {
    let mut cells = cells(text);
    if cells.next() != Some("Name") {
        return None;
    }
    let columns: Vec<Column> = cells
        .map(|cell| match cell.to_ascii_lowercase().as_str() {
            "self cpu" | "self cpu total" => Column::SelfCpu,
            "self cpu %" | "self cpu total %" => Column::SelfCpuPct,
            "self cuda" | "self cuda total" | "self xpu" | "self device" => Column::SelfGpu,
            "cuda total" | "xpu total" | "device total" => Column::GpuTotal,
            "# of calls" | "number of calls" => Column::Calls,
            _ => Column::Other,
        })
        .collect();
    let has = |column: Column| columns.contains(&column);
    (has(Column::SelfCpu) && has(Column::Calls) && (has(Column::SelfGpu) || has(Column::GpuTotal)))
        .then_some(columns)
}

/// Cells are at least two spaces apart.
fn cells(text: &str) -> impl Iterator<Item = &str> {
    text.split("  ").map(str::trim).filter(|cell| !cell.is_empty())
}

/// A time with its unit, microseconds.
fn micros(text: &str) -> Option<f64> {
    let units = [("us", 1.0), ("ms", 1e3), ("s", 1e6)];
    let (number, scale) = units.iter().find_map(|(unit, scale)| Some((text.strip_suffix(unit)?, scale)))?;
    let number: f64 = number.trim().parse().ok()?;
    (number.is_finite() && number >= 0.0).then_some(number * scale)
}

impl Sums {
    /// Adds a row; false if it is none.
    fn add(&mut self, text: &str, columns: &[Column]) -> bool {
        let all: Vec<&str> = cells(text).collect();
        let Some(n_name) = all.len().checked_sub(columns.len()).filter(|n| *n > 0) else { return false };
        let name = all.get(..n_name).unwrap_or_default().join(" ");
        let cell = |wanted: Column| {
            let at = columns.iter().position(|column| *column == wanted)?;
            all.get(n_name + at).copied()
        };
        let Some(own) = cell(Column::SelfCpu).and_then(micros) else { return false };
        let gpu = cell(Column::SelfGpu).or_else(|| cell(Column::GpuTotal)).and_then(micros).unwrap_or(0.0);
        let calls: f64 = cell(Column::Calls).and_then(|n| n.parse().ok()).unwrap_or(0.0);
        self.n_rows += 1;
        if !self.is_total_stated {
            // The share of the first row with a large one gives the whole.
            let share: Option<f64> =
                cell(Column::SelfCpuPct).and_then(|pct| pct.trim_end_matches('%').trim().parse().ok());
            match share {
                Some(share) if share >= 1.0 => self.total = self.total.max(own * 100.0 / share),
                _ if columns.contains(&Column::SelfCpuPct) => {}
                _ => self.total += own,
            }
        }
        if !self.is_gpu_stated {
            self.gpu += gpu;
        }
        self.sort(&name, own, gpu, calls);
        true
    }

    /// Adds the times of a row where they belong.
    fn sort(&mut self, name: &str, own: f64, gpu: f64, calls: f64) {
        let lower = name.to_ascii_lowercase();
        let has = |words: &[&str]| words.iter().any(|word| lower.contains(word));
        if lower.starts_with("nccldev") || lower.starts_with("ncclkernel") {
            self.comm_calls += calls;
            self.comm_gpu += gpu;
        } else if has(&["synchronize", "waitblock", "worknccl::wait"]) {
            self.waiting += own;
        } else if has(&["dataloader"]) {
            self.loading += own;
        } else if has(&["cudamalloc", "cudafree", "hipmalloc", "hipfree", "cudahostalloc"]) {
            self.allocator += own;
        } else if has(&["memcpy htod", "memcpy dtoh"]) {
            self.copies += gpu;
        } else if has(&["memcpyasync", "aten::_to_copy", "aten::copy_"]) || lower == "aten::to" {
            self.copy_calls += own;
            self.operators += own;
        } else if has(&["launchkernel", "graphlaunch"]) {
            self.launching += own;
        } else if has(&["c10d::", "record_param_comms"]) {
            self.comm_host += own;
        } else if has(&["aten::", "autograd::", "backward", "optimizer"]) {
            self.operators += own;
        }
    }

    /// What most of the host's time goes into while the GPU waits.
    fn shows(&self) -> Option<&'static str> {
        let of = |time: f64| time / self.total;
        let small = self.comm_calls >= MANY && self.comm_gpu < SMALL_US * self.comm_calls;
        if small && of(self.comm_host) >= LEAST {
            return Some(ids::AVERAGES_SHOW_SMALL_MESSAGES);
        }
        if of(self.gpu) >= BUSY {
            return None;
        }
        let parts = [
            (of(self.waiting), ids::AVERAGES_SHOW_WAITING),
            (of(self.loading), ids::AVERAGES_SHOW_LOADING),
            (of(self.allocator), ids::AVERAGES_SHOW_ALLOCATOR),
            (of(self.copies), ids::AVERAGES_SHOW_COPIES),
        ];
        let (most, id) = parts.into_iter().max_by(|a, b| a.0.total_cmp(&b.0))?;
        if most >= LEAST {
            return Some(id);
        }
        if of(self.copy_calls) >= LEAST_COPY_CALLS {
            return Some(ids::AVERAGES_SHOW_COPIES);
        }
        let host = self.launching + self.operators + self.comm_host;
        (of(host) >= LEAST_HOST).then_some(ids::AVERAGES_SHOW_HOST)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::{Column, Sums, header, micros};

    const HEAD: &str =
        "                 Name    Self CPU %      Self CPU     CPU total     Self CUDA    # of Calls  ";

    fn shown(rows: &[&str], cpu_s: f64, gpu_s: f64) -> Option<&'static str> {
        let columns = header(HEAD).unwrap();
        let mut sums = Sums { total: cpu_s * 1e6, is_total_stated: true, ..Sums::default() };
        (sums.gpu, sums.is_gpu_stated) = (gpu_s * 1e6, true);
        for row in rows {
            assert!(sums.add(row, &columns), "{row}");
        }
        sums.shows()
    }

    #[test]
    fn columns_and_units() {
        let columns = header(HEAD).unwrap();
        assert_eq!(columns[1], Column::SelfCpu);
        assert_eq!((columns.len(), columns[4]), (5, Column::Calls));
        assert_eq!(header("Name  Self CPU"), None);
        assert_eq!(
            (micros("1.5s"), micros("2.000ms"), micros("7us"), micros("7")),
            (Some(1.5e6), Some(2e3), Some(7.0), None)
        );
    }

    #[test]
    fn what_the_host_does_while_the_gpu_waits() {
        let waits =
            ["cudaStreamSynchronize        46.91%     721.913ms     721.913ms       0.000us           170"];
        assert_eq!(shown(&waits, 1.5, 0.8), Some("averages-show-waiting"));
        // It waits for a GPU that works all the time.
        assert_eq!(shown(&waits, 1.5, 1.4), None);
        let loads = [
            "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__  61.0%  900.1ms  905.0ms  0.000us  20",
        ];
        assert_eq!(shown(&loads, 1.5, 0.4), Some("averages-show-loading"));
        let frees = [
            "cudaFree  31.0%  465.1ms  465.0ms  0.000us  420",
            "cudaMalloc  10.0%  150ms  150ms  0.000us  420",
        ];
        assert_eq!(shown(&frees, 1.5, 0.4), Some("averages-show-allocator"));
        let copies = ["Memcpy HtoD (Pageable -> Device)  0.00%  0.000us  0.000us  700.0ms  40"];
        assert_eq!(shown(&copies, 1.5, 0.9), Some("averages-show-copies"));
        let many = [
            "aten::to  7.77%  116ms  786ms  0.000us  10359",
            "aten::_to_copy  12.61%  189ms  657ms  0.000us  10348",
            "aten::copy_  9.10%  136ms  331ms  0.000us  10428",
            "cudaMemcpyAsync  10.41%  156ms  173ms  0.000us  10422",
            "cudaLaunchKernel  8.04%  120ms  133ms  0.000us  27226",
        ];
        assert_eq!(shown(&many, 1.5, 0.8), Some("averages-show-copies"));
        // A few copies beside many kernels.
        let few = [
            "aten::copy_  9.10%  136ms  331ms  0.000us  1042",
            "aten::mul  25.0%  375ms  400ms  60ms  90000",
            "cudaLaunchKernel  40.0%  600ms  600ms  0.000us  391220",
        ];
        assert_eq!(shown(&few, 1.5, 0.4), Some("averages-show-host"));
        let small = [
            "c10d::allreduce_  30.0%  450.0ms  600.0ms  0.000us  12160",
            "ncclDevKernel_AllReduce_Sum_f32_RING_LL  0.00%  0.000us  0.000us  291.8ms  12160",
        ];
        assert_eq!(shown(&small, 1.5, 0.5), Some("averages-show-small-messages"));
        let host = [
            "cudaLaunchKernel  40.0%  600ms  600ms  0.000us  391220",
            "aten::mul  20.0%  300ms  400ms  60ms  90000",
        ];
        assert_eq!(shown(&host, 1.5, 0.4), Some("averages-show-host"));
    }
}
