//! The command line of `mkfs.erofs`.

use super::compression::{Compression, MetadataCompression, check_pcluster_len, pcluster_len};
use super::extended::Extended;
use super::refused;
use super::target::scratch_dir;
use super::times::{Scope, TimeWishes};
use super::value::{id, invalid, signed};
use crate::dropin::Stop;
use crate::dropin::getopt::{Item, Misuse, Opt, Takes, both, long, number, short};
use crate::dropin::log::Log;
use crate::exit::Failure;
use crate::pack::{Label, source_date_epoch};
use crate::threads::processors;
use kiln_build::{BuildOptions, Dedupe};
use kiln_source::filter::{FileContexts, Filter, IdBase, Labels, NameGlobs, Policy};
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use uuid::Uuid;

pub const OPTIONS: [Opt; 60] = [
    both('V', "version", Takes::Nothing),
    both('h', "help", Takes::Nothing),
    short("b", Takes::Value),
    short("C", Takes::Value),
    short("d", Takes::Value),
    short("E", Takes::Value),
    short("L", Takes::Value),
    short("m", Takes::Value),
    short("T", Takes::Value),
    short("U", Takes::Value),
    short("x", Takes::Value),
    short("z", Takes::Value),
    long("all-root", Takes::Nothing),
    long("all-time", Takes::Nothing),
    long("async-queue-limit", Takes::Value),
    long("aufs", Takes::Nothing),
    long("blobdev", Takes::Value),
    long("chunksize", Takes::Value),
    long("clean", Takes::Optional),
    long("compress-hints", Takes::Value),
    long("dsunit", Takes::Value),
    long("exclude-path", Takes::Value),
    long("exclude-regex", Takes::Value),
    long("file-contexts", Takes::Value),
    long("force-gid", Takes::Value),
    long("force-uid", Takes::Value),
    long("fs-config-file", Takes::Value),
    long("fsalignblks", Takes::Value),
    long("gid-offset", Takes::Value),
    long("gzinfo", Takes::Optional),
    long("gzip", Takes::Nothing),
    long("hard-dereference", Takes::Nothing),
    long("ignore-mtime", Takes::Nothing),
    long("incremental", Takes::Optional),
    long("max-extent-bytes", Takes::Value),
    long("mkfs-time", Takes::Nothing),
    long("mount-point", Takes::Value),
    long("MZ", Takes::Optional),
    long("oci", Takes::Optional),
    long("offset", Takes::Value),
    long("ovlfs-strip", Takes::Optional),
    long("preserve-mtime", Takes::Nothing),
    long("product-out", Takes::Value),
    long("quiet", Takes::Nothing),
    long("random-algorithms", Takes::Nothing),
    long("random-pclusterblks", Takes::Nothing),
    long("root-xattr-isize", Takes::Value),
    long("s3", Takes::Value),
    long("sort", Takes::Value),
    long("tar", Takes::Optional),
    long("uid-offset", Takes::Value),
    long("ungzip", Takes::Optional),
    long("unlzma", Takes::Optional),
    long("unxz", Takes::Optional),
    long("vmdk-desc", Takes::Value),
    long("workers", Takes::Value),
    long("xattr-inode-digest", Takes::Optional),
    long("xattr-prefix", Takes::Value),
    long("zD", Takes::Optional),
    long("zfeature-bits", Takes::Value),
];

/// The largest pcluster where none is named, in bytes: the block, as in the original.
const PCLUSTER_LEN: u32 = 4096;

/// What is compressed as one piece of encoded extents where nothing is named, in bytes: in pieces of one block hardly
/// anything would be gained.
const UNIT_LEN: u32 = 64 << 10;

/// Threads that may be asked for.
const WORKERS_MAX: u64 = 1024;

/// What was asked for.
#[derive(Default)]
pub struct Options {
    log: Log,
    quiet: bool,
    operands: Vec<PathBuf>,
    compression: Option<Compression>,
    pcluster_len: Option<u32>,
    metadata: Option<MetadataCompression>,
    compress_directories: bool,
    extended: Extended,
    times: TimeWishes,
    uuid: Option<[u8; 16]>,
    label: Label,
    workers: Option<usize>,
    filter: Filter,
    policy: Policy,
    file_contexts: Option<PathBuf>,
    mount_point: Vec<u8>,
}

/// What this makes together.
pub struct Request {
    pub log: Log,
    pub quiet: bool,
    pub file: PathBuf,
    pub source: PathBuf,
    pub filter: Filter,
    pub policy: Policy,
    pub build: BuildOptions,
    pub warnings: Vec<String>,
}

impl Options {
    pub fn read(&mut self, items: Vec<Item>) -> Result<(), Stop> {
        for item in items {
            match item {
                Item::Operand(operand) => self.operands.push(operand.into()),
                Item::Option("help", _) => return Err(Stop::Help),
                Item::Option("version", _) => return Err(super::version()),
                Item::Option(name, value) => match refused::check(name, value.as_ref()) {
                    Some(checked) => checked?,
                    None => self.option(name, value)?,
                },
            }
        }
        Ok(())
    }

