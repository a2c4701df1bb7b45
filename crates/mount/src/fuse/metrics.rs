//! What a server has done, as a text that Prometheus and `kiln stats` read.
//!
//! A client gets it by an ioctl on the mount's root: whoever may open that directory may ask, without a socket that must be found
//! or a privilege.

pub mod file;
pub mod labels;
pub mod query;

use kiln_read::{SIZE_BOUNDS, Stats};
use rustix::ioctl::{Opcode, opcode};
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Room for the text, which ends with a zero.
pub const TEXT_LEN: usize = 15 << 10;
/// The ioctl. Its number has no meaning elsewhere: other filesystems answer that they do not know it.
pub const FETCH: Opcode = opcode::read::<[u8; TEXT_LEN]>(b'k', 1);

/// Upper bounds in microseconds of the classes of durations; the last class has none.
const BOUNDS_US: [u64; 9] = [4, 16, 64, 256, 1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18];

/// Kinds of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Lookup,
    Getattr,
    Readlink,
    Read,
    Readdir,
    Xattr,
    Lseek,
}

const KINDS: [(Kind, &str); 7] = [
    (Kind::Lookup, "lookup"),
    (Kind::Getattr, "getattr"),
    (Kind::Readlink, "readlink"),
    (Kind::Read, "read"),
    (Kind::Readdir, "readdir"),
    (Kind::Xattr, "xattr"),
    (Kind::Lseek, "lseek"),
];

/// What the kernel gets without asking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Given {
    /// Files that will be read next.
    Ahead,
    /// What was decoded around a page that is read.
    Around,
    /// Files that were decoded together with one that is read.
    Beside,
}

const GIVEN: [(Given, &str); 3] = [(Given::Ahead, "ahead"), (Given::Around, "around"), (Given::Beside, "beside")];

/// Requests of one kind.
#[derive(Default)]
struct Meter {
    classes: [AtomicU64; BOUNDS_US.len() + 1],
    nanoseconds: AtomicU64,
}

/// Counters of a server.
#[derive(Default)]
pub struct Meters {
    kinds: [Meter; KINDS.len()],
    errors: AtomicU64,
    woken: AtomicU64,
    /// Times and bytes.
    given: [[AtomicU64; 2]; GIVEN.len()],
    names: AtomicU64,
}

impl Meters {
    /// Run the handler of a request, and note how long that takes.
    pub fn timed<T>(&self, kind: Kind, handler: impl FnOnce() -> T) -> (T, Duration) {
        let start = Instant::now();
        let result = handler();
        let took = start.elapsed();
        self.note(kind, took);
        (result, took)
    }

    fn note(&self, kind: Kind, took: Duration) {
        let meter = &self.kinds[kind as usize];
        let micros = took.as_micros();
        let class = BOUNDS_US.iter().position(|&bound| micros <= bound.into()).unwrap_or(BOUNDS_US.len());
        meter.classes[class].fetch_add(1, Ordering::Relaxed);
        meter.nanoseconds.fetch_add(took.as_nanos() as u64, Ordering::Relaxed);
    }

    /// Note a request that is answered with an error of the image or its source.
    pub fn error(&self) {
        self.errors.fetch_add(1, Ordering::Relaxed);
    }

    /// Note a thread woken to wait for requests while another one answers.
    pub fn woken(&self) {
        self.woken.fetch_add(1, Ordering::Relaxed);
    }

    /// Note bytes that the kernel got without asking.
    pub fn given(&self, why: Given, len: usize) {
        let [times, bytes] = &self.given[why as usize];
        times.fetch_add(1, Ordering::Relaxed);
        bytes.fetch_add(len as u64, Ordering::Relaxed);
    }

    /// Note names that the kernel got without asking.
    pub fn names(&self, count: u32) {
        self.names.fetch_add(count.into(), Ordering::Relaxed);
    }

