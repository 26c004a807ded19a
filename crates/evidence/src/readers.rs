//! The readers, one module each, and the one list that knows all of them.
//!
//! To add a reader: its file, its `mod` below and its line in the list. Sniffing, prefixes, documents and lines ask
//! the list.

mod bench;
mod bundle;
mod environment;
mod fabric;
mod flight;
mod gpu;
mod guard;
mod kernel;
mod metrics;
mod nccl;
mod node;
mod ras;
mod ring;
mod stacks;
mod system;
mod tables;
pub(crate) mod timeline;
mod torch;
mod watch;

use std::fmt;

use crate::ground::{Document, Limits, Line, LineReader, NoLines, Sink, Wants};

pub(crate) use self::kernel::next_word;

/// Makes the list: a field of [`Lines`] for each reader, so that offering a line costs no indirect call, and [`ALL`].
macro_rules! readers {
    ($($name:ident: $lines:ty, $reader:expr;)*) => {
        /// Which reader.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[expect(non_camel_case_types, reason = "called like their modules")]
        pub(crate) enum Name { $(
            #[doc = concat!("`", stringify!($name), "`.")]
            $name,
        )* }

        /// All readers.
        const ALL: &[(Name, ReaderModule)] = &[$((Name::$name, $reader)),*];

        /// The readers of lines of one source.
        #[derive(Default)]
        pub(crate) struct Lines { $(pub(crate) $name: $lines,)* }

        impl Lines {
            /// Offers a line to each reader until one takes it.
            #[inline]
            pub(crate) fn offer(&mut self, line: &Line<'_>, sink: &mut Sink<'_>) -> Option<Name> {
                $(if self.$name.line(line, sink) { return Some(Name::$name); })*
                None
            }

            /// Offers a line that [`Wants`] of no reader describes: only readers that are awake may want it.
            pub(crate) fn offer_ordinary(&mut self, line: &Line<'_>, sink: &mut Sink<'_>) -> Option<Name> {
                $(if self.$name.awake_until() >= line.number && self.$name.ordinary_line(line, sink) {
                    return Some(Name::$name);
                })*
                None
            }

            /// The last line up to which a reader is awake: see [`LineReader::awake_until`].
            pub(crate) fn awake_until(&self) -> u32 {
                0 $(.max(self.$name.awake_until()))*
            }

            /// The next line is the last one and has no end: it may be cut.
            pub(crate) fn next_is_cut(&mut self) {
                $(self.$name.next_is_cut();)*
            }

            /// End of the source, which is a log or is none.
            pub(crate) fn finish(&mut self, is_log: bool, sink: &mut Sink<'_>) {
                $(
                    if !is_log { self.$name.is_no_log(sink); }
                    self.$name.finish(sink);
                )*
            }
        }

        /// Whether a line begins like one of a log that is read here.
        pub(crate) fn begins(line: &[u8]) -> bool {
            $({
                const READER: ReaderModule = $reader;
                if READER.begins.is_some_and(|begins| begins(line)) { return true; }
            })*
            false
        }

        /// Whether a line is like one that is read here, wherever its sign is.
        pub(crate) fn is_known(line: &[u8]) -> bool {
            $({
                const READER: ReaderModule = $reader;
                if READER.is_known.is_some_and(|is_known| is_known(line)) { return true; }
            })*
            begins(line)
        }
    };
}

// In the order in which they are offered a line or a document: cheap and certain ones first, the one that takes any
// traceback last. Each line names the reader of lines, and what else the module reads or knows.
readers! {
    nccl: nccl::NcclReader, ReaderModule {
        begins: Some(nccl::begins),
        is_known: Some(nccl::is_known),
        wants: nccl::WANTS,
        ..LINES
    };
    kernel: kernel::KernelReader, ReaderModule {
        document: Some(kernel::read_json),
        is_json_log: Some(kernel::is_journal),
        begins: Some(kernel::begins),
        wants: kernel::WANTS,
        ..LINES
    };
    stacks: stacks::StackReader, ReaderModule {
        document: Some(stacks::read_json),
        begins: Some(stacks::begins),
        wants: stacks::WANTS,
        ..LINES
    };
    ras: ras::RasTextReader, ReaderModule { document: Some(ras::read_json), wants: ras::WANTS, ..LINES };
    metrics: metrics::MetricsReader, ReaderModule { wants: metrics::WANTS, ..LINES };
    gpu: gpu::GpuReader, ReaderModule { document: Some(gpu::read_json), wants: gpu::WANTS, ..LINES };
    tables: tables::TableReader, ReaderModule { wants: tables::WANTS, ..LINES };
    environment: environment::EnvironmentReader, ReaderModule {
        whole: Some(&ENVIRONMENT),
        wants: environment::WANTS,
        ..LINES
    };
    bench: bench::BenchReader, ReaderModule { document: Some(bench::read_json), wants: bench::WANTS, ..LINES };
    fabric: fabric::FabricReader, ReaderModule { document: Some(fabric::read_json), wants: fabric::WANTS, ..LINES };
    system: system::SystemReader, ReaderModule { document: Some(system::read_json), wants: system::WANTS, ..LINES };
    torch: torch::TorchReader, ReaderModule {
        document: Some(torch::read_json),
        begins: Some(torch::begins),
        begins_error: Some(torch::begins_error),
        wants: torch::WANTS,
        ..LINES
    };
    flight: NoLines, ReaderModule { document: Some(flight::read_json), whole: Some(&DUMP), ..LINES };
    ring: NoLines, ReaderModule { whole: Some(&RING), ..LINES };
    nsight: NoLines, ReaderModule { whole: Some(&DATABASE), ..LINES };
    xplane: NoLines, ReaderModule { whole: Some(&PLANES), ..LINES };
    perfetto: NoLines, ReaderModule { whole: Some(&PACKETS), ..LINES };
    inspector: NoLines, ReaderModule { whole: Some(&INSPECTOR), ..LINES };
    // A snapshot holds lines of the kernel's log.
    node: NoLines, ReaderModule { document: Some(node::read_json::<kernel::KernelReader>), ..LINES };
    watch: NoLines, ReaderModule { document: Some(watch::read_json), ..LINES };
    guard: NoLines, ReaderModule { document: Some(guard::read_json), ..LINES };
    bundle: NoLines, ReaderModule { document: Some(bundle::read_json), ..LINES };
}

