//! Options of packing, read from the attributes of `kilnfs.PackOptions`.

use kilnfs::builder::{
    Choices, Compression, ContentHash, Dedupe, METADATA_LEN, MetadataChoice, MetadataCompression, MethodChoice,
    Progress, Spec,
};
use kilnfs::format::KernelVersion;
use kilnfs::tree::filter::{Filter, PathList, Rule, Rules};
use kilnfs::tree::policy::{IdBase, IdPolicy, Policy, XattrPolicy};
use kilnfs::tree::storage::{DataOrder, Hint, HintRules, PathOrder};
use kilnfs::{Packer, Preset, Threads};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::fmt::Display;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::errors::of_options;
use super::interrupt::Meter;
use crate::arguments::Name;

/// Attributes of `kilnfs.PackOptions`, which documents and checks them.
#[derive(FromPyObject)]
pub(super) struct Options {
    preset: String,
    compress: Option<String>,
    cluster_size: Option<u64>,
    kernel: Option<String>,
    /// `None`: `shuffle` if the preset stores each file by itself, else `path`.
    order: Option<Order>,
    seed: u64,
    exclude: Vec<Name>,
    /// Pairs of a glob and a method; `None` stands for `none`.
    hints: Vec<(Name, Option<String>)>,
    owner: Option<(u32, u32)>,
    mtime: Option<Mtime>,
    strict_xattrs: bool,
    pub(super) concatenated: bool,
    dedupe: Option<String>,
    /// True if ends of uncompressed files are stored beside their inodes.
    inline: bool,
    /// `None`: that of the kernel.
    compress_metadata: Option<bool>,
    /// `None`: none, unless sources or preset have some.
    content_digests: Option<ContentDigests>,
    threads: Option<usize>,
    /// `None`: the builder's default.
    readers: Option<usize>,
    overwrite: bool,
    dry_run: bool,
}

/// Order of data: its name, or paths whose data come first.
#[derive(FromPyObject)]
enum Order {
    Name(String),
    Paths(Vec<Name>),
}

/// Digests of contents: a flag, or the name of their function.
#[derive(FromPyObject)]
enum ContentDigests {
    Flag(bool),
    Name(String),
}

impl ContentDigests {
    /// Returns the function, if there are to be digests.
    ///
    /// # Errors
    /// An unknown name.
    fn hash(&self) -> PyResult<Option<ContentHash>> {
        match self {
            ContentDigests::Flag(wanted) => Ok(wanted.then_some(ContentHash::Sha256)),
            ContentDigests::Name(name) => {
                name.parse().map(Some).map_err(|error: &str| refusal("content_digests", name, error))
            }
        }
    }
}

/// Rule of modification times, as text.
struct Mtime(String);

impl<'py> FromPyObject<'_, 'py> for Mtime {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        Ok(Mtime(object.str()?.to_string()))
    }
}

/// Packer with all options applied.
pub(super) struct Plan {
    pub(super) packer: Packer,
    /// Order of the data: `path`, `shuffle` or `list`.
    pub(super) order: &'static str,
}

impl Options {
    /// Returns a packer that ends once `stop` is set, and reports its progress to `meter`. `only`:
    /// paths that are packed, with a zero byte behind each; `None` for all.
    ///
    /// # Errors
    /// `ValueError` that names the option.
    pub(super) fn plan(&self, only: Option<&[u8]>, stop: Arc<AtomicBool>, meter: &Arc<Meter>) -> PyResult<Plan> {
        let meter = Arc::clone(meter);
        let mut packer = Packer::new()
            .choices(self.choices()?)
            .filter(self.filter(only)?)
            .policy(self.policy()?)
            .stop(stop)
            .progress(move |Progress { done_bytes, total_bytes }| meter.set(done_bytes, total_bytes));
        if let Some(threads) = self.threads {
            let count = NonZeroUsize::new(threads).ok_or_else(|| refusal("threads", threads, "use 1 or more"))?;
            packer = packer.threads(Threads::from(count));
        }
        if let Some(readers) = self.readers {
            let count = NonZeroUsize::new(readers).ok_or_else(|| refusal("readers", readers, "use 1 or more"))?;
            packer = packer.readers(Threads::from(count));
        }
        if !self.inline {
            packer = packer.without_inline_tails();
        }
        if let Some(hash) = self.content_digests.as_ref().map(ContentDigests::hash).transpose()?.flatten() {
            packer = packer.content_digests(hash);
        }
        if self.overwrite {
            packer = packer.replace();
        }
        if self.dry_run {
            packer = packer.dry_run();
        }
        let options = packer.build_options().map_err(|error| of_options(&error))?;
        let hint = |(Name(glob), way): &(Name, Option<String>)| {
            let way = kilnfs::builder::hint_spec(way.as_deref().unwrap_or("none"), &options)
                .map_err(|error| refusal_of("hints", error))?;
            Hint::glob(glob, way).map_err(|error| refusal_of("hints", error))
        };
        let hints = self.hints.iter().map(hint).collect::<PyResult<Vec<_>>>()?;
        packer = packer.hints(HintRules::new(hints).map_err(|error| refusal_of("hints", error))?);
        let shuffled = DataOrder::Shuffled { seed: self.seed };
        Ok(match &self.order {
            None if !options.packs_files() => Plan { packer: packer.order(shuffled), order: "shuffle" },
            None => Plan { packer, order: "path" },
            Some(Order::Name(name)) if name == "path" => Plan { packer, order: "path" },
            Some(Order::Name(name)) if name == "shuffle" => Plan { packer: packer.order(shuffled), order: "shuffle" },
            Some(Order::Name(other)) => return Err(refusal("order", other, "use path, shuffle or a list of paths")),
            Some(Order::Paths(paths)) => {
                // A zero byte behind each path, because a path may contain any other byte.
                let list: Vec<u8> = paths.iter().flat_map(|Name(path)| [path, &b"\0"[..]].concat()).collect();
                let list =
                    PathOrder::parse(&list, "order").map_err(|error| PyValueError::new_err(error.to_string()))?;
                Plan { packer: packer.order(list), order: "list" }
            }
        })
    }

