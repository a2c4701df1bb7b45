//! The command line of `mkfs.erofs`.

use super::compression::{Compression, MetadataCompression};
use super::extended::Extended;
use super::input::{Input, InputOptions};
use super::layout::{holes, layout};
use super::times::{Scope, TimeWishes};
use super::value::{
    block_bits, blocks, extent_max_len, flag, id, invalid, label, root_xattr_len, signed, size, uuid, workers,
};
use super::{hints, refused};
use crate::dropin::Stop;
use crate::dropin::getopt::{Item, Misuse, number};
use crate::dropin::log::Log;
use crate::exit::Failure;
use crate::pack::{ALIGN_MAX, CHUNK_MAX_LEN, source_date_epoch};
use crate::process::threads::processors;
use kiln_builder::{
    BuildOptions, CompressionOptions, ContentDigests, ContentHash, IdentityOptions, LayoutOptions, MetadataOptions,
    Threads, WorkOptions,
};
use kiln_format::BlockBits;
use kiln_format::xattr::FINGERPRINT_NAME;
use kiln_source::manifest::parse_fs_config;
use kiln_tree::DigestName;
use kiln_tree::filter::Filter;
use kiln_tree::policy::{FileContexts, FsConfig, IdBase, Labels, NameGlobs, Policy};
use kilnfs::{ImageLabel, Packer};
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// The options.
#[derive(Default)]
pub struct Options {
    log: Log,
    quiet: bool,
    operands: Vec<PathBuf>,
    input: InputOptions,
    block_bits: Option<BlockBits>,
    compressors: Vec<Compression>,
    hints: Option<PathBuf>,
    /// Length that was asked for, in bytes.
    pcluster_len: Option<u64>,
    metadata: Option<MetadataCompression>,
    compress_directories: bool,
    extended: Extended,
    times: TimeWishes,
    uuid: Option<[u8; 16]>,
    label: ImageLabel,
    workers: Option<usize>,
    filter: Filter,
    policy: Policy,
    file_contexts: Option<PathBuf>,
    fs_config: Option<PathBuf>,
    product_out: Option<PathBuf>,
    mount_point: Vec<u8>,
    blob: Option<PathBuf>,
    vmdk: Option<PathBuf>,
    xattr_prefixes: Vec<Vec<u8>>,
    content_digests: Option<Vec<u8>>,
    /// Most owners of an attribute that is not shared.
    xattr_tolerance: Option<u64>,
    /// In bytes.
    extent_max_len: Option<u32>,
    /// In bytes.
    root_xattr_len: usize,
    /// In bytes.
    chunk_len: Option<u64>,
    /// In blocks; 0 for any.
    dsunit: u64,
    /// In blocks; 0 for any.
    fsalignblks: u64,
    /// In bytes.
    offset: u64,
}

/// The options together, checked.
pub struct Request {
    pub log: Log,
    pub quiet: bool,
    pub file: PathBuf,
    pub input: Input,
    /// First byte of the image in its file.
    pub offset: u64,
    /// File for chunks, if they do not go into the image.
    pub blob: Option<PathBuf>,
    /// File for a VMDK descriptor, if one is wanted.
    pub vmdk: Option<PathBuf>,
    pub packer: Packer,
    pub warnings: Vec<String>,
}

impl Options {
    pub fn read(&mut self, items: Vec<Item>) -> Result<(), Stop> {
        for item in items {
            match item {
                Item::Operand(operand) => self.operands.push(operand.into()),
                Item::Option("help", _) => return Err(Stop::Help),
                Item::Option("version", _) => return Err(super::version()),
                Item::Option(name, value) => {
                    refused::check(name)?;
                    self.option(name, value)?;
                }
            }
        }
        Ok(())
    }