    fn option(&mut self, name: &str, value: Option<OsString>) -> Result<(), Stop> {
        match (name, value) {
            ("zD", value) => self.compress_directories = flag(name, value)?,
            ("MZ", value) => metadata_zone(value)?,
            ("ovlfs-strip", value) => self.policy.strip_overlay = flag(name, value)?,
            (_, Some(value)) => self.with_value(name, value)?,
            ("all-root", _) => {
                self.policy.uid.base = IdBase::All(0);
                self.policy.gid.base = IdBase::All(0);
            }
            ("all-time", _) => self.times.scope = Some(Scope::All),
            ("mkfs-time", _) => self.times.scope = Some(Scope::ImageOnly),
            ("aufs", _) => self.policy.aufs = true,
            ("hard-dereference", _) => self.policy.hard_dereference = true,
            ("ignore-mtime", _) => self.times.ignore_mtime = true,
            ("preserve-mtime", _) => self.times.ignore_mtime = false,
            ("quiet", _) => self.quiet = true,
            _ => {}
        }
        Ok(())
    }

    fn with_value(&mut self, name: &str, value: OsString) -> Result<(), Stop> {
        match name {
            "C" => self.pcluster_len = Some(pcluster_len(&value)?),
            "E" => self.extended.read(&value)?,
            "L" => self.label = label(&value)?,
            "T" => self.times.fixed = Some(signed(&value).ok_or_else(|| invalid("UNIX timestamp", &value))?),
            "U" => self.uuid = Some(uuid(&value)?),
            "d" => self.log = Log::parse(&value)?,
            "m" => self.metadata = Some(MetadataCompression::parse(&value)?),
            "x" => self.xattr_tolerance(&value)?,
            "z" => self.compression = Some(Compression::parse(&value)?),
            "async-queue-limit" => drop(number(&value).ok_or_else(|| invalid("async-queue-limit", &value))?),
            "exclude-path" => self.filter.exclude_path(value.as_bytes()),
            "exclude-regex" => self.exclude_regex(&value)?,
            "file-contexts" => self.file_contexts = Some(value.into()),
            "force-gid" => self.policy.gid.base = IdBase::All(id(&value).ok_or_else(|| invalid("gid", &value))?),
            "force-uid" => self.policy.uid.base = IdBase::All(id(&value).ok_or_else(|| invalid("uid", &value))?),
            "gid-offset" => self.policy.gid.offset = signed(&value).ok_or_else(|| invalid("gid offset", &value))?,
            "uid-offset" => self.policy.uid.offset = signed(&value).ok_or_else(|| invalid("uid offset", &value))?,
            "mount-point" => self.mount_point = value.as_bytes().to_vec(),
            "sort" if value != "path" && value != "none" => return Err(invalid("sort order", &value).into()),
            "workers" => self.workers = Some(workers(&value)?),
            "zfeature-bits" => self.extended.read_bits(&value)?,
            // --sort, which is for archives: a directory's files are always in the order of a walk.
            _ => {}
        }
        Ok(())
    }

    /// Attributes with two owners or more are shared, whatever number is named.
    fn xattr_tolerance(&mut self, value: &OsString) -> Result<(), Stop> {
        let tolerance = signed(value).ok_or_else(|| invalid("xattr tolerance", value))?;
        let none = if tolerance < 0 { &[&b"*"[..]][..] } else { &[] };
        let globs = NameGlobs::new(none.iter().copied()).map_err(|error| Failure::Usage(format!("-x: {error}")))?;
        self.policy.xattrs.exclude = globs;
        Ok(())
    }

    fn exclude_regex(&mut self, value: &OsString) -> Result<(), Misuse> {
        let text = value.to_str().ok_or_else(|| invalid("regex", value))?;
        self.filter.regexes.add(text).map_err(|error| Misuse::Other(format!("invalid regex {text} ({error})")))
    }

    /// See that everything goes together.
    pub fn request(self) -> Result<Request, Stop> {
        let (file, source) = self.operands()?;
        let mut warnings: Vec<String> = self.extended.warnings.iter().map(ToString::to_string).collect();
        let threads = self.threads(&mut warnings);
        if self.extended.dedupe && self.compression.is_none() {
            warnings.push("-Ededupe: nothing is compressed: only whole files are stored once".into());
        }
        if self.compress_directories && self.compression.is_none() {
            warnings.push("--zD: nothing is compressed, directories neither".into());
        }
        let build = self.layout()?;
        if self.metadata.is_some() && build.metabox.is_none() {
            warnings.push("-m: nothing is compressed, metadata neither".into());
        }
        let mut times = self.times;
        times.ignore_mtime |= self.extended.compact_inodes;
        let mut policy = self.policy;
        let latest;
        (policy.times, latest) = times.resolve(source_date_epoch()?, now);
        policy.labels = self.file_contexts.map(|path| labels(&path, self.mount_point)).transpose()?;
        let build = BuildOptions {
            threads,
            uuid: self.uuid,
            label: self.label.padded(),
            source_date_epoch: latest,
            scratch_dir: scratch_dir(&file),
            ..build
        };
        let log = if self.quiet { Log::QUIET } else { self.log };
        Ok(Request { log, quiet: self.quiet, file, source, filter: self.filter, policy, build, warnings })
    }

