//! Compares the ways to decode LZ4 pclusters into a reader's memory that EROFS's paper compares, as
//! far as they exist in user space: `strategies PCLUSTER_BYTES REQUEST_BYTES FILE...`, for example
//! `strategies 65536 131072 /usr/lib/*.so`.
//!
//! The files fill pclusters one after the other. Requests go through the text from front to back,
//! and cut the extents at their ends. Every strategy serves each request, and the result is
//! compared with the text. The output is MB of text per CPU second, medians of rounds in which the
//! strategies take turns, and the share of extents that used the strategy's own way.
//!
//! * `direct`: extents that are wanted as a whole are decoded at their destination, others into the
//!   thread's buffer, up to the last byte wanted.
//! * `buffer`: all extents go through the thread's buffer.
//! * `in place`: pclusters of extents that are wanted as a whole are put at the end of their
//!   destination, with LZ4's margin.
//! * `rolling`: extents that are wanted in part are decoded in a window of 17 pages that repeat,
//!   and copied from its last 64 KiB.
//! * `scattered`: the reader's pages lie anywhere, and are mapped into one window, in which
//!   `direct` decodes.

use lz4_sys as _; // links liblz4
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};
use rustix::time::{ClockId, clock_gettime};
use std::error::Error;
use std::ffi::{c_char, c_int, c_void};
use std::ops::Range;
use std::os::fd::AsFd;
use std::time::Duration;
use std::{env, fs, ptr, slice};

// These are in liblz4, which the codec links.
unsafe extern "C" {
    fn LZ4_compress_destSize(src: *const c_char, dst: *mut c_char, src_len: *mut c_int, dst_len: c_int) -> c_int;
    fn LZ4_decompress_safe(src: *const c_char, dst: *mut c_char, src_len: c_int, dst_len: c_int) -> c_int;
    fn LZ4_decompress_safe_partial(
        src: *const c_char,
        dst: *mut c_char,
        src_len: c_int,
        want_len: c_int,
        dst_len: c_int,
    ) -> c_int;
}

const PAGE: usize = 4096;
/// Longest match distance of LZ4, and a page for the bytes it writes ahead.
const ROLLING: usize = (64 << 10) + PAGE;
const TEXT_MAX: usize = 256 << 20;
const EXTENT_MAX: usize = 12 << 20;
const ROUNDS: usize = 5;

#[derive(Clone, Copy, PartialEq)]
enum Strategy {
    Direct,
    Buffer,
    InPlace,
    Rolling,
    Scattered,
}

const STRATEGIES: [(Strategy, &str); 5] = [
    (Strategy::Direct, "direct"),
    (Strategy::Buffer, "buffer"),
    (Strategy::InPlace, "in place"),
    (Strategy::Rolling, "rolling"),
    (Strategy::Scattered, "scattered"),
];

/// Stream of a pcluster, and the range of its text.
struct Extent {
    stream: Vec<u8>,
    text: Range<usize>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = env::args().skip(1).collect();
    let [pcluster_len, request_len, paths @ ..] = args.as_slice() else {
        return Err("usage: strategies PCLUSTER_BYTES REQUEST_BYTES FILE...".into());
    };
    let (pcluster_len, request_len) = (pcluster_len.parse::<usize>()?, request_len.parse::<usize>()?);
    if pcluster_len == 0 || pcluster_len > 1 << 20 || request_len == 0 || request_len % PAGE != 0 {
        return Err("a pcluster is 1 byte to 1 MiB; a request is a number of whole pages".into());
    }
    let mut text = Vec::new();
    for path in paths {
        text.extend(fs::read(path)?);
    }
    text.truncate(TEXT_MAX.min(text.len() / request_len * request_len));
    let extents = fill(&text, pcluster_len);
    let mut reader = Reader::new(&extents, request_len, pcluster_len)?;

    let mut times = vec![Vec::new(); STRATEGIES.len()];
    let mut taken = vec![0; STRATEGIES.len()];
    for round in 0..ROUNDS {
        for turn in 0..STRATEGIES.len() {
            let idx = (round + turn) % STRATEGIES.len();
            (times[idx], taken[idx]) = {
                let (took, taken) = reader.read_all(&text, STRATEGIES[idx].0)?;
                let mut times = std::mem::take(&mut times[idx]);
                times.push(took);
                (times, taken)
            };
        }
    }
    println!("{} extents of {} bytes on average", extents.len(), text.len() / extents.len().max(1));
    for ((times, taken), (_, name)) in times.iter_mut().zip(taken).zip(STRATEGIES) {
        times.sort();
        let speed = text.len() as f64 / 1e6 / times[ROUNDS / 2].as_secs_f64();
        println!("{name:<10} {speed:>8.0} MB/s {:>6.1} %", 100.0 * taken as f64 / reader.touches as f64);
    }
    Ok(())
}