    fn option(&mut self, name: &str, value: Option<OsString>) -> Result<(), Stop> {
        match (name, value) {
            ("xattr-inode-digest", value) => {
                let name = value.map(|value| value.as_bytes().to_vec());
                self.content_digests = Some(name.unwrap_or_else(|| FINGERPRINT_NAME.into()));
            }
            ("tar" | "clean" | "gzip" | "ungzip" | "unlzma" | "unxz", value) => self.input.option(name, value)?,
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
            "b" => self.block_bits = Some(block_bits(&value)?),
            "C" => {
                let len = value.to_str().and_then(size);
                self.pcluster_len = Some(len.ok_or_else(|| invalid("physical clustersize", &value))?);
            }
            "E" => self.extended.read(&value)?,
            "L" => self.label = label(&value)?,
            "T" => self.times.fixed = Some(signed(&value).ok_or_else(|| invalid("UNIX timestamp", &value))?),
            "U" => self.uuid = Some(uuid(&value)?),
            "d" => self.log = Log::parse(&value)?,
            "m" => self.metadata = Some(MetadataCompression::parse(&value)?),
            "x" => self.xattr_tolerance(&value)?,
            "z" => self.compressors = Compression::parse(&value)?,
            "compress-hints" => self.hints = Some(value.into()),
            "blobdev" => self.blob = Some(value.into()),
            "vmdk-desc" => self.vmdk = Some(value.into()),
            "chunksize" => self.chunk_len = Some(blocks("chunksize", &value)?),
            "dsunit" => self.dsunit = blocks("dsunit", &value)?,
            "fsalignblks" => self.fsalignblks = blocks("fsalignblks", &value)?,
            "max-extent-bytes" => self.extent_max_len = Some(extent_max_len(&value)?),
            "root-xattr-isize" => self.root_xattr_len = root_xattr_len(&value)?,
            "offset" => self.offset = number(&value).ok_or_else(|| invalid("disk offset", &value))?,
            "async-queue-limit" => drop(number(&value).ok_or_else(|| invalid("async-queue-limit", &value))?),
            "exclude-path" => self.filter.exclude_path(value.as_bytes()),
            "exclude-regex" => self.exclude_regex(&value)?,
            "file-contexts" => self.file_contexts = Some(value.into()),
            "force-gid" => self.policy.gid.base = IdBase::All(id(&value).ok_or_else(|| invalid("gid", &value))?),
            "force-uid" => self.policy.uid.base = IdBase::All(id(&value).ok_or_else(|| invalid("uid", &value))?),
            "fs-config-file" => self.fs_config = Some(value.into()),
            "product-out" => self.product_out = Some(value.into()),
            "gid-offset" => self.policy.gid.offset = signed(&value).ok_or_else(|| invalid("gid offset", &value))?,
            "uid-offset" => self.policy.uid.offset = signed(&value).ok_or_else(|| invalid("uid offset", &value))?,
            "mount-point" => self.mount_point = value.as_bytes().to_vec(),
            "sort" if value != "path" && value != "none" => return Err(invalid("sort order", &value).into()),
            "workers" => self.workers = Some(workers(&value)?),
            "xattr-prefix" => self.xattr_prefixes.push(value.as_bytes().to_vec()),
            "zfeature-bits" => self.extended.read_bits(&value)?,
            // --sort is for archives: a directory's files are always in the order of a walk.
            _ => {}
        }
        Ok(())
    }

    fn xattr_tolerance(&mut self, value: &OsString) -> Result<(), Stop> {
        let tolerance = signed(value).ok_or_else(|| invalid("xattr tolerance", value))?;
        let none = if tolerance < 0 { &[&b"*"[..]][..] } else { &[] };
        let globs = NameGlobs::new(none.iter().copied()).map_err(|error| Failure::Usage(format!("-x: {error}")))?;
        self.policy.xattrs.exclude = globs;
        self.xattr_tolerance = u64::try_from(tolerance).ok();
        Ok(())
    }

    fn exclude_regex(&mut self, value: &OsString) -> Result<(), Misuse> {
        let text = value.to_str().ok_or_else(|| invalid("regex", value))?;
        self.filter.regexes.add(text).map_err(|error| Misuse::Other(format!("invalid regex {text} ({error})")))
    }