    fn choices(&self) -> PyResult<Choices> {
        let compression = match self.compress.as_deref() {
            None => None,
            Some("none") => Some(Compression::Off),
            Some(text) => Some(Compression::By(method(text)?)),
        };
        let dedupe = match self.dedupe.as_deref() {
            None => None,
            Some("parts") => Some(Dedupe::Parts),
            Some("files") => Some(Dedupe::Files),
            Some("off") => Some(Dedupe::Off),
            Some(other) => return Err(refusal("dedupe", other, "use parts, files or off")),
        };
        let kernel = self.kernel.as_deref().map(|text| {
            let kernel: Result<KernelVersion, _> = text.parse();
            kernel.map_err(|error| refusal("kernel", text, error))
        });
        Ok(Choices {
            preset: preset(&self.preset)?,
            kernel: kernel.transpose()?,
            compression,
            pcluster_len: self.cluster_size,
            dedupe,
            metadata: self.compress_metadata.map(|is_wanted| match is_wanted {
                true => MetadataCompression::By(MetadataChoice { pcluster_len: METADATA_LEN.into(), method: None }),
                false => MetadataCompression::Off,
            }),
            ..Choices::default()
        })
    }

    fn filter(&self, only: Option<&[u8]>) -> PyResult<Filter> {
        let refuse = |error| refusal_of("exclude", error);
        let rules = self.exclude.iter().map(|Name(glob)| Rule::new(glob)).collect::<Result<_, _>>().map_err(refuse)?;
        let only = only.map(|paths| PathList::parse(paths, "only"));
        let only = only.transpose().map_err(|error| PyValueError::new_err(error.to_string()))?;
        Ok(Filter { rules: vec![Rules::new(rules).map_err(refuse)?], only, ..Filter::default() })
    }

    fn policy(&self) -> PyResult<Policy> {
        let times = self.mtime.as_ref().map(|Mtime(text)| text.parse().map_err(|error| refusal_of("mtime", error)));
        let all = |id| IdPolicy { base: IdBase::All(id), ..IdPolicy::default() };
        let (uid, gid) = match self.owner {
            // The largest number means "no id" in system calls.
            Some((uid, gid)) if uid == u32::MAX || gid == u32::MAX => {
                return Err(refusal("owner", format_args!("({uid}, {gid})"), "the largest id is 4294967294"));
            }
            owner => owner.map(|(uid, gid)| (all(uid), all(gid))).unwrap_or_default(),
        };
        let xattrs = XattrPolicy { strict: self.strict_xattrs, ..XattrPolicy::default() };
        Ok(Policy { times: times.transpose()?.unwrap_or_default(), uid, gid, xattrs, ..Policy::default() })
    }
}

/// Returns the preset with this name.
///
/// # Errors
/// `ValueError` for a preset that does not exist.
pub(super) fn preset(name: &str) -> PyResult<Preset> {
    name.parse().map_err(|error| refusal("preset", name, error))
}

/// Parses `METHOD[,LEVEL][,dictsize=SIZE]`.
fn method(text: &str) -> PyResult<MethodChoice> {
    // Every method supports pclusters of this length.
    let spec = Spec::parse(text, 4096).map_err(|error| refusal("compress", text, error))?;
    Ok(MethodChoice { method: spec.method, level: Some(spec.level), window_len: spec.window_len })
}

fn refusal(option: &str, value: impl Display, reason: impl Display) -> PyErr {
    PyValueError::new_err(format!("{option}={value}: {reason}"))
}

fn refusal_of(option: &str, reason: impl Display) -> PyErr {
    PyValueError::new_err(format!("{option}: {reason}"))
}
