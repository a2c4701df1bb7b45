//! Compares the speed of filling pclusters with its upper limit, the library's one-shot call for
//! the same text: `limit 'METHOD[,LEVEL] ...' 'PCLUSTER ...' MIB PATH...`, for example `limit 'lz4
//! zstd,3 lzma,6' '4096 65536' 64 ~/corpus/rootfs/usr`.
//! `limit 'lz4 zstd,3 lzma,6' '4096 65536' 64 ~/corpus/rootfs/usr`.
//!
//! The text is about MIB mebibytes of the files at and below the paths, evenly spread. Each file is
//! a part: the encoder is reset and fills it front to back. Then all text is cut into units of the
//! average length that a pcluster held, and each unit is encoded in one call with enough room. The
//! output is, for each method and pcluster length, that average, both speeds in MB of text per CPU
//! second, their quotient, and the quotient of the sizes of all streams. Text that does not
//! compress is left out of both.

use kiln_codec::{Encoder, Spec};
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{env, error::Error, fs};

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = env::args().skip(1).collect();
    let [methods, pcluster_lens, mib, paths @ ..] = args.as_slice() else {
        return Err("usage: limit 'METHOD[,LEVEL] ...' 'PCLUSTER_BYTES ...' MIB PATH...".into());
    };
    let parts = text(paths, mib.parse::<u64>()? << 20)?;
    println!(
        "{:<14} {:>8} {:>9} {:>9} {:>9} {:>7} {:>7}",
        "method", "pcluster", "unit", "fill", "one-shot", "speed", "size"
    );
    for method in methods.split_whitespace() {
        for pcluster_len in pcluster_lens.split_whitespace() {
            let spec = Spec::parse(method, pcluster_len.parse()?)?;
            let (filled, taken) = fill(&parts, &spec)?;
            let unit = taken.len / filled.streams.max(1);
            let plain = one_shot(&taken.text, unit, &spec)?;
            let (speed, limit) = (filled.speed(taken.len), plain.speed(taken.len));
            println!(
                "{method:<14} {pcluster_len:>8} {unit:>9} {speed:>9.1} {limit:>9.1} {:>7.3} {:>7.3}",
                speed / limit,
                filled.produced as f64 / plain.produced as f64,
            );
        }
    }
    Ok(())
}

/// Cost and output of encoding a text.
#[derive(Default)]
struct Encoded {
    streams: usize,
    produced: usize,
    cpu: Duration,
}

impl Encoded {
    /// Returns MB of text per CPU second.
    fn speed(&self, text_len: usize) -> f64 {
        text_len as f64 / 1e6 / self.cpu.as_secs_f64()
    }
}

/// Text that was filled into pclusters, by part.
#[derive(Default)]
struct FilledText {
    text: Vec<Vec<u8>>,
    len: usize,
}

fn fill(parts: &[Vec<u8>], spec: &Spec) -> Result<(Encoded, FilledText), Box<dyn Error>> {
    let mut encoder = Encoder::new(spec)?;
    let mut out = vec![0; spec.pcluster_len as usize];
    let (mut encoded, mut taken) = (Encoded::default(), FilledText::default());
    for part in parts {
        encoder.reset();
        let mut text = Vec::new();
        let mut rest = &part[..];
        while !rest.is_empty() {
            let start = cpu_time();
            let filled = encoder.fill(rest, &mut out)?;
            let cpu = cpu_time() - start;
            let step = if filled.consumed == 0 { rest.len().min(out.len()) } else { filled.consumed };
            if filled.consumed > 0 {
                encoded.streams += 1;
                encoded.produced += filled.produced;
                encoded.cpu += cpu;
                text.extend_from_slice(&rest[..step]);
            }
            rest = &rest[step..];
        }
        taken.len += text.len();
        taken.text.push(text);
    }
    Ok((encoded, taken))
}

fn one_shot(parts: &[Vec<u8>], unit: usize, spec: &Spec) -> Result<Encoded, Box<dyn Error>> {
    let mut encoder = Encoder::new(spec)?;
    let mut out = vec![0; 2 * unit + 4096];
    let mut encoded = Encoded::default();
    for part in parts {
        encoder.reset();
        for text in part.chunks(unit.max(1)) {
            let start = cpu_time();
            let produced = encoder.encode(text, &mut out)?.ok_or("a unit does not fit twice its length")?;
            encoded.cpu += cpu_time() - start;
            encoded.streams += 1;
            encoded.produced += produced;
        }
    }
    Ok(encoded)
}

/// Reads about `len` bytes of the files at and below `paths`: every n-th, in the order of their
/// paths.
fn text(paths: &[String], len: u64) -> Result<Vec<Vec<u8>>, Box<dyn Error>> {
    let mut files = Vec::new();
    for path in paths {
        find(Path::new(path), &mut files)?;
    }
    files.sort();
    let total: u64 = files.iter().map(|file| file.1).sum();
    let mut parts = Vec::new();
    let (mut seen, mut read) = (0, 0);
    for (path, file_len) in files {
        seen += file_len;
        // A file is read if the bytes read so far lag behind their share of the bytes seen.
        if read <= u64::try_from(u128::from(seen) * u128::from(len) / u128::from(total.max(1)))? && read < len {
            parts.push(fs::read(path)?);
            read += file_len;
        }
    }
    Ok(parts)
}

/// Adds the regular files at and below `path`, with their lengths.
fn find(path: &Path, files: &mut Vec<(PathBuf, u64)>) -> Result<(), Box<dyn Error>> {
    let meta = fs::symlink_metadata(path)?;
    if meta.is_file() {
        files.push((path.to_owned(), meta.len()));
    } else if meta.is_dir() {
        for entry in fs::read_dir(path)? {
            find(&entry?.path(), files)?;
        }
    }
    Ok(())
}

/// Returns the CPU time of this thread.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(time).expect("CPU time is never negative")
}
