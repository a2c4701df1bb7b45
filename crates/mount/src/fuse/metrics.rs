//! Counters of a server, as text that Prometheus and `kiln stats` read.
//!
//! A client gets the text by an ioctl on the mount's root ([`super::ask`]): each process that may
//! open that directory may ask, without privilege.

pub(super) mod file;
pub(super) mod labels;
pub(super) mod query;

use kiln_read::{SIZE_BOUNDS, Stats};
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Upper bounds in microseconds of the classes of durations. The last class has none.
const BOUNDS_US: [u64; 9] = [4, 16, 64, 256, 1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18];

/// Kinds of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestKind {
    Lookup,
    Getattr,
    Readlink,
    Read,
    Readdir,
    Xattr,
    Lseek,
}

const KINDS: [(RequestKind, &str); 7] = [
    (RequestKind::Lookup, "lookup"),
    (RequestKind::Getattr, "getattr"),
    (RequestKind::Readlink, "readlink"),
    (RequestKind::Read, "read"),
    (RequestKind::Readdir, "readdir"),
    (RequestKind::Xattr, "xattr"),
    (RequestKind::Lseek, "lseek"),
];

/// Kind of contents that the kernel gets without a READ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PrefetchKind {
    /// Files that will be read next, as their directory is read in order.
    Sequential,
    /// The rest of an extent that was decoded for a page.
    Extent,
    /// Files of the same directory that are already decoded.
    Siblings,
}

const PREFETCH_KINDS: [(PrefetchKind, &str); 3] =
    [(PrefetchKind::Sequential, "sequential"), (PrefetchKind::Extent, "extent"), (PrefetchKind::Siblings, "siblings")];

/// Counters of requests of one kind.
#[derive(Default)]
struct RequestMetrics {
    classes: [AtomicU64; BOUNDS_US.len() + 1],
    nanoseconds: AtomicU64,
}

/// Counters of a server.
#[derive(Default)]
pub(super) struct Metrics {
    kinds: [RequestMetrics; KINDS.len()],
    errors: AtomicU64,
    woken: AtomicU64,
    /// Number of pushes, and their bytes.
    prefetched: [[AtomicU64; 2]; PREFETCH_KINDS.len()],
    dentries: AtomicU64,
}

impl Metrics {
    /// Runs the handler of a request, and records its duration.
    pub(super) fn timed<T>(&self, kind: RequestKind, handler: impl FnOnce() -> T) -> (T, Duration) {
        let start = Instant::now();
        let result = handler();
        let took = start.elapsed();
        self.note(kind, took);
        (result, took)
    }

    fn note(&self, kind: RequestKind, took: Duration) {
        let request = &self.kinds[kind as usize];
        let micros = took.as_micros();
        let class = BOUNDS_US.iter().position(|&bound| micros <= bound.into()).unwrap_or(BOUNDS_US.len());
        request.classes[class].fetch_add(1, Ordering::Relaxed);
        request.nanoseconds.fetch_add(took.as_nanos() as u64, Ordering::Relaxed);
    }

    /// Returns the number of requests that were answered so far.
    pub(super) fn request_count(&self) -> u64 {
        let classes = self.kinds.iter().flat_map(|kind| &kind.classes);
        classes.map(|requests| requests.load(Ordering::Relaxed)).sum()
    }