/// Fills pclusters with the text.
fn fill(text: &[u8], pcluster_len: usize) -> Vec<Extent> {
    let (mut extents, mut at) = (Vec::new(), 0);
    while at < text.len() {
        let mut stream = vec![0; pcluster_len];
        let mut len = (text.len() - at).min(EXTENT_MAX) as c_int;
        // SAFETY: both pointers are valid for the lengths passed, which fit; `len` becomes the
        // number of bytes consumed.
        let produced = unsafe {
            LZ4_compress_destSize(
                text[at..].as_ptr().cast(),
                stream.as_mut_ptr().cast(),
                &mut len,
                pcluster_len as c_int,
            )
        };
        assert!(produced > 0 && len > 0, "liblz4 takes some of any text");
        stream.truncate(produced as usize);
        extents.push(Extent { stream, text: at..at + len as usize });
        at += len as usize;
    }
    extents
}

/// Memory of a reader.
struct Reader<'a> {
    extents: &'a [Extent],
    request_len: usize,
    /// Destination of requests, followed by room for a stream in place.
    dst: Vec<u8>,
    buffer: Vec<u8>,
    rolling: Window,
    scattered: Scattered,
    /// Number of extents that requests touch; those at a border count twice.
    touches: usize,
}

impl<'a> Reader<'a> {
    fn new(extents: &'a [Extent], request_len: usize, pcluster_len: usize) -> Result<Self, Box<dyn Error>> {
        let longest = extents.iter().map(|extent| extent.text.len()).max().unwrap_or_default();
        Ok(Self {
            extents,
            request_len,
            dst: vec![0; request_len + margin(pcluster_len) + pcluster_len],
            buffer: vec![0; longest],
            rolling: Window::repeating(ROLLING, longest)?,
            scattered: Scattered::new(request_len)?,
            touches: 0,
        })
    }

    /// Returns the CPU time for all requests, and the number of extents that used the strategy's
    /// own way.
    fn read_all(&mut self, text: &[u8], strategy: Strategy) -> Result<(Duration, usize), Box<dyn Error>> {
        let (mut took, mut taken, mut first) = (Duration::ZERO, 0, 0);
        self.touches = 0;
        for start in (0..text.len()).step_by(self.request_len) {
            let request = start..start + self.request_len;
            while self.extents[first].text.end <= start {
                first += 1;
            }
            let before = cpu_time();
            if strategy == Strategy::Scattered {
                self.scattered.map()?;
            }
            // From front to back, so that the leftover of a stream in place, after its extent, is
            // overwritten.
            for extent in self.extents[first..].iter().take_while(|extent| extent.text.start < request.end) {
                self.touches += 1;
                taken += usize::from(self.serve(extent, &request, strategy));
            }
            took += cpu_time() - before;
            match strategy {
                Strategy::Scattered => self.scattered.check(&text[request]),
                _ => assert!(self.dst[..self.request_len] == text[request], "wrong bytes"),
            }
        }
        Ok((took, taken))
    }

    /// Decodes the part of an extent that a request wants. Returns true if that used the strategy's
    /// own way.
    fn serve(&mut self, extent: &Extent, request: &Range<usize>, strategy: Strategy) -> bool {
        let wanted = extent.text.start.max(request.start)..extent.text.end.min(request.end);
        let at = wanted.start - request.start;
        let (len, end) = (wanted.len(), wanted.end - extent.text.start);
        let is_whole = len == extent.text.len();
        let stream = &extent.stream;
        let dst = match strategy {
            Strategy::Scattered => self.scattered.window.bytes(),
            _ => &mut self.dst[..],
        };
        match strategy {
            Strategy::InPlace if is_whole && len + margin(stream.len()) >= stream.len() => {
                let from = at + len + margin(stream.len()) - stream.len();
                dst[from..from + stream.len()].copy_from_slice(stream);
                let base = dst.as_mut_ptr();
                // SAFETY: both ranges are in `dst`. liblz4 allows the stream at the end of its
                // output plus this margin.
                let done = unsafe {
                    LZ4_decompress_safe(base.add(from).cast(), base.add(at).cast(), stream.len() as c_int, len as c_int)
                };
                assert_eq!(done, len as c_int);
                true
            }
            // Front parts need no window: they are decoded at their destination.
            Strategy::Rolling if !is_whole && end > len && len <= ROLLING - PAGE => {
                let window = self.rolling.bytes();
                decode(stream, &mut window[..end]);
                dst[at..at + len].copy_from_slice(&window[end - len..end]);
                true
            }
            Strategy::Direct | Strategy::Rolling | Strategy::InPlace | Strategy::Scattered if end == len => {
                decode(stream, &mut dst[at..at + len]);
                matches!(strategy, Strategy::Direct | Strategy::Scattered)
            }
            _ => {
                decode(stream, &mut self.buffer[..end]);
                dst[at..at + len].copy_from_slice(&self.buffer[end - len..end]);
                matches!(strategy, Strategy::Buffer | Strategy::Scattered)
            }
        }
    }
}