    /// Checks that all options agree.
    pub fn request(mut self) -> Result<Request, Stop> {
        let operands = std::mem::take(&mut self.operands);
        let (file, sources) = operands.split_first().ok_or_else(|| Misuse::other("missing argument: FILE"))?;
        let epoch = source_date_epoch()?;
        let input = std::mem::take(&mut self.input).input(sources, epoch.or(self.times.fixed).unwrap_or(0))?;
        // As in the original, this overrides -b.
        self.block_bits = input.block_bits()?.or(self.block_bits);
        let mut warnings: Vec<String> = self.extended.warnings.iter().map(ToString::to_string).collect();
        if let Some(bits) = self.block_bits.filter(|&bits| bits > BlockBits::DEFAULT) {
            warnings.push(format!("-b{}: only kernels with pages as long mount the image", bits.len()));
        }
        let threads = self.threads(&input, &mut warnings);
        if self.extended.dedupe && self.compressors.is_empty() {
            warnings.push("-Ededupe: nothing is compressed: only whole files are stored once".into());
        }
        if self.compress_directories && self.compressors.is_empty() {
            warnings.push("--zD: nothing is compressed, directories neither".into());
        }
        let layout = self.layout()?;
        if self.metadata.is_some() && layout.metadata.metabox.is_none() {
            warnings.push("-m: nothing is compressed, metadata neither".into());
        }
        let chunk_bits = self.chunk_bits(layout.block_bits)?;
        let mut times = self.times;
        times.ignore_mtime |= self.extended.compact_inodes;
        let mut policy = self.policy;
        let latest;
        let build_time = times.build_time();
        (policy.times, latest) = times.resolve(epoch, now);
        policy.fs_config = match (self.fs_config, self.product_out) {
            (Some(path), _) => Some(fs_config(&path, &self.mount_point)?),
            // Its rules precede tables built into Android's mkfs.erofs, without which nothing would be executable.
            (None, Some(_)) => return Err(refused::not_yet("--product-out", "name a list by --fs-config-file, too")),
            (None, None) => None,
        };
        policy.labels = self.file_contexts.map(|path| labels(&path, self.mount_point)).transpose()?;
        let align = |what: &str, blocks: u64| match blocks.checked_mul(layout.block_bits.len()) {
            Some(0) => Ok(1),
            Some(align) if align <= ALIGN_MAX => Ok(align),
            _ => Err(invalid(what, &blocks.to_string().into())),
        };
        let build = BuildOptions {
            layout: LayoutOptions {
                chunk_bits,
                chunk_entries: self.extended.chunk_entries,
                inline_tails: self.extended.inline_tails,
                data_align: align("dsunit", self.dsunit)?,
                image_align: align("fsalignblks", self.fsalignblks)?,
                ..layout.layout
            },
            metadata: MetadataOptions {
                compact_inodes: !self.extended.extended_inodes,
                omit_dot: self.extended.omit_dot,
                // By default an attribute of two owners is shared, which makes the image smaller.
                xattr_share_min: self.xattr_tolerance.map_or(2, |tolerance| tolerance.saturating_add(1)),
                root_xattr_len: self.root_xattr_len,
                xattr_prefixes: self.xattr_prefixes,
                content_digests: self
                    .content_digests
                    .map_or(ContentDigests::Off, |name| ContentDigests::Named(DigestName::Prefix(name))),
                digest_hash: Some(ContentHash::Sha256),
                plain_xattr_prefixes: self.extended.plain_xattr_prefixes,
                ..layout.metadata
            },
            identity: IdentityOptions {
                checksum: self.extended.checksum,
                build_time,
                uuid: self.uuid,
                label: self.label.padded(),
                source_date_epoch: latest,
            },
            compression: CompressionOptions { extent_max_len: self.extent_max_len, ..layout.compression },
            work: WorkOptions { threads: Threads::at_least_one(threads), ..layout.work },
            ..layout
        };
        let mut packer = Packer::new().filter(self.filter).policy(policy);
        if let Some(path) = &self.hints {
            packer = packer.hints(hints::read(path, &self.compressors, &build, &mut warnings)?);
        }
        let log = if self.quiet { Log::QUIET } else { self.log };
        let (offset, blob, vmdk) = (self.offset, self.blob, self.vmdk);
        Ok(Request {
            log,
            quiet: self.quiet,
            file: file.clone(),
            input,
            offset,
            blob,
            vmdk,
            packer: packer.options(build),
            warnings,
        })
    }