    /// Counts a request that is answered with an error of the image or its source.
    pub(super) fn note_error(&self) {
        self.errors.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a follower that was woken to wait for requests while other threads answer.
    pub(super) fn note_thread_woken(&self) {
        self.woken.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a push of `len` bytes.
    pub(super) fn note_prefetch(&self, kind: PrefetchKind, len: usize) {
        let [times, bytes] = &self.prefetched[kind as usize];
        times.fetch_add(1, Ordering::Relaxed);
        bytes.fetch_add(len as u64, Ordering::Relaxed);
    }

    /// Counts dentries that the dentry thread has listed.
    pub(super) fn note_dentries(&self, count: u32) {
        self.dentries.fetch_add(count.into(), Ordering::Relaxed);
    }

    /// Returns the text of all counters, including those of the image.
    pub(super) fn text(&self, image: &Stats) -> String {
        let mut text = PrometheusText(String::new());
        text.sizes("kiln_read_size_bytes", "Reads of contents by callers.", &image.read_sizes, image.served_bytes);
        text.sizes("kiln_fetch_size_bytes", "Reads of the image's source.", &image.fetch_sizes, image.fetched_bytes);
        text.head("kiln_decodes_total", "counter", "Streams decoded, by destination.");
        let ways = [("direct", image.decoded_direct), ("kept", image.decoded_kept), ("scratch", image.decoded_scratch)];
        for (way, count) in ways {
            text.line(format_args!("kiln_decodes_total{{way=\"{way}\"}} {count}"));
        }
        text.counter("kiln_decoded_bytes_total", "Bytes decoded.", image.decoded_bytes);
        text.counter("kiln_cache_hits_total", "Reads of extents that were already decoded.", image.hits);
        text.counter(
            "kiln_decodes_avoided_total",
            "Decodes avoided because another reader was decoding.",
            image.avoided,
        );
        text.head("kiln_pinned_bytes", "gauge", "Bytes of decoded data pinned in memory.");
        text.line(format_args!("kiln_pinned_bytes {}", image.pinned_bytes));
        text.counter("kiln_errors_total", "Requests that failed.", self.errors.load(Ordering::Relaxed));
        let woken = self.woken.load(Ordering::Relaxed);
        text.counter("kiln_threads_woken_total", "Threads woken to receive requests while others answer.", woken);
        let names = ["kiln_prefetch_total", "kiln_prefetch_bytes_total"];
        let helps = ["Pushes of contents into the page cache, by kind.", "Bytes pushed into the page cache, by kind."];
        for (idx, (name, help)) in names.into_iter().zip(helps).enumerate() {
            text.head(name, "counter", help);
            for (kind, label) in PREFETCH_KINDS {
                let value = self.prefetched[kind as usize][idx].load(Ordering::Relaxed);
                text.line(format_args!("{name}{{kind=\"{label}\"}} {value}"));
            }
        }
        let dentries = self.dentries.load(Ordering::Relaxed);
        text.counter("kiln_prefetch_dentries_total", "Names listed before a lookup.", dentries);
        self.durations(&mut text);
        text.0
    }

    fn durations(&self, text: &mut PrometheusText) {
        const NAME: &str = "kiln_request_duration_seconds";
        text.head(NAME, "histogram", "Time from a request to its answer.");
        for (kind, name) in KINDS {
            let request = &self.kinds[kind as usize];
            let mut count = 0;
            for (class, requests) in request.classes.iter().enumerate() {
                count += requests.load(Ordering::Relaxed);
                let bound = BOUNDS_US.get(class).map_or("+Inf".into(), |&us| (us as f64 / 1e6).to_string());
                text.line(format_args!("{NAME}_bucket{{request=\"{name}\",le=\"{bound}\"}} {count}"));
            }
            let seconds = request.nanoseconds.load(Ordering::Relaxed) as f64 / 1e9;
            text.line(format_args!("{NAME}_sum{{request=\"{name}\"}} {seconds}"));
            text.line(format_args!("{NAME}_count{{request=\"{name}\"}} {count}"));
        }
    }
}

/// Text in the format of Prometheus.
struct PrometheusText(String);

impl PrometheusText {
    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.0, "{line}");
    }

    fn head(&mut self, name: &str, kind: &str, help: &str) {
        self.line(format_args!("# HELP {name} {help}\n# TYPE {name} {kind}"));
    }

    fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.head(name, "counter", help);
        self.line(format_args!("{name} {value}"));
    }

    /// Adds a histogram. Prometheus expects cumulative classes.
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
    use crate::fuse::ask::ANSWER_LEN;

    #[test]
    fn the_text_has_room_and_adds_up() {
        let metrics = Metrics::default();
        for (kind, _) in KINDS {
            for took in [Duration::from_micros(4), Duration::from_micros(5), Duration::from_secs(u64::MAX >> 32)] {
                metrics.note(kind, took);
            }
        }
        let mut image = Stats::default();
        (image.read_sizes, image.served_bytes) = ([u64::MAX / 16; 10], u64::MAX);
        let text = metrics.text(&image);
        assert!(text.len() + 1000 < ANSWER_LEN, "{}", text.len());
        assert!(text.contains("kiln_request_duration_seconds_bucket{request=\"read\",le=\"0.000004\"} 1\n"), "{text}");
        assert!(text.contains("kiln_request_duration_seconds_bucket{request=\"read\",le=\"0.000016\"} 2\n"), "{text}");
        assert!(text.contains("kiln_request_duration_seconds_count{request=\"lseek\"} 3\n"), "{text}");
        assert!(text.contains(&format!("kiln_read_size_bytes_sum {}\n", u64::MAX)), "{text}");
    }
}