/// A pickle of Flight Recorder.
static DUMP: WholeFile = WholeFile {
    name: "pickle",
    is: flight::is_pickle,
    max_bytes: |limits| limits.max_dump_bytes,
    read: |name, bytes, kept, sink| flight::read_pickle(name, bytes, &mut kept.dumps, sink),
};

/// An export of Nsight Systems.
static DATABASE: WholeFile = WholeFile {
    name: "sqlite",
    is: timeline::nsight::is_database,
    max_bytes: |_| timeline::nsight::MAX_BYTES,
    read: |_, bytes, _, sink| timeline::nsight::read(bytes, sink),
};

/// Records of NCCL's Inspector.
static INSPECTOR: WholeFile = WholeFile {
    name: "inspector",
    is: timeline::inspector::is_inspector,
    max_bytes: |_| timeline::inspector::MAX_BYTES,
    read: |_, bytes, _, sink| timeline::inspector::read(bytes, sink),
};

/// A profile of XLA.
static PLANES: WholeFile = WholeFile {
    name: "xplane",
    is: timeline::xplane::is_xplane,
    max_bytes: |_| timeline::xplane::MAX_BYTES,
    read: |_, bytes, _, sink| timeline::xplane::read(bytes, sink),
};

/// A trace of Perfetto.
static PACKETS: WholeFile = WholeFile {
    name: "perfetto",
    is: timeline::perfetto::is_perfetto,
    max_bytes: |_| timeline::perfetto::MAX_BYTES,
    read: |_, bytes, _, sink| timeline::perfetto::read(bytes, sink),
};

/// A ring of NCCL's plugin.
static RING: WholeFile = WholeFile {
    name: "ring",
    is: |head| head.starts_with(ring::MAGIC),
    // Many times what any ring has.
    max_bytes: |_| 256 << 20,
    read: |_, bytes, _, sink| ring::read(bytes, sink),
};

/// `/proc/PID/environ`.
static ENVIRONMENT: WholeFile = WholeFile {
    name: "environ",
    is: environment::is_process,
    // More than Linux lets a process have (128 KiB a variable, a quarter of the stack in all, usually 2 MiB).
    max_bytes: |_| 8 << 20,
    read: |_, bytes, _, sink| environment::read_process(bytes, sink),
};

/// What a module reads and knows besides lines.
#[derive(Clone, Copy)]
struct ReaderModule {
    /// Reads a JSON document, or leaves it (false) to the next reader.
    document: Option<fn(&Document<'_>, &mut Sink<'_>) -> bool>,
    /// Reads a file as a whole.
    whole: Option<&'static WholeFile>,
    /// Whether a file of JSON objects is read line by line.
    is_json_log: Option<fn(&[u8]) -> bool>,
    /// Whether a line certainly has this format, by its first bytes: a label before it is a launcher's.
    begins: Option<fn(&[u8]) -> bool>,
    /// The same, by the content of the line.
    is_known: Option<fn(&[u8]) -> bool>,
    /// Whether a line states an error as a log does.
    begins_error: Option<fn(&str) -> bool>,
    /// What its lines hold or begin like.
    wants: Wants,
}

/// A module that reads lines and nothing else.
const LINES: ReaderModule = ReaderModule {
    document: None,
    whole: None,
    is_json_log: None,
    begins: None,
    is_known: None,
    begins_error: None,
    wants: Wants::NOTHING,
};

/// A format whose files are read as a whole.
pub(crate) struct WholeFile {
    name: &'static str,
    is: fn(&[u8]) -> bool,
    /// Bytes that are read.
    pub(crate) max_bytes: fn(&Limits) -> u64,
    /// Reads a file; the name is its innermost path.
    pub(crate) read: fn(&str, &[u8], &mut Kept, &mut Sink<'_>),
}

impl fmt::Debug for WholeFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl PartialEq for WholeFile {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for WholeFile {}

/// What files of one job share.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    dumps: flight::Before,
}

/// Reads a JSON document; false if no reader knows it.
pub(crate) fn read_document(document: &Document<'_>, sink: &mut Sink<'_>) -> bool {
    ALL.iter().filter_map(|(_, reader)| reader.document).any(|read| read(document, sink))
}

/// The format that a file with this head is of, if it is one that is read as a whole.
pub(crate) fn whole_file(head: &[u8]) -> Option<&'static WholeFile> {
    ALL.iter().filter_map(|(_, reader)| reader.whole).find(|format| (format.is)(head))
}

/// Whether a file of JSON objects with this head is a log.
pub(crate) fn is_json_log(head: &[u8]) -> bool {
    ALL.iter().filter_map(|(_, reader)| reader.is_json_log).any(|is_log| is_log(head))
}

/// What readers want while nothing is open in them.
pub(crate) fn wants() -> impl Iterator<Item = Wants> {
    ALL.iter().map(|(_, reader)| reader.wants)
}

/// Whether a line states an error as a log does.
pub(crate) fn begins_error(text: &str) -> bool {
    ALL.iter().filter_map(|(_, reader)| reader.begins_error).any(|begins| begins(text))
}

#[cfg(test)]
mod tests;
