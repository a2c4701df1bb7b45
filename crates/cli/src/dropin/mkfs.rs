//! `mkfs.erofs`

mod compression;
mod extended;
mod hints;
mod input;
mod layout;
mod options;
mod refused;
mod table;
mod times;
mod value;

use super::{Stop, getopt};
use crate::console::text;
use crate::exit::Failure;
use crate::pack::failure;
use crate::pack::output::{Destination, Stream};
use crate::pack::target::{Target, ids};
use crate::process::signals::Signals;
use kiln_builder::Summary;
use kiln_output::{AtomicFile, Durability, Existing};
use kiln_source::Scan;
use options::{Options, Request};
use std::ffi::OsString;
use std::fmt;
use std::io::{self, Write};
use std::sync::Arc;
use uuid::Uuid;

/// The text of `--help`. containerd looks for `--tar=` in it.
pub const USAGE: &str = "\
[OPTIONS] FILE SOURCE...
Generate EROFS image (FILE) from SOURCE: a directory, a tar archive (--tar), or
EROFS images, the lowest first, which are then extra devices of FILE in this
order (--clean=data copies them). Where FILE is a pipe, it gets the image once
it is complete in a nameless file in $TMPDIR or /var/tmp.

General options:
 -V, --version         print the version number and exit
 -h, --help            display this help and exit

 -b#                   block size in bytes, 512 to 65536 (default 4096)
 -C#                   largest compressed unit in bytes (default a block)
 -d<0-9>               set output verbosity; 0=quiet, 9=verbose (default=2)
 -EX[,...]             X=extended options, see below
 -L label              set the volume label (maximum 15 bytes)
 -m#[:X]              compress metadata in units of # bytes, by compressor X
 -T#                   fixed UNIX time for the image and all files
    --all-time         -T is for all files, too (default)
    --mkfs-time        -T is for the image only
 -UX                   set the UUID: X, clear or random (default from contents)
 -x#                   share extended attributes of more than # files; < 0: none
 -zX[,level=#][:...]   compressor (default none): lz4, lz4hc (0-12), lzma (0-9,
                       100-109), deflate (0-9), libdeflate (0-12), zstd (0-22);
                       others than the first are for --compress-hints

 --all-root            make all files owned by root
 --aufs                replace aufs special files with overlayfs metadata
 --blobdev=X           put the chunks into X, an extra device
 --clean=data          copy the contents of EROFS images, do not refer to them
 --chunksize=#         files that are not compressed in chunks of # bytes
 --compress-hints=X    compress files as file X says, line by line: the largest
                       unit in bytes (0: not at all), perhaps the number of a
                       compressor of -z (from 0 on), a regular expression
 --dsunit=#            data of files starts at multiples of # blocks
 --exclude-path=X      leave out X, an exact path
 --exclude-regex=X     leave out paths that match X, a regular expression
 --file-contexts=X     SELinux labels as file X says
 --force-uid=#, --force-gid=#
                       set all owners
 --uid-offset=#, --gid-offset=#
                       add # to all owners
 --fs-config-file=X    owners, modes and capabilities of all files as file X says
 --fsalignblks=#       the image has a multiple of # blocks
 --gzip, --ungzip[=X]  the archive is compressed with gzip; keep it in X as it was
                       before (any compression is recognised without it)
 --hard-dereference    hard links become separate files
 --ignore-mtime        all files get the time of building
 --preserve-mtime      files keep their times (default)
 --max-extent-bytes=#  an extent stands for # bytes at most
 --mount-point=X       prefix of paths for --file-contexts and --fs-config-file
 --offset=#            the image begins at byte # of FILE; the rest of FILE stays
 --ovlfs-strip[=<0,1>] drop metadata of overlayfs
 --root-xattr-isize=#  leave # bytes for extended attributes of the root
 --quiet               print errors only
 --tar=X               SOURCE, or standard input, is a tar archive: X = f (copy
                       it), i (refer to it, with blocks of 512 bytes: FILE is an
                       index; append the archive, or mount it as a device) or
                       headerball (only headers; files are holes)
 --unlzma[=X], --unxz[=X]
                       as --ungzip, for xz, lzma and lzip
 --zD[=<0,1>]          compress large directories
 --vmdk-desc=X         write a VMDK descriptor of image and extra device to X
 --workers=#           number of threads (default one for each processor)
 --xattr-inode-digest[=X]
                       store SHA-256 digests of contents as attribute X
 --xattr-prefix=X      store X once for all names of attributes that begin so
 --zfeature-bits=#     extended options by number

