//! Options of packing as Python gives them: a dictionary that has them all, see `_native.pyi`.

use kiln::builder::{Choices, Compression, Dedupe, Fragments, MethodChoice, Progress, Spec};
use kiln::format::KernelVersion;
use kiln::source::filter::{
    DataOrder, Filter, Hint, HintRules, IdBase, IdPolicy, PathList, PathOrder, Policy, Rule, Rules, XattrPolicy,
};
use kiln::{Packer, Preset, Threads};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::fmt::Display;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::errors::of_options;
use super::interrupt::Meter;

/// The options of an image.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(super) struct Options {
    preset: String,
    compress: Option<String>,
    unit: Option<u64>,
    kernel: Option<String>,
    /// `None`: `shuffle` where files are stored by themselves, else `path`.
    order: Option<String>,
    /// Paths for the order `list`, with a zero byte behind each.
    order_list: Vec<u8>,
    seed: u64,
    exclude: Vec<Vec<u8>>,
    /// Only these paths and their parents, with a zero byte behind each.
    only: Option<Vec<u8>>,
    hints: Vec<(Vec<u8>, String)>,
    owner: Option<(u32, u32)>,
    mtime: Option<String>,
    strict_xattrs: bool,
    pub(super) concatenated: bool,
    dedupe: Option<String>,
    /// True if ends of uncompressed files lie beside their inodes.
    inline: bool,
    content_digests: bool,
    threads: Option<usize>,
    overwrite: bool,
    dry_run: bool,
}

/// What the options make together.
pub(super) struct Plan {
    pub(super) packer: Packer,
    /// The order that was chosen: `path`, `shuffle` or `list`.
    pub(super) order: &'static str,
}

impl Options {
    /// A packer that ends once `stop` is set, and tells `meter` how far it is.
    ///
    /// # Errors
    /// `ValueError` that names the option.
    pub(super) fn plan(&self, stop: Arc<AtomicBool>, meter: &Arc<Meter>) -> PyResult<Plan> {
        let meter = Arc::clone(meter);
        let mut packer = Packer::new()
            .choices(self.choices()?)
            .filter(self.filter()?)
            .policy(self.policy()?)
            .stop(stop)
            .progress(move |Progress { done_bytes, total_bytes }| meter.set(done_bytes, total_bytes));
        if let Some(threads) = self.threads {
            let count = NonZeroUsize::new(threads).ok_or_else(|| refusal("threads", threads, "use 1 or more"))?;
            packer = packer.threads(Threads::from(count));
        }
        if !self.inline {
            packer = packer.without_inline_tails();
        }
        if self.content_digests {
            packer = packer.content_digests();
        }
        if self.overwrite {
            packer = packer.replace();
        }
        if self.dry_run {
            packer = packer.dry_run();
        }
        let options = packer.build_options().map_err(|error| of_options(&error))?;
        let hint = |(glob, way): &(Vec<u8>, String)| {
            let way = kiln::hint_way(way, &options).map_err(|error| refusal_of("hints", error))?;
            Hint::glob(glob, way).map_err(|error| refusal_of("hints", error))
        };
        let hints = self.hints.iter().map(hint).collect::<PyResult<Vec<_>>>()?;
        packer = packer.hints(HintRules::new(hints).map_err(|error| refusal_of("hints", error))?);
        let order = match self.order.as_deref() {
            None if options.fragments == Fragments::Off => "shuffle",
            None | Some("path") => "path",
            Some("shuffle") => "shuffle",
            Some("list") => "list",
            Some(other) => return Err(refusal("order", other, "use path, shuffle or a list of paths")),
        };
        Ok(Plan { packer: self.with_order(packer, order)?, order })
    }

    fn with_order(&self, packer: Packer, order: &str) -> PyResult<Packer> {
        match order {
            "shuffle" => Ok(packer.order(DataOrder::Shuffled { seed: self.seed })),
            "list" => {
                let order = PathOrder::parse(&self.order_list, "order");
                Ok(packer.order(order.map_err(|error| PyValueError::new_err(error.to_string()))?))
            }
            _ => Ok(packer),
        }
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
            pcluster_len: self.unit,
            dedupe,
            ..Choices::default()
        })
    }

    fn filter(&self) -> PyResult<Filter> {
        let refuse = |error| refusal_of("exclude", error);
        let rules = self.exclude.iter().map(|glob| Rule::new(glob)).collect::<Result<_, _>>().map_err(refuse)?;
        let only = self.only.as_deref().map(|paths| PathList::parse(paths, "only"));
        let only = only.transpose().map_err(|error| PyValueError::new_err(error.to_string()))?;
        Ok(Filter { rules: vec![Rules::new(rules).map_err(refuse)?], only, ..Filter::default() })
    }

    fn policy(&self) -> PyResult<Policy> {
        let times = self.mtime.as_deref().map(|text| text.parse().map_err(|error| refusal_of("mtime", error)));
        let all = |id| IdPolicy { base: IdBase::All(id), ..IdPolicy::default() };
        let (uid, gid) = match self.owner {
            // The highest number stands for no id in system calls.
            Some((uid, gid)) if uid == u32::MAX || gid == u32::MAX => {
                return Err(refusal("owner", format_args!("({uid}, {gid})"), "ids end at 4294967294"));
            }
            owner => owner.map(|(uid, gid)| (all(uid), all(gid))).unwrap_or_default(),
        };
        let xattrs = XattrPolicy { strict: self.strict_xattrs, ..XattrPolicy::default() };
        Ok(Policy { times: times.transpose()?.unwrap_or_default(), uid, gid, xattrs, ..Policy::default() })
    }
}

/// The preset of a name.
///
/// # Errors
/// `ValueError`.
pub(super) fn preset(name: &str) -> PyResult<Preset> {
    Ok(match name {
        "plain" => Preset::Plain,
        "fast" => Preset::Fast,
        "balanced" => Preset::Balanced,
        "archive" => Preset::Archive,
        "dataset" => Preset::Dataset,
        "backup" => Preset::Backup,
        other => return Err(refusal("preset", other, "use plain, fast, balanced, archive, dataset or backup")),
    })
}

/// `METHOD[,LEVEL][,dictsize=SIZE]`.
fn method(text: &str) -> PyResult<MethodChoice> {
    // Every method has pclusters of this length.
    let spec = Spec::parse(text, 4096).map_err(|error| refusal("compress", text, error))?;
    Ok(MethodChoice { method: spec.method, level: Some(spec.level), window_len: spec.window_len })
}

fn refusal(option: &str, value: impl Display, reason: impl Display) -> PyErr {
    PyValueError::new_err(format!("{option}={value}: {reason}"))
}

fn refusal_of(option: &str, reason: impl Display) -> PyErr {
    PyValueError::new_err(format!("{option}: {reason}"))
}
