//! `mkfs.erofs`

mod compression;
mod extended;
mod options;
mod refused;
mod target;
mod times;
mod value;

use super::{Stop, getopt};
use crate::pack::Job;
use crate::report::Out;
use crate::signals::Signals;
use kiln_build::Summary;
use options::Options;
use std::ffi::OsString;
use std::io::Write;
use target::Target;
use uuid::Uuid;

/// What `--help` says. It must not contain `--tar=` before that works: containerd looks for it, and does without.
pub const USAGE: &str = "\
[OPTIONS] FILE SOURCE
Generate EROFS image (FILE) from the directory SOURCE.

General options:
 -V, --version         print the version number and exit
 -h, --help            display this help and exit

 -b#                   block size in bytes; only 4096
 -C#                   largest compressed unit in bytes (default 4096)
 -d<0-9>               set output verbosity; 0=quiet, 9=verbose (default=2)
 -EX[,...]             X=extended options, see below
 -L label              set the volume label (maximum 15 bytes)
 -m#[:X]              compress metadata in units of # bytes, by compressor X
 -T#                   fixed UNIX time for the image and all files
    --all-time         -T is for all files, too (default)
    --mkfs-time        -T is for the image only
 -UX                   set the UUID: X, clear or random (default from contents)
 -x#                   < 0: no extended attributes
 -zX[,level=#]         compressor (default none): lz4, lz4hc (0-12), lzma (0-9,
                       100-109), deflate (0-9), libdeflate (0-12), zstd (0-22)

 --all-root            make all files owned by root
 --aufs                replace aufs special files with overlayfs metadata
 --exclude-path=X      leave out X, an exact path
 --exclude-regex=X     leave out paths that match X, a regular expression
 --file-contexts=X     SELinux labels as file X says
 --force-uid=#, --force-gid=#
                       set all owners
 --uid-offset=#, --gid-offset=#
                       add # to all owners
 --hard-dereference    hard links become separate files
 --ignore-mtime        all files get the time of building
 --preserve-mtime      files keep their times (default)
 --mount-point=X       prefix of paths for --file-contexts
 --ovlfs-strip[=<0,1>] drop metadata of overlayfs
 --quiet               print errors only
 --zD[=<0,1>]          compress large directories
 --workers=#           number of threads (default one for each processor)
 --zfeature-bits=#     extended options by number

Extended options: 48bit, all-fragments[=#], dedupe, force-inode-compact,
fragments[=#]. These change nothing but how an image is laid out, and have no
effect: dot-omitted, force-chunk-indexes, force-inode-blockmap,
force-inode-extended, fragdedupe, legacy-compress, nosbcrc,
plain-xattr-prefixes, xattr-name-filter, [^]inline_data, ztailpacking.
--async-queue-limit, --MZ and --sort have none either.

Not possible yet, and refused: --blobdev, --chunksize, --compress-hints,
--dsunit, --fsalignblks, --fs-config-file, --gzinfo, --gzip, --incremental,
--max-extent-bytes, --oci, --offset, --product-out, --root-xattr-isize, --s3,
--tar, --ungzip, --unlzma, --unxz, --vmdk-desc, --xattr-inode-digest,
--xattr-prefix, several compressors.
";

const COMPRESSORS: &str = "available compressors: lz4, lz4hc, lzma, deflate, libdeflate, zstd\n";

/// Bytes in a block.
const BLOCK_LEN: u64 = 4096;

pub fn run(args: Vec<OsString>) -> Result<(), Stop> {
    let mut options = Options::default();
    options.read(getopt::parse(&options::OPTIONS, args)?)?;
    let request = options.request()?;
    for warning in &request.warnings {
        request.log.warning(format_args!("{warning}"));
    }
    let mut out = Out::new();
    if !request.quiet {
        writeln!(out, "mkfs.erofs {}", super::OPTIONS_OF)?;
        out.flush()?;
    }
    let signals = Signals::catch()?;
    let target = Target::create(&request.file)?;
    let job = Job {
        src: &request.source,
        image: &request.file,
        filter: &request.filter,
        policy: &request.policy,
        options: &request.build,
    };
    let scan = job.scan(&signals)?;
    let (summary, _) = job.build(&scan.tree, target.file(), &signals, &|_| {})?;
    target.commit()?;
    if !request.quiet {
        report(&mut out, &summary)?;
    }
    Ok(out.finish()?)
}

/// In the words of the original, which scripts read.
fn report(out: &mut Out, summary: &Summary) -> std::io::Result<()> {
    let inodes = summary.files + summary.directories + summary.others + summary.special_inodes;
    let metadata_bytes = summary.image_bytes.saturating_sub(summary.data_bytes);
    writeln!(out, "Build completed.\n\n------")?;
    writeln!(out, "Filesystem UUID: {}", Uuid::from_bytes(summary.uuid))?;
    writeln!(out, "Filesystem total blocks: {} (of {BLOCK_LEN}-byte blocks)", summary.image_bytes / BLOCK_LEN)?;
    writeln!(out, "Filesystem total inodes: {inodes}")?;
    writeln!(out, "Filesystem total metadata blocks: {}", metadata_bytes / BLOCK_LEN)?;
    let deduplicated = summary.duplicate_bytes + summary.shared_bytes;
    writeln!(out, "Filesystem total deduplicated bytes (of source files): {deduplicated}")
}

/// For [`Stop::Version`].
fn version() -> Stop {
    Stop::Version(COMPRESSORS)
}