    /// Returns the options for the layout of the image.
    fn layout(&self) -> Result<BuildOptions, Stop> {
        let files = layout(self.block_bits, self.compressors.first().copied(), self.pcluster_len, &self.extended)?;
        let metabox = match self.metadata {
            Some(metadata) => metadata.spec(&files)?,
            None => None,
        };
        let holes = holes(&files);
        Ok(files.with(|options| {
            options.holes = holes;
            options.packing.directories = self.compress_directories;
            options.metadata.metabox = metabox;
            // The metabox needs a later kernel than 48bit does.
            options.metadata.own_mtimes |= metabox.is_some();
        }))
    }

    /// Returns log2 of the size of chunks, if there are any.
    fn chunk_bits(&self, block_bits: BlockBits) -> Result<Option<u8>, Misuse> {
        let refuse = |message: &str| Err(Misuse::Other(message.into()));
        match self.chunk_len {
            None if self.blob.is_some() => refuse("--blobdev must be used together with --chunksize"),
            None => Ok(None),
            Some(_) if self.blob.is_some() && self.extended.block_map => {
                refuse("--blobdev cannot work with block map currently")
            }
            Some(len) if !len.is_power_of_two() || len > CHUNK_MAX_LEN => {
                refuse(&format!("chunksize {len} must be a power of two, up to {CHUNK_MAX_LEN}"))
            }
            Some(len) if len < block_bits.len() => refuse(&format!("chunksize {len} must be larger than block size")),
            Some(len) => Ok(Some(len.trailing_zeros() as u8)),
        }
    }

    /// Returns the number of threads. An archive that is only copied gets a single one: a second one would only pass
    /// the data from one processor's cache to the other's, which took 1.4 times the CPU time.
    fn threads(&self, input: &Input, warnings: &mut Vec<String>) -> usize {
        let processors = processors();
        if let Some(workers) = self.workers.filter(|&workers| workers > processors) {
            warnings
                .push(format!("{workers} workers exceed {processors} processors, potentially impacting performance."));
        }
        let computes = !self.compressors.is_empty() || self.content_digests.is_some();
        let default = if input.is_tar() && !computes { 1 } else { processors };
        self.workers.unwrap_or(default).max(1)
    }
}

/// Checks `--MZ`: a zone of inodes and directories exists in any case.
fn metadata_zone(value: Option<OsString>) -> Result<(), Misuse> {
    match value {
        Some(value) if !["0", "i", "id"].iter().any(|known| value == *known) => Err(invalid("metadata zone", &value)),
        _ => Ok(()),
    }
}

fn labels(path: &Path, mount_point: Vec<u8>) -> Result<Labels, Failure> {
    let text = fs::read(path).map_err(|source| Failure::File { path: path.to_owned(), action: "read", source })?;
    let contexts = FileContexts::parse(&text, &path.to_string_lossy());
    Ok(Labels { contexts: contexts.map_err(|error| Failure::Usage(error.to_string()))?, mount_point })
}

fn fs_config(path: &Path, mount_point: &[u8]) -> Result<FsConfig, Failure> {
    let text = fs::read(path).map_err(|source| Failure::File { path: path.to_owned(), action: "read", source })?;
    let config = parse_fs_config(&text, &path.to_string_lossy(), mount_point);
    config.map_err(|error| Failure::Usage(error.to_string()))
}

/// Returns the current time in seconds since 1970.
fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64)
}