    /// All counters, with those of the image.
    pub fn text(&self, image: &Stats) -> String {
        let mut text = Text(String::new());
        text.sizes("kiln_read_size_bytes", "Reads of contents by callers.", &image.read_sizes, image.served_bytes);
        text.sizes("kiln_fetch_size_bytes", "Reads of the image's source.", &image.fetch_sizes, image.fetched_bytes);
        text.head("kiln_decodes_total", "counter", "Streams decoded, by where to.");
        let ways = [("direct", image.decoded_direct), ("kept", image.decoded_kept), ("scratch", image.decoded_scratch)];
        for (way, count) in ways {
            text.line(format_args!("kiln_decodes_total{{way=\"{way}\"}} {count}"));
        }
        text.counter("kiln_decoded_bytes_total", "Bytes out of decoders.", image.decoded_bytes);
        text.counter("kiln_cache_hits_total", "Reads of extents that found them decoded.", image.hits);
        text.counter("kiln_decodes_avoided_total", "Decodes that another reader had begun.", image.avoided);
        text.counter("kiln_errors_total", "Requests that failed.", self.errors.load(Ordering::Relaxed));
        let woken = self.woken.load(Ordering::Relaxed);
        text.counter("kiln_threads_woken_total", "Threads woken to receive requests while others answer.", woken);
        let names = ["kiln_unasked_total", "kiln_unasked_bytes_total"];
        let helps = ["Times that the kernel was given contents without asking, by why.", "Bytes of these."];
        for (idx, (name, help)) in names.into_iter().zip(helps).enumerate() {
            text.head(name, "counter", help);
            for (why, label) in GIVEN {
                let value = self.given[why as usize][idx].load(Ordering::Relaxed);
                text.line(format_args!("{name}{{why=\"{label}\"}} {value}"));
            }
        }
        let names = self.names.load(Ordering::Relaxed);
        text.counter("kiln_unasked_names_total", "Names that were listed without anybody asking.", names);
        self.durations(&mut text);
        text.0
    }

    fn durations(&self, text: &mut Text) {
        const NAME: &str = "kiln_request_duration_seconds";
        text.head(NAME, "histogram", "Time from a request to its answer.");
        for (kind, name) in KINDS {
            let meter = &self.kinds[kind as usize];
            let mut count = 0;
            for (class, requests) in meter.classes.iter().enumerate() {
                count += requests.load(Ordering::Relaxed);
                let bound = BOUNDS_US.get(class).map_or("+Inf".into(), |&us| (us as f64 / 1e6).to_string());
                text.line(format_args!("{NAME}_bucket{{request=\"{name}\",le=\"{bound}\"}} {count}"));
            }
            let seconds = meter.nanoseconds.load(Ordering::Relaxed) as f64 / 1e9;
            text.line(format_args!("{NAME}_sum{{request=\"{name}\"}} {seconds}"));
            text.line(format_args!("{NAME}_count{{request=\"{name}\"}} {count}"));
        }
    }
}

/// The text format of Prometheus.
struct Text(String);

impl Text {
    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        // A string takes everything.
        let _ = writeln!(self.0, "{line}");
    }

    fn head(&mut self, name: &str, kind: &str, help: &str) {
        self.line(format_args!("# HELP {name} {help}\n# TYPE {name} {kind}"));
    }

    fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.head(name, "counter", help);
        self.line(format_args!("{name} {value}"));
    }

    /// A histogram, whose classes Prometheus wants summed up.
    fn sizes(&mut self, name: &str, help: &str, classes: &[u64], sum: u64) {
        self.head(name, "histogram", help);
        let mut count = 0;
        for (class, requests) in classes.iter().enumerate() {
            count += requests;
            let bound = SIZE_BOUNDS.get(class).map_or("+Inf".into(), u64::to_string);
            self.line(format_args!("{name}_bucket{{le=\"{bound}\"}} {count}"));
        }
        self.line(format_args!("{name}_sum {sum}\n{name}_count {count}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_has_room_and_adds_up() {
        let meters = Meters::default();
        for (kind, _) in KINDS {
            for took in [Duration::from_micros(4), Duration::from_micros(5), Duration::from_secs(u64::MAX >> 32)] {
                meters.note(kind, took);
            }
        }
        let image = Stats { read_sizes: [u64::MAX / 16; 10], served_bytes: u64::MAX, ..Stats::default() };
        let text = meters.text(&image);
        assert!(text.len() + 1000 < TEXT_LEN, "{}", text.len());
        assert!(text.contains("kiln_request_duration_seconds_bucket{request=\"read\",le=\"0.000004\"} 1\n"), "{text}");
        assert!(text.contains("kiln_request_duration_seconds_bucket{request=\"read\",le=\"0.000016\"} 2\n"), "{text}");
        assert!(text.contains("kiln_request_duration_seconds_count{request=\"lseek\"} 3\n"), "{text}");
        assert!(text.contains(&format!("kiln_read_size_bytes_sum {}\n", u64::MAX)), "{text}");
    }
}