    /// How everything is stored.
    fn layout(&self) -> Result<BuildOptions, Stop> {
        let files = layout(self.compression, self.pcluster_len, &self.extended)?;
        let metabox = match self.metadata {
            Some(metadata) => metadata.spec(files.compression)?,
            None => None,
        };
        // The metabox needs a later kernel than what 48bit allows.
        let own_mtimes = files.own_mtimes || metabox.is_some();
        Ok(BuildOptions { pack_directories: self.compress_directories, metabox, own_mtimes, ..files })
    }

    fn operands(&self) -> Result<(PathBuf, PathBuf), Stop> {
        let missing = |what: &str| Stop::from(Misuse::Other(format!("missing argument: {what}")));
        match &self.operands[..] {
            [] => Err(missing("FILE")),
            [_] => Err(missing("SOURCE")),
            [_, source] if source.is_file() => {
                Err(refused::not_yet(&source.display().to_string(), "the source is a directory, no archive or image"))
            }
            [file, source] => Ok((file.clone(), source.clone())),
            [_, _, other, ..] => Err(Misuse::Other(format!("unexpected argument: {}", other.display())).into()),
        }
    }

    fn threads(&self, warnings: &mut Vec<String>) -> usize {
        let processors = processors();
        if let Some(workers) = self.workers.filter(|&workers| workers > processors) {
            warnings
                .push(format!("{workers} workers exceed {processors} processors, potentially impacting performance."));
        }
        self.workers.unwrap_or(processors).max(1)
    }
}

/// How data is stored.
fn layout(
    compression: Option<Compression>,
    pcluster_len: Option<u32>,
    extended: &Extended,
) -> Result<BuildOptions, Stop> {
    let packed_pcluster_len = match extended.packed_pcluster_len {
        Some(len) => Some(check_pcluster_len(len).ok_or_else(|| invalid("fragment size", &len.to_string().into()))?),
        None => None,
    };
    let default_len = if extended.bits48 { UNIT_LEN } else { PCLUSTER_LEN };
    let spec = |compression: Compression| compression.spec(pcluster_len.unwrap_or(default_len));
    let compression = compression.map(spec).transpose()?;
    Ok(BuildOptions {
        compression,
        dedupe: if extended.dedupe { Dedupe::Parts } else { Dedupe::Files },
        fragments: extended.fragments,
        packed_pcluster_len,
        tail_packing: extended.tail_packing,
        encoded_extents: extended.bits48 && compression.is_some(),
        own_mtimes: extended.bits48,
        ..BuildOptions::default()
    })
}

fn flag(name: &str, value: Option<OsString>) -> Result<bool, Misuse> {
    match value.as_ref().map(|value| value.as_bytes()) {
        None | Some(b"1") => Ok(true),
        Some(b"0") => Ok(false),
        Some(other) => Err(Misuse::Other(format!("invalid --{name}={}", other.escape_ascii()))),
    }
}

/// `--MZ`: there is a zone of inodes and directories whatever is asked for.
fn metadata_zone(value: Option<OsString>) -> Result<(), Misuse> {
    match value {
        Some(value) if !["0", "i", "id"].iter().any(|known| value == *known) => Err(invalid("metadata zone", &value)),
        _ => Ok(()),
    }
}

fn label(value: &OsString) -> Result<Label, Misuse> {
    let label = value.to_str().and_then(|text| text.parse().ok());
    label.ok_or_else(|| Misuse::other("invalid volume label"))
}

fn uuid(value: &OsString) -> Result<[u8; 16], Stop> {
    match value.to_str() {
        Some("clear") => Ok([0; 16]),
        Some("random") => random_uuid(),
        text => {
            let uuid = text.and_then(|text| Uuid::parse_str(text).ok());
            Ok(uuid.ok_or_else(|| invalid("UUID", value))?.into_bytes())
        }
    }
}

/// Version 4.
fn random_uuid() -> Result<[u8; 16], Stop> {
    let mut bytes = [0; 16];
    // So few bytes come at once.
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()).map_err(std::io::Error::from)?;
    Ok(uuid::Builder::from_random_bytes(bytes).into_uuid().into_bytes())
}

fn workers(value: &OsString) -> Result<usize, Misuse> {
    let count = number(value).filter(|&count| count <= WORKERS_MAX).and_then(|count| usize::try_from(count).ok());
    count.ok_or_else(|| invalid("worker number", value))
}

fn labels(path: &Path, mount_point: Vec<u8>) -> Result<Labels, Failure> {
    let text = fs::read(path).map_err(|source| Failure::File { path: path.to_owned(), action: "read", source })?;
    let contexts = FileContexts::parse(&text, &path.to_string_lossy());
    Ok(Labels { contexts: contexts.map_err(|error| Failure::Usage(error.to_string()))?, mount_point })
}

/// Seconds since 1970.
fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64)
}