Extended options: 48bit, all-fragments[=#], dedupe, dot-omitted,
force-chunk-indexes, force-inode-blockmap, force-inode-compact,
force-inode-extended, fragments[=#], [^]inline_data, nosbcrc,
plain-xattr-prefixes, ztailpacking. Without effect are fragdedupe,
legacy-compress and xattr-name-filter, and also --async-queue-limit, --MZ and
--sort.

Not possible yet, and refused: --clean=0, --clean=rvsp, --gzinfo, --incremental,
--oci, --s3, maps of archives (--tar=X,MAP), and --product-out without
--fs-config-file.
";

const COMPRESSORS: &str = "available compressors: lz4, lz4hc, lzma, deflate, libdeflate, zstd\n";

pub fn run(args: Vec<OsString>) -> Result<(), Stop> {
    let mut options = Options::default();
    options.read(getopt::parse(&table::OPTIONS, args)?)?;
    let request = options.request()?;
    for warning in &request.warnings {
        request.log.warning(format_args!("{warning}"));
    }
    let destination = Destination::of_path(&request.file)?;
    let mut said = Said::beside(destination.stream(), request.quiet);
    said.write(format_args!("mkfs.erofs {}\n", super::OPTIONS_OF))?;
    let signals = Signals::catch()?;
    let fail = |error| failure(error, &signals, &request.file);
    let mut target = target(&request, destination)?;
    let kept = request
        .input
        .kept()
        .map(|path| target.sibling(path, Existing::Replace, "the archive that is kept needs a file of its own"));
    let kept = kept.transpose()?;
    let source = request.input.open(kept.as_ref().map(AtomicFile::file), &signals)?;
    let packer = target.prepare(request.packer.clone()).outputs(kept.iter().flat_map(ids));
    let packer = packer.stop(Arc::clone(signals.stop()));
    let scanned = packer.scan_into(&*source, target.out(), &|_| {}).map_err(|error| target.failure(fail(error)))?;
    target.refer_to(scanned.scan.tree.stores().devices, scanned.options.block_bits)?;
    let built = scanned.build(target.out(), &|_| {}).map_err(|error| target.failure(fail(error)));
    let summary = built?.summary;
    drop(source);
    if let Some(kept) = kept {
        kept.commit().map_err(Failure::from)?;
    }
    target.commit(&summary, &signals)?;
    tell(&request, &scanned.scan);
    Ok(said.write(report(&summary))?)
}

fn target(request: &Request, destination: Destination) -> Result<Target, Failure> {
    // The original syncs nothing, and its callers know: containerd has an option for it, systemd-repart syncs by itself.
    let target = Target::create(destination, Existing::Replace, request.offset, None)?;
    let mut target = target.with_durability(Durability::LeftToCaller);
    if let Some(blob) = &request.blob {
        target = target.with_blob(blob, Existing::Replace)?;
    }
    if let Some(path) = &request.vmdk {
        target = target.with_descriptor(path, &request.file, Existing::Replace)?;
    }
    Ok(target)
}

/// Warns of what the image does not have as the source does.
fn tell(request: &Request, scan: &Scan) {
    for note in &scan.notes {
        request.log.warning(format_args!("{note}"));
    }
    if !scan.left_out_xattrs.is_empty() {
        request.log.warning(format_args!("{}", scan.left_out_xattrs));
    }
    for path in &scan.outputs {
        let path = text::escape(path);
        request.log.warning(format_args!("{path} is left out, for it is what is being written"));
    }
}

/// The destination of the report.
enum Said {
    /// Standard output, as in the original.
    Stdout,
    /// Standard error, as the image goes to standard output.
    Stderr,
    Nowhere,
}

impl Said {
    fn beside(stream: Option<&Stream>, quiet: bool) -> Self {
        match stream {
            _ if quiet => Said::Nowhere,
            Some(stream) if !stream.is_stdout() => Said::Stdout,
            Some(stream) if stream.is_stderr() => Said::Nowhere,
            Some(_) => Said::Stderr,
            None => Said::Stdout,
        }
    }

    fn write(&mut self, text: impl fmt::Display) -> io::Result<()> {
        match self {
            Said::Stdout => write!(io::stdout(), "{text}").and_then(|()| io::stdout().flush()),
            Said::Stderr => write!(io::stderr(), "{text}"),
            Said::Nowhere => Ok(()),
        }
    }
}

/// Formats the report in the words of the original, which scripts read.
fn report(summary: &Summary) -> String {
    let inodes = summary.files + summary.directories + summary.others + summary.special_inodes;
    let metadata_bytes = summary.image_bytes.saturating_sub(summary.data_bytes);
    let block_len = summary.block_len;
    let all_bytes = summary.image_bytes + summary.blob_bytes + summary.device_bytes;
    let deduplicated = summary.duplicate_bytes + summary.shared_bytes;
    format!(
        "Build completed.\n\n------\n\
         Filesystem UUID: {}\n\
         Filesystem total blocks: {} (of {block_len}-byte blocks)\n\
         Filesystem total inodes: {inodes}\n\
         Filesystem total metadata blocks: {}\n\
         Filesystem total deduplicated bytes (of source files): {deduplicated}\n",
        Uuid::from_bytes(summary.uuid),
        all_bytes / block_len,
        metadata_bytes / block_len,
    )
}

/// Returns the version to print.
fn version() -> Stop {
    Stop::Version(COMPRESSORS)
}
