//! Compares the speed of filling pclusters with its upper limit, the library's one-shot call for
//! the same text: `limit 'METHOD[,LEVEL] ...' 'PCLUSTER ...' MIB PATH...`, for example `limit 'lz4
//! zstd,3 lzma,6' '4096 65536' 64 ~/corpus/rootfs/usr`.
//!
//! The text is about MIB mebibytes of the files at and below the paths, evenly spread. Each file is
//! a part: the encoder is reset and fills it front to back. Then each text that a pcluster took is
//! encoded in one call with enough room. Both take turns, and the medians of their CPU times count.
//! The output is, for each method and pcluster length, the average text of a pcluster, both speeds
//! in MB of text per CPU second, their quotient, the ratio of the text to the streams, and the
//! quotient of the sizes of both kinds of streams. Text that does not compress is left out.

use kiln_codec::{Encoder, Spec};
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{env, error::Error, fs};

/// Number of measurements of each kind.
const ROUNDS: usize = 5;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = env::args().skip(1).collect();
    let [methods, pcluster_lens, mib, paths @ ..] = args.as_slice() else {
        return Err("usage: limit 'METHOD[,LEVEL] ...' 'PCLUSTER_BYTES ...' MIB PATH...".into());
    };
    let parts = text(paths, mib.parse::<u64>()? << 20)?;
    println!(
        "{:<14} {:>8} {:>9} {:>9} {:>9} {:>7} {:>7} {:>7}",
        "method", "pcluster", "unit", "fill", "one-shot", "speed", "ratio", "size"
    );
    for method in methods.split_whitespace() {
        for pcluster_len in pcluster_lens.split_whitespace() {
            let spec = Spec::parse(method, pcluster_len.parse()?)?;
            let mut rounds = Vec::new();
            for _ in 0..ROUNDS {
                let filled = fill(&parts, &spec)?;
                let plain = one_shot(&filled.units, &spec)?;
                rounds.push((filled, plain));
            }
            let median = |mut times: Vec<Duration>| {
                times.sort();
                times[ROUNDS / 2].as_secs_f64()
            };
            let fill_time = median(rounds.iter().map(|round| round.0.cpu).collect());
            let limit_time = median(rounds.iter().map(|round| round.1.cpu).collect());
            let (Encoded { produced, units, .. }, plain) = &rounds[0];
            let text_len: usize = units.iter().map(|unit| unit.len()).sum();
            println!(
                "{method:<14} {pcluster_len:>8} {:>9} {:>9.1} {:>9.1} {:>7.3} {:>7.4} {:>7.4}",
                text_len / units.len().max(1),
                text_len as f64 / 1e6 / fill_time,
                text_len as f64 / 1e6 / limit_time,
                limit_time / fill_time,
                text_len as f64 / *produced as f64,
                *produced as f64 / plain.produced as f64,
            );
        }
    }
    Ok(())
}

/// Cost and output of encoding texts.
#[derive(Default)]
struct Encoded<'a> {
    units: Vec<&'a [u8]>,
    produced: usize,
    cpu: Duration,
}

/// Fills pclusters with the parts.
fn fill<'a>(parts: &'a [Vec<u8>], spec: &Spec) -> Result<Encoded<'a>, Box<dyn Error>> {
    let mut encoder = Encoder::new(spec)?;
    let mut out = vec![0; spec.pcluster_len as usize];
    let mut encoded = Encoded::default();
    for part in parts {
        encoder.reset();
        let mut rest = &part[..];
        while !rest.is_empty() {
            let start = cpu_time();
            let filled = encoder.fill(rest, &mut out)?;
            let cpu = cpu_time() - start;
            let (unit, behind) = rest.split_at(match filled.consumed {
                0 => rest.len().min(out.len()),
                len => len,
            });
            if filled.consumed > 0 {
                encoded.produced += filled.produced;
                encoded.cpu += cpu;
                encoded.units.push(unit);
            }
            rest = behind;
        }
    }
    Ok(encoded)
}

/// Encodes each unit in one call.
fn one_shot<'a>(units: &[&'a [u8]], spec: &Spec) -> Result<Encoded<'a>, Box<dyn Error>> {
    let mut encoder = Encoder::new(spec)?;
    let longest = units.iter().map(|unit| unit.len()).max().unwrap_or_default();
    let mut out = vec![0; 2 * longest + 4096];
    let mut encoded = Encoded::default();
    for unit in units {
        let start = cpu_time();
        let produced = encoder.encode(unit, &mut out)?.ok_or("a unit does not fit twice its length")?;
        encoded.cpu += cpu_time() - start;
        encoded.units.push(unit);
        encoded.produced += produced;
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
