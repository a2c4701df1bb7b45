//! `kiln digest`: fs-verity digests.

use crate::console::report::{JsonList, Out, PathJson};
use crate::exit::{Exit, Failure};
use crate::process::work::WorkArgs;
use kiln_parallel::ordered::{self, Costed};
use kiln_verity::Algorithm;
use kiln_verity::fsverity::FsVerity;
use serde::Serialize;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Bytes that are read at once.
const READ_LEN: usize = 256 << 10;

/// Print fs-verity digests of files
///
/// They are the digests that the kernel measures of files with fs-verity, and that composefs stores. The files need no
/// fs-verity, and do not change. Each line is as `fsverity digest` prints it.
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  kiln digest image.erofs")]
pub struct Args {
    /// Files
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,

    /// Hash function: `sha256` or `sha512`
    #[arg(long, default_value = "sha256")]
    algorithm: Algorithm,

    #[command(flatten)]
    work: WorkArgs,
}

#[derive(Serialize)]
struct DigestJson {
    #[serde(flatten)]
    path: PathJson,
    algorithm: &'static str,
    digest: String,
    bytes: u64,
}

pub fn run(args: &Args) -> Result<Exit, Failure> {
    args.work.apply_nice()?;
    let meter = args.work.meter(false);
    let jobs = args.files.iter().cloned().map(|path| Costed { job: path, cost: 1 });
    let make_worker = || {
        let mut buf = vec![0; READ_LEN];
        let meter = &meter;
        Ok(move |path: PathBuf| {
            let failed = |action, source| Failure::File { path: path.clone(), action, source };
            let mut file = File::open(&path).map_err(|source| failed("open", source))?;
            let mut hasher = FsVerity::new(args.algorithm);
            loop {
                let len = file.read(&mut buf).map_err(|source| failed("read", source))?;
                if len == 0 {
                    break;
                }
                hasher.update(&buf[..len]);
                meter.advance(len as u64);
            }
            let (bytes, digest) = (hasher.len(), hasher.finish());
            Ok((path, bytes, digest))
        })
    };
    let budget = 64;
    let algorithm = args.algorithm.name();
    if args.work.json {
        let mut list = JsonList::start("digests")?;
        ordered::run(args.work.threads(), budget, jobs, make_worker, |(path, bytes, digest)| {
            let path = PathJson::new(path.as_os_str().as_bytes());
            list.push(&DigestJson { path, algorithm, digest: digest.to_string(), bytes })
        })?;
        list.finish()?;
        return Ok(Exit::Done);
    }
    ordered::run(args.work.threads(), budget, jobs, make_worker, |(path, _, digest)| {
        let mut out = Out::new();
        write!(out, "{algorithm}:{digest} ")?;
        out.name(path.as_os_str().as_bytes())?;
        writeln!(out)?;
        out.finish()
    })?;
    Ok(Exit::Done)
}