/// Returns the distance in bytes from the end of the output to the end of a stream in place.
fn margin(stream_len: usize) -> usize {
    (stream_len >> 8) + 32
}

/// Decodes the first `dst.len()` bytes.
fn decode(stream: &[u8], dst: &mut [u8]) {
    let (src_len, len) = (stream.len() as c_int, dst.len() as c_int);
    // SAFETY: both pointers are valid for the lengths passed.
    let done =
        unsafe { LZ4_decompress_safe_partial(stream.as_ptr().cast(), dst.as_mut_ptr().cast(), src_len, len, len) };
    assert_eq!(done, len);
}

/// Private address space in which pages of an unnamed file are mapped.
struct Window {
    start: *mut c_void,
    len: usize,
    file: fs::File,
}

impl Window {
    fn new(file_len: usize, len: usize) -> Result<Self, Box<dyn Error>> {
        let file = fs::File::from(rustix::fs::memfd_create("window", rustix::fs::MemfdFlags::CLOEXEC)?);
        file.set_len(file_len as u64)?;
        // SAFETY: a new mapping, at an address that the kernel chooses.
        let start =
            unsafe { mmap_anonymous(ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)? };
        Ok(Self { start, len, file })
    }

    /// Returns a window that repeats the first `period` bytes, for at least `len` bytes.
    fn repeating(period: usize, len: usize) -> Result<Self, Box<dyn Error>> {
        let window = Self::new(period, len.next_multiple_of(period))?;
        for at in (0..window.len).step_by(period) {
            window.map(at, 0, period)?;
        }
        Ok(window)
    }

    /// Maps `len` bytes of the file from `from` on at byte `at` of the window.
    fn map(&self, at: usize, from: usize, len: usize) -> Result<(), Box<dyn Error>> {
        assert!(at + len <= self.len);
        let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::FIXED);
        // SAFETY: the range replaced is in our own mapping.
        unsafe { mmap(self.start.byte_add(at), len, prot, flags, self.file.as_fd(), from as u64)? };
        Ok(())
    }

    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the mapping is `len` bytes long, and `self` is its only owner.
        unsafe { slice::from_raw_parts_mut(self.start.cast(), self.len) }
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // SAFETY: this is our own mapping, and no reference to it is left.
        let _ = unsafe { munmap(self.start, self.len) };
    }
}

/// Pages of a reader in any order, and a window that maps them in the order of the text.
struct Scattered {
    window: Window,
}

impl Scattered {
    fn new(len: usize) -> Result<Self, Box<dyn Error>> {
        Ok(Self { window: Window::new(len, len)? })
    }

    /// Returns the page of the file for each page of the text: the even ones from the end on, then
    /// the odd ones.
    fn order(&self) -> impl Iterator<Item = usize> + use<> {
        let pages = self.window.len / PAGE;
        (0..pages).rev().filter(|page| page % 2 == 0).chain((0..pages).rev().filter(|page| page % 2 == 1))
    }

    fn map(&self) -> Result<(), Box<dyn Error>> {
        self.order().enumerate().try_for_each(|(idx, page)| self.window.map(idx * PAGE, page * PAGE, PAGE))
    }

    /// Compares the pages themselves, not the window, with the text.
    fn check(&self, text: &[u8]) {
        use std::os::unix::fs::FileExt;
        let mut pages = vec![0; text.len()];
        self.window.file.read_exact_at(&mut pages, 0).expect("the file is as long as a request");
        for (idx, page) in self.order().enumerate() {
            let (shown, at) = (&text[idx * PAGE..][..PAGE], page * PAGE);
            assert!(pages[at..at + PAGE] == *shown, "wrong bytes");
        }
    }
}

fn cpu_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).expect("CPU time is never negative")
}
