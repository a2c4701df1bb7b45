//! The client of the suite `reading` of `bench/run`: reads according to a plan, through a mount or with the library,
//! and checks every byte.
//!
//! ```text
//! read-client plan files|shuffled|pages=N|strided|sequential TREE > PLAN
//! read-client run PLAN THREADS mount|walk DIRECTORY
//! read-client run PLAN THREADS image|mapped|many IMAGE
//! read-client decode IMAGE
//! read-client streams IMAGE THREADS
//! ```
//!
//! `walk` lists each directory before it reads the first file in it, as programs do that walk
//! trees. `image` is the library on a file, one read at a time; `mapped` is the same on a mapped
//! file; `many` makes all reads of a plan at once. `decode` is the library's limit: it decodes the
//! streams of all files, each once, on one thread, from memory, and digests them. `streams` is the
//! library at the same work, all at once on a mapped file.
//!
//! The output is one JSON object with CPU seconds (of this process alone), seconds, reads and
//! bytes. Loading the plan and opening the image do not count.

mod decode;
mod plan;
mod run;

use rustix::time::{ClockId, clock_gettime};
use std::error::Error;
use std::ffi::OsString;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

const USAGE: &str = "usage: read-client plan KIND TREE > PLAN; read-client run PLAN THREADS mount|walk|image|mapped|many PLACE; \
                     read-client decode IMAGE; read-client streams IMAGE THREADS";

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    let words: Vec<&str> = args.iter().map(|arg| arg.to_str().unwrap_or_default()).collect();
    let done = match words[..] {
        ["plan", kind, _] => write_plan(kind, Path::new(&args[2])),
        ["run", _, threads, via, _] => measure(Path::new(&args[1]), threads, via, Path::new(&args[4])),
        ["decode", _] => decode(Path::new(&args[1])),
        ["streams", _, threads] => read_streams(Path::new(&args[1]), threads),
        _ => Err(USAGE.into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("read-client: {error}");
            ExitCode::FAILURE
        }
    }
}

fn write_plan(kind: &str, tree: &Path) -> Result<(), Box<dyn Error>> {
    let mut out = BufWriter::new(std::io::stdout().lock());
    for read in plan::make(kind, tree)? {
        read.write(&mut out)?;
    }
    Ok(out.flush()?)
}

fn measure(plan: &Path, threads: &str, via: &str, place: &Path) -> Result<(), Box<dyn Error>> {
    let reads = plan::load(plan)?;
    let source = run::Source::open(via, place)?;
    let threads = threads.parse()?;
    let bytes = reads.iter().map(|read| read.len).sum();
    timed(reads.len(), bytes, || run::all(&reads, &source, threads).map_err(|error| error as Box<dyn Error>))
}

fn decode(image: &Path) -> Result<(), Box<dyn Error>> {
    let streams = decode::streams(image)?;
    // Otherwise the optimizer may remove the work.
    timed(streams.list.len(), streams.plain_len(), || {
        std::hint::black_box(streams.decode()?);
        Ok(())
    })
}

fn read_streams(image: &Path, threads: &str) -> Result<(), Box<dyn Error>> {
    let (streams, mapped, threads) = (decode::streams(image)?, run::mapped(image)?, threads.parse()?);
    let expected = streams.decode()?;
    timed(streams.list.len(), streams.plain_len(), || match streams.read(&mapped, threads)? == expected {
        true => Ok(()),
        false => Err("the library reads other bytes".into()),
    })
}

/// Runs `work` and prints its cost.
fn timed(reads: usize, bytes: u64, work: impl FnOnce() -> Result<(), Box<dyn Error>>) -> Result<(), Box<dyn Error>> {
    let (cpu, wall) = (cpu_time(), Instant::now());
    work()?;
    let (cpu, wall) = ((cpu_time() - cpu).as_secs_f64(), wall.elapsed().as_secs_f64());
    println!("{{\"cpu_s\": {cpu:.6}, \"wall_s\": {wall:.6}, \"reads\": {reads}, \"bytes\": {bytes}}}");
    Ok(())
}

fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
